"""The compiled functions, for FP32 and FP64.

    functions("float32")["chain"](address(plan), 0, 120, ...)

Addresses and lengths are integers. Calls release the GIL.

The libraries are created when this module is imported, under the import lock, so all threads share
them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gbdnn.kernels.compiled.library import Library

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["functions", "gather_library", "libraries", "library", "step_library"]

_INT = "int64"
_SIGNATURES = {
    "chain": f"void({','.join([_INT] * 10)})",
    "lead": f"void({_INT})",
    "assist": f"void({','.join([_INT] * 3)})",
    "fill": f"void({','.join([_INT] * 10)})",
    "count": f"void({','.join([_INT] * 5)})",
    "extract": f"void({','.join([_INT] * 8)})",
    "patterns": f"void({','.join([_INT] * 5)})",
    "arrange": f"void({','.join([_INT] * 9)})",
    "panels": f"void({','.join([_INT] * 10)})",
    "from_dense": f"int64({','.join([_INT] * 8)})",
    "to_dense": f"int64({','.join([_INT] * 8)})",
}


def _kernels(dtype: str) -> Library:
    """Return the library of block kernels for one dtype."""

    def make(lines: int) -> dict[str, Any]:
        from gbdnn.kernels.compiled.chain import make_chain
        from gbdnn.kernels.compiled.dense_rows import make_from_dense, make_to_dense
        from gbdnn.kernels.compiled.layer import kinds, make_layer
        from gbdnn.kernels.compiled.order import make_arrange, make_panels, make_patterns
        from gbdnn.kernels.compiled.rows import make_count, make_extract, make_fill
        from gbdnn.kernels.compiled.shares import make_shares

        kind = kinds(dtype)
        layer = make_layer(kind, lines)
        return {
            "chain": make_chain(kind, layer),
            **make_shares(kind, layer),
            "fill": make_fill(kind),
            "count": make_count(kind),
            "extract": make_extract(kind),
            "patterns": make_patterns(kind),
            "arrange": make_arrange(kind),
            "panels": make_panels(kind),
            "from_dense": make_from_dense(kind),
            "to_dense": make_to_dense(kind),
        }

    return Library(make, _SIGNATURES, _sources(), label=dtype)


def _steps(dtype: str) -> Library:
    """Return the library of training steps for one dtype."""

    def make(lines: int) -> dict[str, Any]:
        from gbdnn.kernels.compiled.layer import kinds
        from gbdnn.kernels.compiled.steps import make_steps

        return {"steps": make_steps(kinds(dtype), lines)}

    signatures = {"steps": f"{_INT}({_INT},{_INT})"}
    return Library(make, signatures, _sources(), label=f"steps-{dtype}")


def _gather(dtype: str) -> Library:
    """Return the library that multiplies a graph matrix by a full matrix of one dtype."""

    def make(lines: int) -> dict[str, Any]:
        from gbdnn.kernels.compiled.gather import make_gather
        from gbdnn.kernels.compiled.layer import kinds

        return {"gather": make_gather(kinds(dtype))}

    signatures = {"gather": f"{_INT}({_INT},{_INT},{_INT})"}
    return Library(make, signatures, _sources(), label=f"gather-{dtype}")


def _sources() -> list[Path]:
    return sorted(Path(__file__).parent.glob("*.py"))


_KERNELS, _STEPS, _GATHER = (
    {dtype: make(dtype) for dtype in ("float32", "float64")} for make in (_kernels, _steps, _gather)
)


def library(dtype: str) -> Library:
    """Return the block kernels for one dtype, not yet loaded."""
    return _KERNELS[dtype]


def step_library(dtype: str) -> Library:
    """Return the training steps for one dtype, not yet loaded."""
    return _STEPS[dtype]


def gather_library(dtype: str) -> Library:
    """Return the product of a graph matrix and a full matrix of one dtype, not yet loaded."""
    return _GATHER[dtype]


def libraries() -> list[Library]:
    """Return all libraries."""
    return [*_KERNELS.values(), *_STEPS.values(), *_GATHER.values()]


def functions(dtype: str) -> dict[str, Callable[..., None]]:
    """Return the block kernels by name; the first call in a process loads or compiles them."""
    return library(dtype).functions()
