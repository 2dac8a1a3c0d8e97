"""The compiled functions: four libraries for each dtype, which are compiled separately.

    library("float32", "blocks").functions()["chain"](address(plan), 0, 120, ...)

Addresses and lengths are integers. Calls release the GIL.

The libraries are created when this module is imported, under the import lock, so all threads share
them.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gbdnn.kernels.compiled.library import Library

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Part", "functions", "libraries", "library"]

Part = Literal["blocks", "single", "steps", "gather"]

# Types of arguments and of the result, as in records. Their number suffices to load machine code.
_SHARES = {"lead": "int64 -> void", "assist": "int64 int64 int64 -> void"}
_SIGNATURES: dict[Part, dict[str, str]] = {
    "blocks": {
        **_SHARES,
        "chain": "int64 int64 int64 real* real* int64 int64 int64* int64 int64 -> void",
        "fill": "int64* int64* real* int64 int64 int64 int64 real* int64 int64 -> void",
        "count": "real* int64 int64 int64 int64* -> void",
        "extract": "real* int64 int64 int64 int64 int64* int64* real* -> void",
        "patterns": "int64* int64* int64 float64* uint64* -> void",
        "arrange": "int64* int64* int64 int64* int64 uint8* int64* uint32* real* -> void",
        "panels": "int64* int64* int64 int64 int64 int64 int64* int64* uint32* real* -> void",
        "from_dense": "real* int64 int64 int64 int64 int64 real* int64 int64 -> int64",
        "to_dense": "real* int64 int64 int64* int64 real* int64 int64 -> int64",
    },
    "single": _SHARES,
    "steps": {"steps": "int64 int64 -> int64"},
    "gather": {"gather": "int64 int64 int64 -> int64"},
}


def _make(dtype: str, part: Part, lines: int) -> dict[str, tuple[Callable[..., Any], Any]]:
    """Return the functions of a library with their numba signatures."""
    from gbdnn.kernels.compiled import chain, dense_rows, gather, order, rows, shares, steps
    from gbdnn.kernels.compiled.vectors import kinds

    kind = kinds(dtype)
    if part == "single":
        made = shares.make_singles(kind)
    elif part == "steps":
        made = {"steps": steps.make_steps(kind, lines)}
    elif part == "gather":
        made = {"gather": gather.make_gather(kind)}
    else:
        made = {
            **shares.make_blocks(kind, lines),
            "chain": chain.make_chain(kind, lines),
            "fill": rows.make_fill(),
            "count": rows.make_count(),
            "extract": rows.make_extract(kind),
            "patterns": order.make_patterns(),
            "arrange": order.make_arrange(kind),
            "panels": order.make_panels(kind),
            "from_dense": dense_rows.make_from_dense(kind, lines),
            "to_dense": dense_rows.make_to_dense(kind, lines),
        }
    found = {}
    for name, signature in _SIGNATURES[part].items():
        *taken, result = map(kind.type_of, signature.replace("-> ", "").split())
        found[name] = made[name], result(*taken)
    return found


def _library(dtype: str, part: Part) -> Library:
    sources = sorted(Path(__file__).parent.glob("*.py"))
    make = partial(_make, dtype, part)
    arguments = {name: len(text.split()) - 2 for name, text in _SIGNATURES[part].items()}
    return Library(make, arguments, sources, label=f"{part}-{dtype}")


_LIBRARIES = {
    (dtype, part): _library(dtype, part) for dtype in ("float32", "float64") for part in _SIGNATURES
}


def library(dtype: str, part: Part = "blocks") -> Library:
    """Return a library for one dtype, not yet loaded.

    "blocks" is the kernel for blocks of inputs, "single" that for single inputs, "steps" are
    training steps, and "gather" is the product of a graph matrix and a full one.
    """
    return _LIBRARIES[dtype, part]


def libraries() -> list[Library]:
    """Return all libraries."""
    return list(_LIBRARIES.values())


def functions(dtype: str) -> dict[str, Callable[..., Any]]:
    """Return the block kernels by name; the first call in a process loads or compiles them."""
    return library(dtype).functions()
