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
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.errors import MissingFileError, OutputError
from gbdnn.io.store.features import PART, write_part_of
from gbdnn.io.store.fingerprints import checksum
from gbdnn.io.store.folder import (
    INDEX,
    RUN,
    finish,
    read_json,
    tidy,
    write_json,
    writing,
)  # fmt: skip
from gbdnn.io.store.shards import ShardReader, ShardWriter
from gbdnn.io.writing import output_errors

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    import graphblas as gb
    import numpy as np

__all__ = ["Parts", "write_part", "writing_parts"]

_HASHES = ("network", "features")


class Parts(NamedTuple):
    """The parts of a run in the folder of a store that is being written."""

    writer: ShardWriter
    run: dict[str, str]
    starts: list[int]
    """First rows of the parts, and the number of rows."""

    is_finished: bool
    """Whether the store is the complete result of this run."""

    def path(self, k: int) -> Path:
        """Return the path of the index of part `k`."""
        key = checksum(json.dumps(self.run, sort_keys=True).encode())
        return self.writer.folder / f"part-{key}-{self.starts[k]}-{self.starts[k + 1]}.json"

    def missing(self) -> list[int]:
        """Return the numbers of incomplete parts."""
        return [k for k in range(len(self.starts) - 1) if not _is_whole(self.path(k))]

    def finish(self, shape: tuple[int, int], dtype: np.dtype) -> None:
        """Join all parts to a store."""
        parts: list[dict[str, Any]] = []
        shards = self.writer.shards
        for k in range(len(self.starts) - 1):
            index = read_json(self.path(k))
            parts += [{**part, "shard": len(shards) + part["shard"]} for part in index["parts"]]
            shards += index["shards"]
        content = {"shape": list(shape), "dtype": dtype.name, "parts": parts, "run": self.run}
        finish(self.writer, "features", content)
        _remove_run(self.writer.folder)


@contextmanager
def writing_parts(
    path: str | os.PathLike[str],
    run: dict[str, str],
    starts: list[int],
    *,
    batch: int | None = None,
    replace: bool = False,
) -> Iterator[Parts]:
    """Lock the folder of a store, and begin or continue a run.

    Parameters
    ----------
    path : path-like
        The store's folder.
    run : dict
        Content hashes and options that determine the result.
    starts : list of int
        First rows of the parts of a new run, and the number of rows.
    batch : int, optional
        Requested size of parts. By default, an unfinished run keeps its parts.
    replace : bool
        Whether to discard a finished store or a different, unfinished run in the folder.

    Raises
    ------
    OutputError
        As for `writing`, or the folder contains a different run or another store.
    """
    with writing(path, replace=True, resumes=True) as writer:
        folder, begun = writer.folder, None
        finished = _read(folder / INDEX)
        is_finished = finished.get("run") == run and not replace
        if not is_finished:
            begun = _begun(folder, run, starts, batch, replace)
        if begun is None:
            if (folder / INDEX).exists() and not is_finished and not replace:
                raise OutputError(
                    f"{folder}: the folder contains a finished store"
                    f"{_difference(run, finished.get('run') or run)}; choose another folder or pass"
                    " replace=True to replace it"
                )
            _remove_run(folder)  # first, so that its parts are not reused
            tidy(folder)
            if not is_finished:
                write_json(folder / RUN, {"run": run, "starts": starts})
        yield Parts(writer, run, begun or starts, is_finished)


def _begun(
    folder: Path, run: dict[str, str], starts: list[int], batch: int | None, replace: bool
) -> list[int] | None:
    """Return where the parts of the unfinished run begin; None if there is none to continue."""
    has_parts = any(folder.glob("part-*.json"))
    unfinished = _read(folder / RUN) if has_parts else {}
    begun: list[int] = unfinished.get("starts", [])
    difference = _difference(run, unfinished.get("run", run))
    if not difference and begun != sorted({0, *begun, starts[-1]}):  # none, or damaged
        return None
    if not difference and batch is not None and begun != starts:
        sizes = [begin[1] - begin[0] for begin in (begun, starts)]
        difference = f" (its parts have {sizes[0]:,} inputs, not {sizes[1]:,})"
    if difference and not replace:
        raise OutputError(
            f"{folder}: the folder contains a different, unfinished run{difference}; choose another"
            " folder or pass replace=True to discard it"
        )
    return None if difference else begun


def _remove_run(folder: Path) -> None:
    with output_errors(folder):
        (folder / RUN).unlink(missing_ok=True)


def _difference(run: dict[str, str], other: dict[str, str]) -> str:
    """Describe how another run differs from this one, or return an empty string."""
    differences = [
        f"different {name}: other values, dtype or kind of matrix"
        if name in _HASHES
        else f"{name} {other.get(name)}, not {mine}"
        for name, mine in run.items()
        if other.get(name) != mine
    ]
    return f" ({'; '.join(differences)})" if differences else ""


def _is_whole(path: Path) -> bool:
    index = _read(path)
    try:
        ShardReader(path.parent, index.get("shards", []), verify=True).require_whole()
    except (MissingFileError, ValueError):
        return False
    return bool(index) and all(part["shard"] < len(index["shards"]) for part in index["parts"])


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


def _read(path: Path) -> dict[str, Any]:
    """Return the content of a JSON file, or an empty dict if it is missing or invalid."""
    try:
        return read_json(path)
    except (MissingFileError, ValueError):
        return {}
