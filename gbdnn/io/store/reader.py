"""Reading a store: arrays by name from memory-mapped shards, checked at each read."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.arguments import as_flag, as_path
from gbdnn.errors import FormatError, GbdnnError, MissingFileError, naming
from gbdnn.io.reading import foreign_errors
from gbdnn.io.store.index import INDEX, checksum, content_checksum, read_index
from gbdnn.io.store.schema import require_index
from gbdnn.io.store.writer import header_of, safetensors

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    T = TypeVar("T")

__all__ = ["Address", "Reader"]

_OPENING = Lock()  # one for all: readers pickle, and a shard is opened once


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
        self._shards = {
            shard["file"]: (shard["bytes"], shard["header_xxh3_64"])
            for shard in self.index["shards"]
        }
        self._opened: dict[str, Any] = {}

    @property
    def address(self) -> Address:
        """From where another process can open this store."""
        return Address(str(self.path), str(self.index["checksum"]), self._verify)

    def parsed(self, where: str, parse: Callable[[], T]) -> T:
        """Return ``parse()``, which reads the index; its errors become a FormatError."""
        try:
            return parse()
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
        tensor, file = place["tensors"][role], place["shard"]
        name, digest = tensor["name"], tensor["xxh3_64"]
        there = f"{self.path / file}: {where}: {role}"
        with foreign_errors(there, "cannot be read"), naming(there):
            try:
                found: np.ndarray = self._open(file).get_tensor(name)
            except FileNotFoundError as err:
                again = "if the store has been saved anew, load it again"
                raise MissingFileError(f"the shard is missing; {again}") from err
            if found.dtype != dtype or found.shape != (length,):
                raise FormatError(
                    f"is {found.dtype} of shape {found.shape}, not {np.dtype(dtype)} of shape"
                    f" {(length,)}"
                )
            if self._verify and checksum(found.view(np.uint8)) != digest:
                raise FormatError("is damaged: its bytes do not have the index's checksum")
            return found

    def _open(self, file: str) -> Any:
        """Return a memory-mapped shard; it stays open."""
        path, (size, digest) = os.path.join(self.path, file), self._shards[file]  # noqa: PTH118
        try:
            # At each read: reading past the end of a mapped file would end the process.
            there = os.stat(path)  # noqa: PTH116 -- often
        except FileNotFoundError:
            if file in self._opened:  # it lost its name, not its content
                return self._opened[file]
            raise
        if not stat.S_ISREG(there.st_mode):
            raise FormatError("the shard is no regular file")
        if there.st_size != size:
            raise FormatError(
                f"the shard has {there.st_size} bytes, not {size}: cut off, or written to"
            )
        with _OPENING:
            if file not in self._opened:
                if checksum(header_of(Path(path))) != digest:
                    raise FormatError("the shard's header is damaged")
                self._opened[file] = safetensors().safe_open(path, framework="np")
            return self._opened[file]

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_opened": {}}
