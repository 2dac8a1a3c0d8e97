"""A result that workers write part by part into the folder of a store.

    gbdnn-run.json                  hashes of inputs and options, and where the parts begin
    part-<run>-<start>-<stop>.json  the index of a finished part, whose shards are in the folder
    index.json                      written last: the index of all parts

A part is complete if its index and its shards exist with correct checksums. Another call computes
the missing parts. Names contain a hash of the run, because a worker of an interrupted call may
finish its part after another run has begun.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.errors import MissingFileError, OutputError
from gbdnn.io.files import output_errors
from gbdnn.io.reading import require_form
from gbdnn.io.store.features import PART, write_part_of
from gbdnn.io.store.fingerprints import checksum
from gbdnn.io.store.folder import (
    INDEX,
    PART_FORM,
    RUN,
    SHARD_FORM,
    Writer,
    read_json,
    write_json,
)  # fmt: skip
from gbdnn.io.store.shards import ShardReader, ShardWriter

if TYPE_CHECKING:
    import os

    import graphblas as gb
    import numpy as np

__all__ = ["PartWriter", "write_part"]


class PartWriter(Writer):
    """A context manager for the caller, which locks the folder and joins the parts.

    Parameters
    ----------
    path : path-like
        The store's folder.
    run : dict
        Content hashes and options that determine the result.
    starts : list of int
        First rows of the parts, and the number of rows. Also an attribute.
    batch : int, optional
        Requested size of parts. By default, an unfinished run keeps its parts.
    restart : bool
        Whether to discard a finished store or a different, unfinished run in the folder.

    Attributes
    ----------
    is_finished : bool
        Whether the folder contains the complete result of this run.

    Raises
    ------
    OutputError
        As for `Writer`, or the folder contains a different run or another store.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        run: dict[str, str],
        starts: list[int],
        *,
        batch: int | None = None,
        restart: bool = False,
    ) -> None:
        super().__init__(path, resumes=True)
        self._run, self._batch, self._restart = run, batch, restart
        self._key = checksum(json.dumps(run, sort_keys=True).encode())
        self.starts = starts
        self.is_finished = False

    def part(self, k: int) -> Path:
        """Return the path of the index of part `k`."""
        return self.folder / f"part-{self._key}-{self.starts[k]}-{self.starts[k + 1]}.json"

    def missing(self) -> list[int]:
        """Return the numbers of incomplete parts."""
        return [k for k in range(len(self.starts) - 1) if not self._is_whole(k)]

    def finish_parts(self, shape: tuple[int, int], dtype: np.dtype) -> None:
        """Join all parts to a store."""
        parts: list[dict[str, Any]] = []
        for k in range(len(self.starts) - 1):
            index = read_json(self.part(k))
            first = len(self.shards)
            parts += [{**part, "shard": first + part["shard"]} for part in index["parts"]]
            self.shards += index["shards"]
        content = {"shape": list(shape), "dtype": dtype.name, "parts": parts, "run": self._run}
        self.finish("features", content)
        self.is_finished = True

    def _begin(self) -> None:
        finished = _read(self.folder / INDEX, {})
        self.is_finished = bool(finished) and finished.get("run") == self._run
        self.is_finished = self.is_finished and not self._restart
        if self.is_finished:
            return
        form = {"run": dict, "starts": [int]}
        has_parts = any(self.folder.glob("part-*.json"))
        unfinished = _read(self.folder / RUN, form) if has_parts else {}
        if unfinished and self._continues(unfinished):
            return
        if (self.folder / INDEX).exists() and not self._restart:
            raise OutputError(
                f"{self.folder}: the folder contains a finished store"
                f"{self._difference(finished.get('run'))}; choose another folder or pass"
                " restart=True to replace it"
            )
        self._tidy()
        with output_errors(self.folder):
            write_json(self.folder / RUN, {"run": self._run, "starts": self.starts})

    def _continues(self, unfinished: dict[str, Any]) -> bool:
        """Continue an unfinished run; False, or an error, if it is a different one."""
        difference = self._difference(unfinished["run"])
        if not difference and self._batch is not None and unfinished["starts"] != self.starts:
            sizes = [starts[1] - starts[0] for starts in (unfinished["starts"], self.starts)]
            difference = f" (its parts have {sizes[0]:,} inputs, not {sizes[1]:,})"
        if difference and not self._restart:
            raise OutputError(
                f"{self.folder}: the folder contains a different, unfinished run{difference};"
                " choose another folder or pass restart=True to discard it"
            )
        if not difference:
            self.starts = unfinished["starts"]
        return not difference

    def _difference(self, other: dict[str, str] | None) -> str:
        """Describe how another run differs from this one, or return an empty string."""
        if other is None:
            return ""
        hashes = ("network", "features")
        found = [
            f"different {name}" if name in hashes else f"{name} {other.get(name)}, not {mine}"
            for name, mine in self._run.items()
            if other.get(name) != mine
        ]
        return f" ({'; '.join(found)})" if found else ""

    def _end(self) -> None:
        """Remove temporary files, but keep the parts of an unfinished run."""
        if self.is_finished or not any(self.folder.glob("part-*.json")):
            self._tidy()

    def _is_whole(self, k: int) -> bool:
        try:
            index = read_json(self.part(k))
            require_form(index, {"shards": [SHARD_FORM], "parts": [PART_FORM]}, "part")
            ShardReader(self.folder, index["shards"], verify=True).require_whole()
        except (MissingFileError, ValueError):
            return False
        return True


def write_part(path: str | os.PathLike[str], Y: gb.Matrix) -> None:
    """Write a part of a result: its shards, then its index at `path`."""
    path = Path(path)
    with output_errors(path):
        writer = ShardWriter(path.parent)
        try:
            rows = SparseRows.from_matrix(Y)
            parts = [write_part_of(writer, n, some) for n, some in enumerate(rows.parts(PART))]
            writer.flush()
            write_json(path, {"shards": writer.shards, "parts": parts})
        except BaseException:
            if not path.exists():  # after the index was written, the part is complete
                writer.discard()
            raise


def _read(path: Path, form: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a JSON file, or an empty dict if it is missing or invalid."""
    try:
        found = read_json(path)
        require_form(found, form, path.name)
    except (MissingFileError, ValueError):
        return {}
    return found
