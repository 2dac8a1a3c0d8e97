"""Reading a store: arrays by name from memory-mapped shards, checked at each read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.checks import as_flag, as_path
from gbdnn.errors import FormatError, GbdnnError, ReadError, naming
from gbdnn.io.reading import foreign_errors
from gbdnn.io.store.index import INDEX, content_checksum, read_index
from gbdnn.io.store.schema import require_index
from gbdnn.io.store.shards import Shards, safetensors

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from typing import TypeVar

    T = TypeVar("T")

__all__ = ["Address", "Reader"]


@dataclass(frozen=True, slots=True)
class Address:
    """What another process needs to open the same store: its path, and its index's checksum."""

    path: str
    checksum: str
    verify: bool

    def fingerprint(self) -> str:
        """Return a checksum of what the store holds; errors as for `reader`."""
        return content_checksum(self.reader().index)

    def reader(self) -> Reader:
        """Open the store; a FormatError says that it is no longer the same one."""
        reader = Reader(self.path, verify=self.verify)
        if reader.address != self:
            raise FormatError(
                f"{self.path}: has been saved anew since it was opened: open or load it again"
            )
        return reader


class Reader:
    """An opened store: the fields of its index, and its arrays.

    If `verify`, an array's checksum is verified at each read. Without a store, or with a damaged
    index or one of a newer version, MissingFileError or FormatError is raised. `index` has the
    fields of a store that is not complete.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        verify: bool = True,
        index: dict[str, Any] | None = None,
    ) -> None:
        safetensors()
        self.path, self._verify = as_path(path).absolute(), as_flag(verify, "verify")
        self.index = read_index(self.path) if index is None else index
        require_index(self.index, self.path / INDEX)
        self._shards = Shards(self.path, self.index["shards"], verify=self._verify)

    @property
    def address(self) -> Address:
        """From where another process can open this store."""
        return Address(str(self.path), str(self.index["checksum"]), self._verify)

    def parsed(self, where: str, parse: Callable[[], T]) -> T:
        """Return ``parse()``, which reads the index; what is wrong in it is a FormatError."""
        try:
            return parse()
        except (ReadError, MemoryError):
            raise
        except GbdnnError as err:
            raise FormatError(f"{self.path / INDEX}: {where}: {err}") from err

    def array(
        self, place: dict[str, Any], role: str, dtype: Any, length: int, where: str
    ) -> np.ndarray:
        """Return the array `role` (``"indices_1"``) of the layer or part `where` (``"layer 3"``).

        `place` is its entry in the index, with ``shard`` and ``tensors``; dtype and length are the
        expected ones. A MissingFileError says that the shard is missing, a FormatError that shard
        or array differ from the index.
        """
        file = place["shard"]
        there = f"{self.path / file}: {where}: {role}"
        with foreign_errors(there, "cannot be read"), naming(there):
            found = self._shards.array(file, place["tensors"][role])
            if found.dtype != dtype or found.shape != (length,):
                raise FormatError(
                    f"is {found.dtype} of shape {found.shape}, not {np.dtype(dtype)} of shape"
                    f" {(length,)}"
                )
            return found

    def require_shards(self) -> None:
        """Raise the error of a shard that is missing, or has another size or header."""
        with foreign_errors(self.path, "cannot be read"), naming(self.path):
            self._shards.require()
