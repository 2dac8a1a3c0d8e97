"""A compiled run: inputs through all layers of the fused kernel, on threads that need no Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gbdnn.arrays.matrices import is_graphblas
from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.kernels import costs
from gbdnn.kernels.blocks import AlignedBlock, scratch
from gbdnn.kernels.compiled.graphblas import contexts, handle, raise_error, with_graphblas
from gbdnn.kernels.compiled.loading import required
from gbdnn.kernels.compiled.record import Record, constant
from gbdnn.kernels.overflow import non_finite
from gbdnn.kernels.together import in_slices
from gbdnn.runtime.first_use import complete

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import graphblas as gb

    from gbdnn.kernels.fused_chain import FusedChain
    from gbdnn.model.layer_info import LayerInfo

__all__ = ["CompiledRun", "Piece", "factors", "members_of"]

SLICE = 30_000_000  # ns of a compiled call, which cannot be interrupted
SHARED = 64  # most inputs whose layers are divided among threads

_OF_BLOCKS = "counts", "kept", "unread", "flagged", "repeated", "next", "current", "finished"

_LOG = [constant(name) for name in ("BEFORE", "AFTER", "READING", "COMPUTING", "REST")]


class Piece(NamedTuple):
    """What the log says of the pieces of a phase, or of a merge, which has no layers.

    Attributes
    ----------
    layer : int
        First layer.
    counts : ndarray of int64, shape (pieces, layers, 5)
        As for `gbdnn.engine.stats.layer_stats`.
    before, left, reading, computing, rest : ndarray of int64, shape (pieces,)
        Inputs before and after the layers, and ns.
    """

    layer: int
    counts: np.ndarray
    before: np.ndarray
    left: np.ndarray
    reading: np.ndarray
    computing: np.ndarray
    rest: np.ndarray


class CompiledRun(Record):
    """A ``struct run`` (see ``compiled/run.c``).

    Parameters
    ----------
    dtype : numpy.dtype
    sizes : sequence of int
        Neurons before each layer, and after the last one.
    stops : sequence of int
        Layers before which inputs may wait: 0, ..., and the number of layers.
    width, blocks : int
        Inputs of a block, and number of blocks: more than one per thread.
    threads : int
    leaving : ndarray, optional
        For each stop the density of activations below which blocks may leave.
    parents, multiplicity : ndarray of int64, shape (inputs,), optional
        Of each input, the one that represents it, and how many inputs it represents; to merge.
    always : bool, default False
        Whether to merge even if few inputs are equal.
    """

    def __init__(
        self, dtype: np.dtype, sizes: Sequence[int], stops: Sequence[int], *, width: int,
        blocks: int, threads: int, leaving: np.ndarray | None = None,
        parents: np.ndarray | None = None, multiplicity: np.ndarray | None = None,
        always: bool = False,
    ) -> None:  # fmt: skip
        self.threads, self.width, self._stops = threads, width, list(stops)
        neurons, slots, windows = max(sizes), blocks * width, len(stops) - 1
        self._memory = AlignedBlock(blocks * neurons, width, dtype)
        self._state = np.zeros((threads, 8), np.int64)
        self._state[:, 0], self._state[:, 1] = np.arange(blocks - threads, blocks), -1
        workers = Record("worker", dtype, threads)
        workers.set_each(
            Z=self._state, pool=self._state[:, 1:], results=self._state[:, 2:],
            scratch=[scratch(self._memory.stride) for _ in range(threads)],
        )  # fmt: skip
        self.counters = np.zeros(constant("COUNTERS"), np.int64)
        self.waiting = np.zeros(windows + 1, np.int64)
        self._heads, unused = np.full(windows + 1, -1), np.arange(blocks)[::-1].copy()
        unused[: blocks - threads] = unused[threads:].copy()
        arrays: dict[str, Any] = {name: np.empty(blocks, np.int64) for name in _OF_BLOCKS}
        if parents is not None:
            size = 1 << (2 * slots).bit_length()
            arrays |= {
                "keep": np.empty(slots, np.int32), "repeats": np.empty(slots, np.int32),
                "marks": np.empty(slots, np.uint64), "leaders": np.empty(slots, np.int64),
                "differs": np.empty(slots, np.uint8), "table": np.zeros(size, np.int64),
                "table_size": size, "factors": factors(neurons), "parents": parents,
                "merges": 1 + always,
            }  # fmt: skip
        if windows > 1:
            arrays |= {
                "pieces": np.empty((2 * blocks, 3), np.int64), "most_shared": min(SHARED, width),
                "alive": np.zeros((threads, SHARED), np.int64),
                "sharing": np.array([costs.sharing_work(n) for n in range(2, threads + 2)]),
                "leaving": np.zeros(windows + 1) if leaving is None else leaving,
            }  # fmt: skip
        super().__init__(
            "run", dtype, sizes=np.array(sizes, np.int64), stops=np.array(stops, np.int64),
            windows=windows, neurons=neurons, width=width, stride=self._memory.stride,
            blocks=blocks, threads=threads, memory=self._memory.whole,
            numbers=np.empty(slots, np.int64), unused=unused, unused_count=blocks - threads,
            heads=self._heads, waiting=self.waiting, multiplicity=multiplicity,
            workers=workers, counters=self.counters, slice=SLICE, **arrays,
        )  # fmt: skip
        self.begin()

    def __getitem__(self, name: str) -> Any:
        """Return a member, which is a number."""
        return getattr(self.first, name)

    # What the run reads and writes

    def load(
        self, chain: FusedChain, unchecked: FusedChain | None = None, largest: float = 0
    ) -> None:
        """Take the layers of a chain; those without checks for features up to `largest`."""
        bits = np.array([largest, np.inf], self.dtype).view(f"i{self.dtype.itemsize}").tolist()
        self.set(
            plan=(unchecked or chain).plan, checked=chain.plan, loaded=chain.first,
            loaded_end=chain.stop, largest=bits[0], infinite=bits[1],
            positions=chain.position(chain.first) if chain.first else None,
        )  # fmt: skip

    def read(
        self, parts: Sequence[Any], first: int, last: int, part: int, step: int,
        *, layer: int = 0, ids: np.ndarray | None = None, position: np.ndarray | None = None,
        more: bool = False,
    ) -> None:  # fmt: skip
        """Take rows `first` to `last` (exclusive), in parts of `part` rows, `step` per piece.

        A part is `SparseRows`, an array, or a ``graphblas.Matrix``: all of it, from row 0 on.
        They are before layer `layer`; `position` is the order of its neurons. Without `ids`, those
        are the numbers of the rows. `more` says that further ones follow.
        """
        if is_graphblas(parts[0]):
            with_graphblas(self.dtype)
            self.set(contexts=contexts(1))
        place = next(k for k, stop in enumerate(self._stops) if stop > layer)
        self._parts = parts  # a matrix, whose address is not that of an array
        records = [Record("features", self.dtype, **members_of(x, self.dtype)) for x in parts]
        self.set(
            parts=Record.joined(records), row_ids=ids,
            read_positions=position, first_row=first, next_row=first, last_row=last,
            part_rows=part, step=step, more=int(more), read_layer=layer, read_place=place,
        )  # fmt: skip

    def watch(self, multiplicity: np.ndarray | None, sizes: int = 1 << 16) -> None:
        """Write a log, with all counters if `multiplicity` is given."""
        log, census = np.zeros(sizes, np.int64), int(multiplicity is not None)
        self.set(log=log, log_size=len(log), census=census)
        if multiplicity is not None:
            self.set(multiplicity=multiplicity)
        self._seen = 0

    def begin(self) -> None:
        """Begin another run like the last one, which is complete."""
        self.counters[constant("STATUS")] = constant("READ")
        self._state[:, 2:] = 0, 0, 0, -1, 0, 0
        self.set(is_told=1)

    def advance(self, limit: float, between: Callable[[], object]) -> int:
        """Compute until something is needed, or all windows up to layer `limit`; return the status.

        ``between()`` is called every 30 ms.
        """
        self.set(limit=int(min(limit, 1 << 62)))
        status = constant("LOG")
        while status == constant("LOG"):
            status = in_slices(self, self.threads, self.dtype, between)
            if status == constant("LOG"):
                size = max(2 * int(self["log_needed"]), int(self["log_size"]))
                self.set(log=np.zeros(size, np.int64), log_size=size)
                self.counters[constant("LOGGED")] = self._seen = 0
        return status

    # What it says

    def log(self) -> Iterator[Piece]:
        """Yield what was computed since the last call, if anybody watches."""
        log, end = self.kept.get("log"), int(self.counters[constant("LOGGED")])
        head = constant("RECORD")
        while log is not None and self._seen < end and log[self._seen]:
            length, layer = log[self._seen : self._seen + 2].tolist()
            rows = log[self._seen : self._seen + (end - self._seen) // length * length]
            rows = rows.reshape(-1, length)
            others = np.flatnonzero((rows[:, 0] != length) | (rows[:, 1] != layer))
            rows = rows[: others[0]] if len(others) else rows
            self._seen += rows.size
            yield Piece(layer, rows[:, head:].reshape(len(rows), -1, 5), *rows[:, _LOG].T)

    @property
    def entries(self) -> int:
        """Number of entries of a dense answer."""
        return sum(self._state[:, 3].tolist())

    @property
    def regrouping(self) -> float:
        """Seconds of finding equal inputs, over all threads, in a run with a log."""
        return 1e-9 * sum(self._state[:, 4].tolist())

    def raise_fault(self, source: Any, infos: Sequence[LayerInfo]) -> None:
        """Raise the error for which the run has ended, with rows of a source."""
        layer, row = int(self["faulty_layer"]), int(self["faulty_row"])
        if layer == -2:
            raise_error(row)
        if layer == -1:
            source.require_finite(row, row + int(self["step"]))
        raise non_finite(layer, infos[layer])

    def answer(self, ncols: int, *, of_blocks: bool = False) -> SparseRows:
        """Return the rows of all inputs, or of the current blocks, which the next call writes."""
        kept, ids, count = self.kept, None, int(self["ids"])
        if of_blocks:
            offsets, blocks = np.empty(count, np.int64), kept["current"][: self["currents"]]
            ids = np.empty(kept["counts"][blocks].sum(), np.int64)
            self.set(offsets=offsets)
            count = len(ids)
        indptr = np.empty(count + 1, np.int64)
        entries = required(self.dtype).place_rows(self, ids, indptr)
        if ids is None:
            self.set(offsets=indptr)
        columns, values = np.empty(entries, np.uint64), np.empty(entries, self.dtype)
        self.set(answer_columns=columns, answer_values=values)
        return SparseRows(indptr.view(np.uint64), columns, values, ncols, ids)

    @property
    def is_waiting(self) -> bool:
        """Whether blocks wait, or rows have not been read."""
        return bool(self.waiting.any() or self["more"] or self["next_row"] < self["last_row"])

    # Blocks that wait

    def held(self) -> dict[int, int]:
        """Return the number of waiting blocks by layer."""
        by_stop = zip(self._stops, self.waiting.tolist(), strict=True)
        return {stop: blocks for stop, blocks in by_stop if blocks}

    def block(self, y: int, neurons: int) -> tuple[np.ndarray, np.ndarray]:
        """Return a block by its number, neurons x stride, and the ids of its inputs."""
        start, count = y * int(self["neurons"]), int(self.kept["counts"][y])
        ids = self.kept["numbers"][y * self.width :][:count].copy()  # others take its place
        return self._memory.whole[start : start + neurons], ids

    def at(self, place: int) -> list[int]:
        """Return the numbers of the blocks that wait at a place."""
        numbers, y = list[int](), int(self._heads[place])
        while y >= 0:
            numbers.append(y)
            y = int(self.kept["next"][y])
        return numbers

    def take(self, place: int) -> None:
        """Give back the blocks that waited at a place."""
        gone, unused = self.at(place), self.kept["unused"]
        count = int(self["unused_count"])
        unused[count : count + len(gone)] = gone
        self.set(unused_count=count + len(gone))
        self._heads[place], self.waiting[place] = -1, 0


def members_of(rows: SparseRows | np.ndarray | gb.Matrix, dtype: np.dtype) -> dict[str, Any]:
    """Return the members of ``struct features`` for rows of any kind."""
    if is_graphblas(rows):
        complete(rows)
        return {"matrix": handle(rows)}
    if isinstance(rows, np.ndarray):
        row, column = (stride // rows.itemsize for stride in rows.strides)
        return {"X": rows, "row_stride": row, "column_stride": column}
    values = rows.values[:1] if rows.is_iso else rows.values
    return {
        "indptr": np.ascontiguousarray(rows.indptr, np.uint64),
        "columns": np.ascontiguousarray(rows.columns, np.uint64),
        "values": np.ascontiguousarray(values, dtype), "value_step": int(not rows.is_iso),
    }  # fmt: skip


def factors(count: int) -> np.ndarray:
    """Return pseudo-random odd numbers (splitmix64), so that sums of a few differ."""
    with np.errstate(over="ignore"):
        odd = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        odd = (odd ^ np.right_shift(odd, 30)) * np.uint64(0xBF58476D1CE4E5B9)
        odd = (odd ^ np.right_shift(odd, 27)) * np.uint64(0x94D049BB133111EB)
    return (odd ^ np.right_shift(odd, 31)) | np.uint64(1)
