"""Features in a store: parts of consecutive rows, read one by one."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.checks import as_dtype, floating, require_callable, whole_number
from gbdnn.arrays.matrices import as_features, as_rows, dtype_of, shape_of
from gbdnn.arrays.sources import is_source
from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.errors import ArgumentError, ArgumentTypeError, FormatError, ShapeError
from gbdnn.io.reading import valid_fields
from gbdnn.io.store.folder import INDEX, Reader, finish, writing
from gbdnn.io.store.shards import read_rows, write_rows
from gbdnn.runtime.first_use import shown
from gbdnn.runtime.forks import new_lock

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator

    import graphblas as gb

    from gbdnn.io.store.folder import Address
    from gbdnn.io.store.shards import ShardWriter

PART = 4 << 20
"""Maximum number of entries and rows of a part, unless a single row has more entries."""


def write_batches(
    batches: Iterable[Any],
    path: str | os.PathLike[str],
    *,
    dtype: np.dtype | None = None,
    replace: bool = False,
    progress: Callable[[int, int | None], object] | None = None,
    name: str = "batch {}",
) -> None:
    """Write matrices of features into a store, batch by batch; `name` is for errors."""
    require_callable(progress, "progress")
    width, kind = None, dtype
    count = len(batches) if isinstance(batches, list | tuple) else None
    parts: list[dict[str, Any]] = []
    pending: list[SparseRows] = []
    rows_pending = values_pending = 0
    with writing(path, replace=replace) as writer:

        def flush() -> None:
            if pending:
                parts.append(write_part_of(writer, len(parts), SparseRows.joined(pending)))
                pending.clear()

        for n, batch in enumerate(batches):
            what = name.format(n)
            batch = batch.matrix() if is_source(batch) else as_features(batch, what)
            columns = shape_of(batch, what)[1]
            width = columns if width is None else width
            if columns != width:
                raise ShapeError(f"{what} has {columns} columns but the features have {width}")
            own = floating(dtype_of(batch), what)
            kind = own if kind is None else kind
            if dtype is None and own != kind:
                raise ArgumentError(f"{what} is {own} but the first is {kind}; pass dtype=")
            for rows in as_rows(batch, what=what, dtype=kind).parts(PART):
                if max(rows_pending + rows.nrows, values_pending + rows.nvals) > PART:
                    flush()
                    rows_pending = values_pending = 0
                pending.append(rows)
                rows_pending += rows.nrows
                values_pending += rows.nvals
            if progress is not None:
                progress(n + 1, count)
        flush()
        if width is None or kind is None:
            raise ArgumentError("there are no features; pass at least one batch")
        shape = [sum(part["rows"] for part in parts), width]
        finish(writer, "features", {"shape": shape, "dtype": kind.name, "parts": parts})


def write_part_of(writer: ShardWriter, k: int, rows: SparseRows) -> dict[str, Any]:
    """Write part `k` of features, and return its entry in the index."""
    told = {"rows": rows.nrows, "nvals": rows.nvals, "largest": rows.largest}
    return {**write_rows(writer, f"part.{k}", rows), **told}


def open_features(path: str | os.PathLike[str], *, verify: bool = True) -> StoredFeatures:
    """Open a store of features, which may be larger than memory.

    Parameters
    ----------
    path : path-like
        The store's folder.
    verify : bool, default True
        As for `gbdnn.load`.

    Returns
    -------
    StoredFeatures
        Features for `infer`, `train` and the functions of ``gbdnn.graph``, which read rows when
        they need them. Attributes: ``shape`` (inputs, neurons), ``nrows``, ``ncols``, ``dtype``,
        ``nvals``, and ``largest``, the largest absolute value. ``X[start:stop]`` is a range of rows
        and ``X.batches(inputs)`` yields ranges of `inputs` rows, also unread; ``X.matrix()`` reads
        all rows into a Matrix. The last part that was read stays in memory. Reading is thread-safe.

    Raises
    ------
    MissingFileError, FormatError, MissingPackageError
        As for `gbdnn.load`, or the store does not contain features. A damaged part raises
        FormatError when it is read.

    Examples
    --------
    >>> import pathlib, tempfile, numpy as np, gbdnn
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> gbdnn.io.write_features(np.eye(4, 3), folder / "X")
    >>> X = gbdnn.io.open_features(folder / "X")  # reads only the index
    >>> X.shape, X.dtype.name, X.nvals
    ((4, 3), 'float64', 3)
    >>> gbdnn.categories(gbdnn.infer([np.eye(3)], X))
    array([0, 1, 2])
    >>> [rows.matrix().shape for rows in X.batches(3)]
    [(3, 3), (1, 3)]
    """
    return StoredFeatures(Reader(path, verify=verify))


class StoredFeatures:
    """Features in a store, as `open_features` describes them."""

    dense_rows = None  # see `gbdnn.arrays.sources.RowSource`

    def __init__(self, reader: Reader) -> None:
        reader.require("features")
        self._reader = reader
        with valid_fields(reader.path / INDEX):
            self._parse()
        self._last: tuple[int, SparseRows] | None = None
        self._lock = new_lock()

    def _parse(self) -> None:
        """Set the attributes from the index."""
        nrows, ncols = self._reader.index["shape"]
        self.shape: tuple[int, int] = (nrows, ncols)
        self.nrows, self.ncols = nrows, ncols
        self.dtype = as_dtype(self._reader.index["dtype"])
        self._parts: list[dict[str, Any]] = self._reader.index["parts"]
        self._starts = [0, *accumulate(part["rows"] for part in self._parts)]
        if self._starts[-1] != nrows:
            raise ValueError(f"the parts have {self._starts[-1]} rows, not {nrows}")
        self.nvals = sum(part["nvals"] for part in self._parts)
        self.largest = max((part["largest"] for part in self._parts), default=0.0)

    def __getstate__(self) -> dict[str, Any]:
        return {name: x for name, x in vars(self).items() if name not in ("_last", "_lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._last, self._lock = None, new_lock()

    def __repr__(self) -> str:
        nrows, ncols = self.shape
        return f"StoredFeatures({nrows} x {ncols}, {self.nvals} values, {self.dtype})"

    @property
    def source(self) -> Address:
        """The information with which another process can open these features."""
        return self._reader.address

    def __getitem__(self, rows: slice) -> StoredRows:
        """Return ``X[start:stop]`` lazily; `infer` accepts it like a matrix.

        Its ``matrix()`` reads the rows. Workers read them from the store.
        """
        if not isinstance(rows, slice) or rows.step not in (None, 1):
            raise ArgumentTypeError(
                f"index stored features with X[start:stop], not X[{shown(rows)}]"
            )
        start = 0 if rows.start is None else rows.start
        return StoredRows(self, *self._range(start, rows.stop))

    def sparse_rows(self, start: int, stop: int) -> SparseRows:
        """Return rows `start` to `stop - 1`, with these ids; errors as for `matrix`."""
        start, stop = self._range(start, stop)
        first = bisect_right(self._starts, start) - 1
        covered = [i for i in range(first, len(self._parts)) if self._starts[i] < stop]
        if len(covered) == 1:
            rows = self._cut(first, start, stop)
        else:
            # The sizes of parts between the first and the last are in the index.
            ends = {i: self._cut(i, start, stop) for i in (*covered[:1], *covered[-1:])}
            nvals = sum(ends[i].nvals if i in ends else self._parts[i]["nvals"] for i in covered)
            blocks = (ends[i] if i in ends else self._read(i) for i in covered)
            rows = SparseRows.collected(blocks, stop - start, nvals, self.ncols, self.dtype)
        return rows.with_ids(np.arange(start, stop))

    def batches(self, inputs: int) -> Iterator[StoredRows]:
        """Yield ``X[start:stop]`` of `inputs` rows each; the last range may be shorter."""
        step = whole_number(inputs, "inputs", least=1)
        return (self[start : start + step] for start in range(0, self.nrows, step))

    def matrix(self) -> gb.Matrix:
        """Read all rows into memory."""
        return self[:].matrix()

    def _range(self, start: int, stop: int | None) -> tuple[int, int]:
        """Return the bounds of a slice as ``start <= stop``."""
        whole_number(start, "start")
        if stop is not None:
            whole_number(stop, "stop")
        start, stop, _ = slice(start, stop).indices(self.nrows)
        return start, max(start, stop)

    def _cut(self, i: int, start: int, stop: int) -> SparseRows:
        """Return the rows of part `i` in ``start:stop``, and cache the part."""
        with self._lock:  # other threads wait instead of reading the part again
            last = self._last
            part = last[1] if last is not None and last[0] == i else self._read(i)
            self._last = i, part
        before = self._starts[i]
        return part.sparse_rows(max(start - before, 0), min(stop - before, part.nrows))

    def _read(self, i: int) -> SparseRows:
        part, where = self._parts[i], f"part {i}"
        shape = part["rows"], self.ncols
        rows = read_rows(self._reader.shards, part, shape, part["nvals"], where)
        if rows.dtype != self.dtype or not rows.largest <= part["largest"]:
            raise FormatError(f"{self._reader.path}: {where}: the shard and the index differ")
        return rows


class StoredRows:
    """The rows ``X[start:stop]`` of stored features, read on demand.

    ``nvals`` is the estimated number of stored values, assuming equally many per row.
    """

    dense_rows = None

    def __init__(self, features: StoredFeatures, start: int, stop: int) -> None:
        self.features, self.start, self.stop = features, start, stop
        self.nrows, self.ncols, self.dtype = stop - start, features.ncols, features.dtype
        self.nvals = -(-features.nvals * self.nrows // max(1, features.nrows))
        self.largest, self.source = features.largest, features.source

    def sparse_rows(self, start: int, stop: int) -> SparseRows:
        """Return rows `start` to `stop - 1` of these rows, with these ids."""
        rows = self.features.sparse_rows(self.start + start, self.start + stop)
        return rows.with_ids(np.arange(start, stop))

    def matrix(self) -> gb.Matrix:
        """Read these rows into memory; errors as for `StoredFeatures.matrix`."""
        return self.sparse_rows(0, self.nrows).matrix()
