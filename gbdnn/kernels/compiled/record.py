"""Structures and functions of the compiled kernels, read from the headers.

A `Record` holds C structures, whose members are numbers and the addresses of arrays. It keeps the
arrays as long as it exists.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["CONSTANTS", "FUNCTIONS", "MEMBERS", "Record", "address", "word"]

_HEADERS = [each.read_text(encoding="utf-8") for each in Path(__file__).parent.glob("*.h")]
_CODE = re.sub(r"/\*.*?\*/|//[^\n]*", "", "\n".join(_HEADERS), flags=re.DOTALL)


def _members(body: str) -> np.dtype:
    """Return a structured type for the declarations of a structure; addresses are integers."""
    found = []
    body = re.sub(r"\(\*(\w+)\)\([^)]*\)", r"\1", body)  # a function
    for declaration in filter(None, map(str.strip, body.split(";"))):
        kind = np.float64 if re.match(r"double [^*]*$", declaration) else np.int64
        found += [(name, kind) for name in re.findall(r"(\w+)(?=,|$)", declaration)]
    return np.dtype(found)


def _constants(body: str) -> dict[str, int]:
    """Return the constants of an enumeration."""
    found: dict[str, int] = {}
    for n, each in enumerate(body.split(",")):
        name, _, value = map(str.strip, each.partition("="))
        found[name] = int(value) if value else n
    return found


MEMBERS = {
    name: _members(body) for name, body in re.findall(r"struct (\w+) \{(.*?)\};", _CODE, re.DOTALL)
}
_PLACES = {  # of members in a structure, and whether they are real
    kind: {name: (at, kind[name].kind == "f") for at, name in enumerate(kind.names or ())}
    for kind in MEMBERS.values()
}
CONSTANTS: dict[str, int] = {}
for _body in re.findall(r"enum \{([A-Z_0-9=, ]+)\}", _CODE):
    CONSTANTS |= _constants(_body)
FUNCTIONS = {
    name: 0 if given == "void" else given.count(",") + 1
    for name, given in re.findall(r"EXPORT [\w ]+?\b(\w+)\(([^)]*)\);", _CODE)
}


def address(array: np.ndarray) -> int:
    """Return the address of an array's memory, which is valid as long as the array exists.

    A call with few inputs takes about 50 microseconds and needs ten addresses. A cffi buffer takes
    a quarter of the time of ``array.ctypes``.
    """
    from_buffer, cast = _cffi()
    try:
        return int(cast("uintptr_t", from_buffer(array)))
    except ValueError:  # a buffer is contiguous
        return int(array.ctypes.data)


@cache
def _cffi() -> tuple[Any, Any]:
    from suitesparse_graphblas import ffi

    return ffi.from_buffer, ffi.cast


def word(value: Any) -> int:
    """Return what C receives: a number, or the address of an array, a block or a record."""
    if isinstance(value, np.ndarray):
        return address(value)
    if value is None:
        return 0
    found = getattr(value, "address", None)
    return int(value if found is None else found)


class Record:
    """Structures of one kind, one after the other.

    Parameters
    ----------
    kind : str
        Name of the structure in a header.
    **members : number, ndarray, Record, block or None
        Members of one structure; others are 0. Arrays are contiguous.

    Attributes
    ----------
    array : ndarray, shape (n,)
        The structures.
    address : int
    kept : dict
        What the members were set to.
    """

    def __init__(self, kind: str, **members: Any) -> None:
        self._hold(np.zeros(1, MEMBERS[kind]))
        self.set(**members)

    def _hold(self, array: np.ndarray) -> None:
        self.array, self.address, self.kept = array, address(array), dict[Any, Any]()
        self._words, self._numbers = (array.view(kind).data for kind in "qd")

    def set(self, **members: Any) -> None:
        """Set members of the first structure."""
        # A call with few inputs sets ten members; by their names, NumPy takes 0.5 us for each.
        for name, value in members.items():
            self.kept[name] = value
            at, is_real = _PLACES[self.array.dtype][name]
            if is_real:
                self._numbers[at] = value
            else:
                self._words[at] = value if type(value) is int else word(value)

    def hold(self, *kept: Any) -> None:
        """Keep objects as long as this record exists."""
        self.kept[None] = kept

    @classmethod
    def joined(cls, records: Sequence[Record | None]) -> Record:
        """Return copies of the structures one after the other; None is a layer of zeros."""
        none = np.zeros(1, MEMBERS["layer"])
        arrays = [none if record is None else record.array for record in records]
        found = cls.__new__(cls)
        # Of structured arrays, np.concatenate compares all members, which takes 30 us each.
        found._hold(np.concatenate([each.view(np.uint8) for each in arrays]).view(arrays[-1].dtype))
        found.hold(records)
        return found
