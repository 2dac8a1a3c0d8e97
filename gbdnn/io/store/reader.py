"""Reading a store: arrays by name from memory-mapped shards, checked at each read."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.errors import FormatError, GbdnnError, MissingFileError, naming
from gbdnn.io.store.index import INDEX, checksum, content_checksum, read_index
from gbdnn.io.store.writer import header_of, safetensors

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    T = TypeVar("T")

__all__ = ["Address", "Reader"]

_OPENING = Lock()  # one for all: readers pickle, and a shard is opened once
_FILE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*\.safetensors")


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
    index or one of a newer version, MissingFileError or FormatError is raised.
    """

    def __init__(self, path: str | os.PathLike[str], *, verify: bool = True) -> None:
        safetensors()
        self.path, self._verify = Path(path).absolute(), verify
        self.index = read_index(self.path)
        self._shards = self.parsed("shards", self._list_shards)
        self._opened: dict[str, Any] = {}

    @property
    def address(self) -> Address:
        """From where another process can open this store."""
        return Address(str(self.path), str(self.index["checksum"]), self._verify)

    def parsed(self, where: str, parse: Callable[[], T]) -> T:
        """Return ``parse()``, which reads the index; its exceptions become a FormatError."""
        try:
            return parse()
        except GbdnnError as err:
            raise FormatError(f"{self.path / INDEX}: {where}: {err}") from err
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as err:
            raise FormatError(
                f"{self.path / INDEX}: {where}: is not what the format says:"
                f" {type(err).__name__}: {err}"
            ) from err

    def array(
        self, place: dict[str, Any], role: str, dtype: Any, length: int, where: str
    ) -> np.ndarray:
        """Return the array `role` (``"indices_1"``) of the layer or part `where` (``"layer 3"``).

        `place` is its entry in the index, with ``shard`` and ``tensors``; dtype and length are the
        expected ones. A MissingFileError says that the shard is missing, a FormatError that shard
        or array differ from the index.
        """
        try:
            tensor = place["tensors"][role]
            file, name, digest = str(place["shard"]), str(tensor["name"]), str(tensor["xxh3_64"])
        except (LookupError, TypeError) as err:
            raise FormatError(f"{self.path / INDEX}: {where}: no place for its {role}") from err
        with naming(f"{self.path / file}: {where}: {role}"):
            try:
                found: np.ndarray = self._open(file).get_tensor(name)
            except GbdnnError:
                raise
            except FileNotFoundError as err:
                again = "if the store has been saved anew, load it again"
                raise MissingFileError(f"the shard is missing; {again}") from err
            except (OSError, ValueError, KeyError, safetensors().SafetensorError) as err:
                raise FormatError(f"cannot be read: {err}") from err
            if found.dtype != dtype or found.shape != (length,):
                raise FormatError(
                    f"is {found.dtype} of shape {found.shape}, not {np.dtype(dtype)} of shape"
                    f" {(length,)}"
                )
            if self._verify and checksum(found.view(np.uint8)) != digest:
                raise FormatError("is damaged: its bytes do not have the index's checksum")
            return found

    def _list_shards(self) -> dict[str, tuple[int, str]]:
        return {
            str(shard["file"]): (int(shard["bytes"]), str(shard["header_xxh3_64"]))
            for shard in self.index["shards"]
        }

    def _open(self, file: str) -> Any:
        """Return a memory-mapped shard; it stays open."""
        if file not in self._shards or not _FILE.fullmatch(file):
            raise FormatError("the index does not list this shard")
        path, (size, digest) = os.path.join(self.path, file), self._shards[file]  # noqa: PTH118
        try:
            # At each read: reading past the end of a mapped file would end the process.
            found = os.stat(path).st_size  # noqa: PTH116 -- often
        except FileNotFoundError:
            if file in self._opened:  # it lost its name, not its content
                return self._opened[file]
            raise
        if found != size:
            raise FormatError(f"the shard has {found} bytes, not {size}: cut off, or written to")
        with _OPENING:
            if file not in self._opened:
                if checksum(header_of(Path(path))) != digest:
                    raise FormatError("the shard's header is damaged")
                self._opened[file] = safetensors().safe_open(path, framework="np")
            return self._opened[file]

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_opened": {}}
