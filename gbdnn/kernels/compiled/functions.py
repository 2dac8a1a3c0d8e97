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

# Number of arguments of each function, to load machine code without numba
_SHARES = {"lead": 1, "assist": 3}
_ARGUMENTS: dict[Part, dict[str, int]] = {
    "blocks": _SHARES | {
        "chain": 10, "fill": 10, "count": 5, "extract": 8, "patterns": 5, "arrange": 9,
        "panels": 10, "from_dense": 8, "to_dense": 8,
    },
    "single": _SHARES,
    "steps": {"steps": 2},
    "gather": {"gather": 3},
}  # fmt: skip


def _make(dtype: str, part: Part, lines: int) -> dict[str, tuple[Callable[..., Any], Any]]:
    """Return the functions of a library with their numba signatures."""
    from gbdnn.kernels.compiled.vectors import kinds

    kind = kinds(dtype)
    if part == "single":
        from gbdnn.kernels.compiled.shares import make_singles

        return make_singles(kind)
    if part == "steps":
        from gbdnn.kernels.compiled.steps import make_steps

        return {"steps": make_steps(kind, lines)}
    if part == "gather":
        from gbdnn.kernels.compiled.gather import make_gather

        return {"gather": make_gather(kind)}
    from gbdnn.kernels.compiled.chain import make_chain
    from gbdnn.kernels.compiled.dense_rows import make_from_dense, make_to_dense
    from gbdnn.kernels.compiled.order import make_arrange, make_panels, make_patterns
    from gbdnn.kernels.compiled.rows import make_count, make_extract, make_fill
    from gbdnn.kernels.compiled.shares import make_blocks

    return {
        **make_blocks(kind, lines),
        "chain": make_chain(kind, lines),
        "fill": make_fill(kind),
        "count": make_count(kind),
        "extract": make_extract(kind),
        "patterns": make_patterns(),
        "arrange": make_arrange(kind),
        "panels": make_panels(kind),
        "from_dense": make_from_dense(kind),
        "to_dense": make_to_dense(kind),
    }


def _library(dtype: str, part: Part) -> Library:
    sources = sorted(Path(__file__).parent.glob("*.py"))
    make = partial(_make, dtype, part)
    return Library(make, _ARGUMENTS[part], sources, label=f"{part}-{dtype}")


_LIBRARIES = {
    (dtype, part): _library(dtype, part) for dtype in ("float32", "float64") for part in _ARGUMENTS
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
