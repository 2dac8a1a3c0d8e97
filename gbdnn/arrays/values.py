"""Numbers, vectors and dtypes, as they come from a caller and as they are computed with."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from gbdnn.arrays.first_use import COMPLETION, complete, gb, shown
from gbdnn.errors import ArgumentError, ArgumentTypeError, TooLargeError

__all__ = [
    "as_array",
    "as_dtype",
    "finite",
    "floating",
    "is_whole",
    "require_room",
    "whole_number",
]

_SMALL = 1 << 20  # bytes that every machine has


def is_whole(n: object) -> bool:
    """Whether `n` is a whole number, and no bool."""
    return isinstance(n, int | np.integer) and not isinstance(n, bool)


def whole_number(n: Any, what: str, *, least: int | None = None, most: int | None = None) -> int:
    """Return `n` as an int, or raise the error that says which whole number `what` is."""
    if not is_whole(n):
        raise ArgumentTypeError(f"{what} is a whole number, not {shown(n)}")
    if least is not None and n < least:
        raise ArgumentError(f"{what} is at least {least}, not {n}")
    if most is not None and n > most:
        raise ArgumentError(f"{what} is at most {most}, not {n}")
    return int(n)


def as_array(x: Any, what: str) -> np.ndarray:
    """Return a number, or a sequence or array of any rank, as an array of real numbers."""
    complete(x)
    if isinstance(x, np.ma.MaskedArray):
        raise ArgumentTypeError(f"{what}: a masked array; fill what is masked: filled(0)")
    try:
        # An int of any size is a number; NumPy makes an object of one beyond 64 bits.
        array = np.asarray(float(x) if type(x) is int else x)
    except OverflowError as err:
        raise ArgumentError(f"{what}: a number of {x.bit_length()} bits does not fit") from err
    except (TypeError, ValueError) as err:
        raise ArgumentTypeError(f"{what}: not an array of numbers: {err}") from err
    if array.dtype.kind not in "biuf":
        raise ArgumentTypeError(f"{what}: real numbers are needed, not {shown(x)}")
    return array


def as_dtype(dtype: Any, what: str = "dtype") -> np.dtype:
    """Return float32 or float64 for ``"FP32"``, ``"float64"``, ``np.float32`` and the like."""
    lookup = gb.dtypes.lookup_dtype  # what GraphBLAS raises as it starts is not about `dtype`
    try:
        with COMPLETION:
            found = np.dtype(lookup(dtype).np_type)
    except (TypeError, ValueError, AttributeError) as err:
        raise ArgumentTypeError(f"{what}: {shown(dtype)} is not FP32 or FP64") from err
    if found not in (np.float32, np.float64):
        raise ArgumentTypeError(f"{what}: inference runs in FP32 or FP64, not {shown(dtype)}")
    return found


def floating(dtype: np.dtype, what: str) -> np.dtype:
    """Return what values of `dtype` become: float64 stays, other real numbers get float32."""
    if dtype.kind not in "bifu" or dtype.itemsize > 8:
        raise ArgumentTypeError(
            f"{what}: values of dtype {dtype}; real numbers of at most 64 bits are needed"
        )
    return np.dtype(np.float64 if dtype.kind == "f" and dtype.itemsize == 8 else np.float32)


def finite(values: np.ndarray, dtype: np.dtype | None, what: str) -> np.ndarray:
    """Return `values` as a new array of `dtype`; refuse NaN, infinities and overflow."""
    own = floating(values.dtype, what)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        bad = values[~np.isfinite(values)][0]
        raise ArgumentError(f"{what}: contains {bad}; every value must be finite")
    dtype = own if dtype is None else dtype
    with np.errstate(over="ignore"):
        cast = values.astype(dtype)  # a copy, whatever the dtype: the caller's array stays its own
    if not np.isfinite(cast).all():
        bad = values[~np.isfinite(cast)][0]
        raise ArgumentError(f"{what}: {bad} does not fit {dtype}")
    return cast


def require_room(needed: int, what: str) -> None:
    """Raise TooLargeError if `needed` bytes are over a quarter of the machine's memory."""
    if needed <= _SMALL:
        return
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > memory / 4:
        raise TooLargeError(
            f"{what} need {needed / 2**30:,.0f} GiB; this machine has {memory / 2**30:,.0f}"
        )
