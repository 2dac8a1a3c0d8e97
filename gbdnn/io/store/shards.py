"""Shards: files of named arrays, in the format of safetensors.

They are read by the package, memory-mapped, and written here: through the descriptor of a file that
is new, so that nothing is written to what another user may have put in its place, and without a
copy of the arrays.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.errors import FormatError, MissingFileError, ReadError
from gbdnn.io.store.fingerprints import checksum
from gbdnn.runtime.optional import require

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Shards", "header_of", "safetensors", "write_shard"]

_OPENING = Lock()  # one for all: readers pickle, and a shard is opened once


class Shards:
    """The arrays of some shards in a folder.

    An error says that a shard is missing (MissingFileError), that it differs from what is said of
    it (FormatError, SafetensorError), or that the system does not let it be read (an OSError).

    Parameters
    ----------
    folder : Path
        Where they are.
    shards : sequence of dict
        What an index says of them: ``file``, ``bytes``, ``header_xxh3_64``.
    verify : bool
        Whether an array's checksum is compared at each read.
    """

    def __init__(self, folder: Path, shards: Sequence[dict[str, Any]], *, verify: bool) -> None:
        self._folder, self._verify = folder, verify
        self._told = {shard["file"]: (shard["bytes"], shard["header_xxh3_64"]) for shard in shards}
        self._opened: dict[str, Any] = {}

    def array(self, file: str, tensor: dict[str, Any]) -> np.ndarray:
        """Return the array that an index calls `tensor`: ``name``, ``xxh3_64``."""
        found: np.ndarray = self._open(file).get_tensor(tensor["name"])
        if self._verify and checksum(found.view(np.uint8)) != tensor["xxh3_64"]:
            raise FormatError("is damaged: its bytes do not have the index's checksum")
        return found

    def require(self) -> None:
        """Raise the error of a shard that is missing, or has another size or header."""
        for file in self._told:
            self._open(file)

    def _open(self, file: str) -> Any:
        """Return a memory-mapped shard; it stays open."""
        try:
            return self._mapped(os.path.join(self._folder, file), file)  # noqa: PTH118 -- often
        except FileNotFoundError as err:
            if file in self._opened:  # it lost its name, not its content
                return self._opened[file]
            again = "if the store has been saved anew, load it again"
            raise MissingFileError(f"the shard is missing; {again}") from err

    def _mapped(self, path: str, file: str) -> Any:
        size, digest = self._told[file]
        # At each read: reading past the end of a mapped file would end the process.
        there = os.stat(path)  # noqa: PTH116 -- often
        if not stat.S_ISREG(there.st_mode):
            raise FormatError("the shard is not a regular file")
        if there.st_size != size:
            raise FormatError(
                f"the shard has {there.st_size} bytes, not {size}: cut off, or written to"
            )
        with _OPENING:
            if file not in self._opened:
                if checksum(header_of(Path(path))) != digest:
                    raise FormatError("the shard's header is damaged")
                self._opened[file] = _opened(path)
            return self._opened[file]

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_opened": {}}


def _opened(path: str) -> Any:
    try:
        return safetensors().safe_open(path, framework="np")
    except OSError as err:  # of no number; whatever it is, the package says that there is no file
        os.close(os.open(path, os.O_RDONLY))
        raise ReadError(f"cannot be mapped into memory: {err}") from err


def write_shard(
    path: Path, tensors: dict[str, np.ndarray], old: os.stat_result | None
) -> tuple[bytes, int]:
    """Write a new file of contiguous arrays, to the disk; return its header and its size.

    With the permissions of another file if `old` is given.
    """
    # The largest items first: each array begins at a multiple of its items' size.
    names = sorted(tensors, key=lambda name: (-tensors[name].itemsize, name))
    described, size = {}, 0
    for name in names:
        array = tensors[name]
        start, size = size, size + array.nbytes
        described[name] = {
            "dtype": f"{array.dtype.kind.upper()}{8 * array.itemsize}",
            "shape": list(array.shape),
            "data_offsets": [start, size],
        }
    text = json.dumps(described, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % 8)
    header = len(text).to_bytes(8, "little") + text
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with os.fdopen(os.open(path, flags, 0o666 if old is None else 0o600), "wb") as file:
        file.write(header)
        for name in names:
            file.write(tensors[name].data)
        file.flush()
        if old is not None:
            os.fchmod(file.fileno(), stat.S_IMODE(old.st_mode))
        os.fsync(file.fileno())
    return header, len(header) + size


def header_of(path: Path) -> bytes:
    """Return the first bytes of a shard: its header's length, and the header."""
    with path.open("rb") as file:
        length = file.read(8)
        # A damaged length may exceed the file's.
        return length + file.read(min(int.from_bytes(length, "little"), path.stat().st_size))


def safetensors() -> Any:
    """Return the package safetensors, or raise MissingPackageError."""
    return require("safetensors", "store", "a store has shards of safetensors")
