"""Shards: safetensors files of at most 64 MiB, written once and read lazily.

A sparse matrix consists of the arrays ``indptr``, ``indices`` and ``values`` of its rows, or of the
rows of its transpose. ``values`` has one item if all entries have the same value.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.sparse_rows import SparseRows, fault_of
from gbdnn.errors import FormatError, MissingFileError
from gbdnn.io.reading import foreign_errors, read_errors
from gbdnn.io.store.fingerprints import checksum, checksum_of_file
from gbdnn.io.writing import whole_file
from gbdnn.runtime.forks import new_lock
from gbdnn.runtime.optional import require

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = [
    "SHARD_BYTES",
    "SHARD_NAME",
    "ShardReader",
    "ShardWriter",
    "read_rows",
    "require_packages",
    "write_rows",
]

SHARD_NAME = re.compile(r"shard-[0-9a-f]{16}-\d{5,}\.safetensors")
SHARD_BYTES = 64 << 20
"""Maximum size of a shard, unless a single layer or part is larger."""


class ShardWriter:
    """Writes named arrays into new shards in an existing folder.

    ``shards`` lists name, size and checksum of each written shard. New shards get the permissions
    of an existing index.
    """

    def __init__(self, folder: Path) -> None:
        self.shards: list[dict[str, Any]] = []
        self.folder, self._token = folder, secrets.token_hex(8)
        self._arrays: dict[str, np.ndarray] = {}
        self._bytes = 0

    def add(self, name: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
        """Add arrays to one shard, and return their location."""
        size = sum(array.nbytes for array in arrays.values())
        if self._arrays and self._bytes + size > SHARD_BYTES:
            self.flush()
        for role, array in arrays.items():
            little = array.astype(array.dtype.newbyteorder("<"), copy=False)
            self._arrays[f"{name}.{role}"] = np.asarray(little, order="C")
        self._bytes += size
        return {"shard": len(self.shards), "name": name}

    def flush(self) -> None:
        """Write the arrays that were added since the last shard."""
        if not self._arrays:
            return
        path = self.folder / f"shard-{self._token}-{len(self.shards):05}.safetensors"
        index = self.folder / "index.json"
        # Not save_file, whose temporary files have names that other programs use, too.
        content = _safetensors("safetensors.numpy").save(self._arrays)
        with whole_file(path, replace=False) as file:
            if index.exists() and hasattr(os, "fchmod"):  # not on Windows
                os.fchmod(file.fileno(), stat.S_IMODE(index.stat().st_mode))
            file.write(content)
        digest = checksum(content)
        self.shards.append({"file": path.name, "bytes": len(content), "xxh3_64": digest})
        self._arrays, self._bytes = {}, 0

    def discard(self) -> None:
        """Remove the written shards."""
        for shard in self.shards:
            with suppress(OSError):
                (self.folder / shard["file"]).unlink(missing_ok=True)


class ShardReader:
    """Reads arrays from the shards of a store; `shards` are those of the `ShardWriter`.

    `verify` says whether to verify the checksum of each shard when it is first read.
    """

    def __init__(self, folder: Path, shards: list[dict[str, Any]], verify: bool) -> None:
        for shard in shards:
            if not SHARD_NAME.fullmatch(shard["file"]):  # may be outside the folder
                raise FormatError(f"{folder}: the index names {shard['file']!r}, not a shard")
        self.folder, self._shards, self._verify = folder, shards, verify
        self._opened: dict[int, Any] = {}
        self._opening = [new_lock() for _ in shards]

    def __reduce__(self) -> tuple[Any, ...]:
        return ShardReader, (self.folder, self._shards, self._verify)  # opens no file

    def arrays(self, entry: dict[str, Any], roles: Sequence[str], where: str) -> list[np.ndarray]:
        """Return arrays at the location `entry` from `ShardWriter.add`.

        Errors name the shard and `where`, a layer or part.
        """
        k: int = entry["shard"]
        if k >= len(self._shards):
            raise FormatError(f"{self.folder}: {where}: the index has no shard {k}")
        there = f"{self.folder / self._shards[k]['file']}: {where}"
        shard, name = self._open(k, there), entry["name"]
        with foreign_errors(there, "cannot be read"):
            arrays = [shard.get_tensor(f"{name}.{role}") for role in roles]
        return [array.astype(array.dtype.newbyteorder("="), copy=False) for array in arrays]

    def require_whole(self) -> None:
        """Raise an error if a shard is missing or damaged."""
        for k, shard in enumerate(self._shards):
            self._open(k, str(self.folder / shard["file"]))

    def _open(self, k: int, there: str) -> Any:
        """Return a memory-mapped shard."""
        shard = self._shards[k]
        path = self.folder / shard["file"]
        # At each read, because reading a mapped file beyond its end would end the process.
        size = _size(path, there)
        if size != shard["bytes"]:
            raise FormatError(f"{there}: the shard is damaged: {size} bytes, not {shard['bytes']}")
        with self._opening[k]:
            if k not in self._opened:
                with read_errors(there):
                    wrong = self._verify and checksum_of_file(path) != shard["xxh3_64"]
                if wrong:
                    raise FormatError(f"{there}: the shard is damaged: its checksum differs")
                with foreign_errors(there, "cannot be read"):
                    self._opened[k] = _safetensors("safetensors").safe_open(path, framework="np")
            return self._opened[k]


def write_rows(
    writer: ShardWriter, name: str, rows: SparseRows, **more: np.ndarray
) -> dict[str, Any]:
    """Write the rows of a sparse matrix and `more` arrays to one shard; return their location."""
    return writer.add(
        name,
        {
            "indptr": rows.indptr.astype(np.uint32 if rows.nvals < 2**32 else np.uint64),
            "indices": rows.columns.astype(np.uint32 if rows.ncols <= 2**32 else np.uint64),
            "values": rows.values[:1] if rows.is_iso else rows.values,
            **more,
        },
    )


def read_rows(
    shards: ShardReader, entry: dict[str, Any], shape: tuple[int, int], nvals: int, where: str
) -> SparseRows:
    """Return the rows of a sparse matrix after checks, because GraphBLAS trusts its arrays."""
    indptr, indices, values = shards.arrays(entry, ("indptr", "indices", "values"), where)
    nrows, ncols = shape
    if (len(indptr), len(indices)) != (nrows + 1, nvals) or len(values) not in (1, nvals):
        raise FormatError(
            f"{shards.folder}: {where}: the shard and the index differ in sizes of arrays"
        )
    if fault := fault_of(indptr, indices, ncols):
        raise FormatError(f"{shards.folder}: {where}: {fault}")
    if not np.isfinite(values).all() or not values.all():
        raise FormatError(f"{shards.folder}: {where}: a stored value is zero or not finite")
    return SparseRows(indptr.astype(np.uint64), indices.astype(np.uint64), values, ncols)


def _size(path: Path, there: str) -> int:
    with read_errors(there):
        try:
            return os.stat(path).st_size  # noqa: PTH116 -- called for each array
        except FileNotFoundError as err:
            raise MissingFileError(
                f"{there}: the shard is missing; if the store was saved again, load it again"
            ) from err


def require_packages() -> None:
    """Raise MissingPackageError if a package that stores need is missing."""
    _safetensors("safetensors")
    checksum(b"")


def _safetensors(module: str) -> Any:
    return require(module, "store", "stores need safetensors")
