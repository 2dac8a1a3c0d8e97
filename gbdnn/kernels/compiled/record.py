"""Structures of C, and what compiled code receives for arrays.

The headers are the only place that declares structures, constants and functions; the build lets
cffi read them. There is one set of declarations for each type of numbers, so that a structure
with FP32 arrays cannot be passed to code for FP64.
"""

from __future__ import annotations

import pickle
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import _cffi_backend
import numpy as np

from gbdnn.kernels.compiled.build import declarations

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["FFI", "FOLDER", "Record", "address", "constant", "passing", "untyped"]

FOLDER = Path(__file__).parent / "libraries"


class _Declarations(dict[np.dtype, Any]):
    """Declarations by dtype, read at the first use."""

    def __missing__(self, dtype: np.dtype) -> Any:
        arguments = pickle.loads(declarations(FOLDER, dtype.name).read_bytes())  # noqa: S301
        ffi = _cffi_backend.FFI("declarations", **arguments)  # as the module that cffi writes
        return self.setdefault(dtype, ffi)  # the same one for all threads


FFI = _Declarations()
_any = FFI[np.dtype("float32")]
constant, _cast, _from_buffer, _NULL = _any.integer_const, _any.cast, _any.from_buffer, _any.NULL
_INTEGERS = {f"{u}int{8 * n}_t": f"i{n} u{n}" for u in ("", "u") for n in (1, 2, 4, 8)}
_KINDS = _INTEGERS | {"float": "f4", "double": "f8", "uint8_t": "u1 b1"}


@cache
def passing(kind: Any) -> Callable[[Any], Any] | None:
    """Return a function to what C receives where it has a type; None if that is not a pointer.

    It takes a Record, a pointer, an address, None, or an array of matching dtype, which is
    contiguous if it is one-dimensional; the strides of others are passed, too. The caller keeps the
    array as long as C uses it.
    """
    if kind.kind != "pointer":
        return None
    dtypes = [np.dtype(name) for name in _KINDS.get(kind.item.cname, "").split()]

    def passed(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            if dtypes and value.dtype not in dtypes:
                raise TypeError(f"compiled code reads {kind.item.cname}, not {value.dtype}")
            try:
                return _cast(kind, _from_buffer(value))
            except ValueError:  # not contiguous
                if value.ndim == 1:
                    raise
                return _cast(kind, value.ctypes.data)
        if isinstance(value, Record):
            return value.c
        if isinstance(value, int):
            return _cast(kind, value)
        return _NULL if value is None else value

    return passed


def untyped(pointer: Any) -> Any:
    """Return a pointer without its type, which may be of other declarations."""
    return _cast("void *", pointer)


def address(array: np.ndarray) -> int:
    """Return the address of a contiguous array, valid as long as it exists.

    It takes a quarter of the time of ``array.ctypes``.
    """
    return int(_cast("uintptr_t", _from_buffer(array)))


@cache
def _type(kind: str, dtype: np.dtype | None) -> tuple[Any, dict[str, Any]]:
    """Return the type of an array of structures, and `passing` for each member."""
    ffi = _any if dtype is None else FFI[dtype]
    structures = ffi.typeof(f"struct {kind}[]")
    return structures, {name: passing(field.type) for name, field in structures.item.fields}


class Record:
    """Structures of C, one after the other, which keep the arrays that they point to.

    Parameters
    ----------
    kind : str
        Name of the structure in a header.
    dtype : dtype or None
        Of the numbers. None for a structure without any, which belongs to both types of numbers.
    size : int, default 1
        Number of structures.
    **members : number, ndarray, Record, pointer or None
        Members of the first structure; others are 0.

    Attributes
    ----------
    kind, dtype
        As given.
    c : cffi pointer
        What functions receive.
    all : cffi array
        The structures.
    first : cffi structure
        The first one.
    kept : dict
        What the members that are pointers were set to.
    """

    dtype: Any

    def __init__(self, kind: str, dtype: np.dtype | None, size: int = 1, /, **members: Any) -> None:
        structures, self._passing = _type(kind, dtype)
        self.all = _any.new(structures, size)
        self.c = untyped(self.all) if dtype is None else self.all
        self.kind, self.dtype, self.kept = kind, dtype, dict[Any, Any]()
        self.first = self.all[0]
        self.set(**members)

    def set(self, **members: Any) -> None:
        """Set members of the first structure."""
        for name, value in members.items():
            passed = self._passing[name]
            if passed is not None:
                self.kept[name], value = value, passed(value)
            setattr(self.first, name, value)

    def set_each(self, **members: Any) -> Record:
        """Set members of all structures, to a value each; return the record."""
        for name, values in members.items():
            self.kept[name], passed = values, self._passing[name]
            for one, value in zip(self.all, values, strict=True):
                setattr(one, name, value if passed is None else passed(value))
        return self

    def __getitem__(self, name: str) -> np.ndarray:
        """Return a member of all structures, which is a number."""
        return np.array([getattr(one, name) for one in self.all])

    @classmethod
    def joined(cls, records: Sequence[Record]) -> Record:
        """Return copies of structures of one kind, one after the other."""
        parts = [bytes(_any.buffer(record.all)) for record in records]
        size = sum(len(record.all) for record in records)
        joined = cls(records[0].kind, records[0].dtype, size)
        _any.buffer(joined.all)[:] = b"".join(parts)
        joined.kept[None] = records
        return joined

    def copy(self, **members: Any) -> Record:
        """Return a copy with other members of the first structure."""
        copied = Record.joined([self])
        copied.set(**members)
        return copied
