"""Call the fused kernel's compiled code on blocks, through many layers."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.kernels import costs
from gbdnn.kernels.blocks import LEAVING, AlignedBlock, scratch
from gbdnn.kernels.compiled.loading import required
from gbdnn.kernels.compiled.record import MEMBERS, Record, address
from gbdnn.kernels.compiled.table import layer_table
from gbdnn.kernels.overflow import non_finite
from gbdnn.kernels.together import together

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gbdnn.kernels.blocks import Buffers
    from gbdnn.kernels.kernel import ChainLayers

__all__ = ["FusedChain", "FusedWindow", "Lane", "Stream"]

CALL = 3e7  # ns of a compiled call, which cannot be interrupted


class FusedChain:
    """See `gbdnn.kernels.kernel.Chain`; all blocks have room for the widest layer.

    Compiled code drops dead inputs: alive ones from the end of a block take their places.
    """

    name = "fused"

    def __init__(self, layers: ChainLayers) -> None:
        self.layers = layers
        infos, _, _, droppable, checked = zip(*layers.plans, strict=True)
        self.neurons = max(max(info.shape) for info in infos)
        self.dtype: np.dtype = infos[0].dtype
        sizes = [(info.edges, *info.shape, self.dtype.itemsize) for info in infos]
        self.costs = [costs.fused_layer(16, *each) for each in sizes]
        table = layer_table(layers.weights, droppable, checked)
        self._plans = [
            Record("plan", table=table, tidy=tidy, edge_cost=costs.speeds().fused,
                   move_cost=costs.MOVE, row_cost=costs.MOVE_ROW)
            for tidy in (False, True)
        ]  # fmt: skip
        self.compiled = required(self.dtype)

    def block(self, buffers: Buffers, k: int, width: int) -> AlignedBlock:
        """Return a block for `width` inputs before layer `k`."""
        found: AlignedBlock = buffers.get(self.neurons, width)
        found.neurons = self.layers.neurons(k)
        return found

    def read(self, Y: AlignedBlock, k: int, rows: SparseRows) -> None:
        """Fill a block with sparse rows."""
        indptr, columns, values, step = self.arrays(rows)
        self.compiled["fill"](
            indptr, columns, values, step, 0, rows.nrows, self.layers.position(k), Y, Y.stride,
            Y.neurons,
        )  # fmt: skip
        Y.inputs = rows.ids.copy()

    def arrays(self, rows: SparseRows) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
        """Return pointers, columns and values of rows, and the step from one value to the next."""
        values = rows.values[:1] if rows.is_iso else rows.values
        return (
            np.ascontiguousarray(rows.indptr, np.uint64),
            np.ascontiguousarray(rows.columns, np.uint64),
            np.ascontiguousarray(values, self.dtype),
            int(not rows.is_iso),
        )

    def plan_of(self, *, tidy: bool) -> Record:
        """Return the layers as compiled code reads them."""
        return self._plans[tidy]

    def read_dense(self, Y: AlignedBlock, k: int, rows: np.ndarray, ids: np.ndarray) -> float:
        """Fill a block with rows of an array of the chain's dtype; return the largest magnitude."""
        size, position = rows.itemsize, self.layers.position(k)
        row_stride, column_stride = rows.strides
        bits = self.compiled["from_dense"](
            rows, row_stride // size, column_stride // size, None, len(rows), position, Y,
            Y.stride, Y.neurons,
        )  # fmt: skip
        Y.inputs = ids
        form, number = ("<i", "<f") if size == 4 else ("<q", "<d")
        (largest,) = struct.unpack(number, struct.pack(form, bits))
        return float(largest)

    def run(
        self, Y: AlignedBlock, first: int, stop: int, buffers: Buffers, *, tidy: bool,
        counts: np.ndarray | None, stands: np.ndarray | None,
    ) -> AlignedBlock:  # fmt: skip
        """Return a block after layers `first` to `stop` (exclusive): one compiled call."""
        Z: AlignedBlock = buffers.get(self.neurons, Y.width)
        first, last = first - self.layers.first, stop - self.layers.first
        ids, statistics = np.ascontiguousarray(Y.inputs), None
        if counts is not None:
            from_first = address(counts) - first * counts.strides[0]
            statistics = np.array([from_first, 0 if stands is None else address(stands)])
        self.compiled["chain"](
            self._plans[tidy], first, last, Y, Z, Y.stride, len(ids), ids, Y.scratch, statistics
        )
        left, in_Z, faulty = Y.scratch[4 * Y.stride :][:3].tolist()
        if in_Z:
            Y, Z = Z, Y
        buffers.put(Z)
        if faulty >= 0:
            raise non_finite(self.layers.first + faulty, self.layers.plans[faulty].info)
        Y.inputs, Y.neurons = ids[:left], self.layers.neurons(stop)
        return Y

    def window(self, first: int, stop: int, buffers: Buffers, **options: Any) -> FusedWindow:
        """See `gbdnn.kernels.kernel.Chain`."""
        return FusedWindow(self, first, stop, buffers, **options)

    def rows(self, Y: AlignedBlock, k: int, *, droppable: bool) -> Iterator[SparseRows]:
        """Yield the inputs as sparse rows."""
        line = AlignedBlock.step(self.dtype)  # inputs that compiled code reads together
        step = line * max(1, LEAVING // max(1, line * Y.neurons))
        for first in range(0, len(Y.inputs), step):
            rows = self._rows(Y, k, first, Y.inputs[first : first + step])
            yield rows.without_empty_rows() if droppable else rows

    def write(self, Y: AlignedBlock, values: np.ndarray, present: np.ndarray | None) -> int:
        """Write the inputs to rows of arrays."""
        ids = np.ascontiguousarray(Y.inputs)
        found: Any = self.compiled["to_dense"](
            Y, Y.stride, Y.neurons, ids, len(ids), values, Y.neurons, present,
        )  # fmt: skip
        return int(found)

    def _rows(self, Y: AlignedBlock, k: int, first: int, ids: np.ndarray) -> SparseRows:
        inputs, some = len(ids), Y.flat[first:]
        counts = np.empty(inputs, np.int64)
        self.compiled["count"](some, Y.stride, Y.neurons, inputs, counts)
        indptr = np.zeros(inputs + 1, np.int64)
        np.cumsum(counts, out=indptr[1:])
        columns, values = np.empty(indptr[-1], np.uint64), np.empty(indptr[-1], self.dtype)
        places = indptr[:-1].copy()
        self.compiled["extract"](
            some, Y.stride, Y.neurons, self.layers.position(k), inputs, places, columns, values,
        )  # fmt: skip
        return SparseRows(indptr.view(np.uint64), columns, values, Y.neurons, ids)


class FusedWindow:
    """Blocks on their way through consecutive layers, in compiled code, on threads.

    See `gbdnn.kernels.kernel.Window`. The caller's thread leads, and keeps account of all blocks.
    """

    def __init__(
        self, chain: FusedChain, first: int, stop: int, buffers: Buffers, *, width: int, few: int,
        tidy: bool, threads: int, spare: int,
    ) -> None:  # fmt: skip
        layers = chain.layers
        self._chain, self._buffers, self._threads = chain, buffers, threads
        self._width, self._stop, self._most = width, stop, spare * threads
        self._blocks: dict[int, AlignedBlock] = {}  # by address
        self._ids: dict[int, np.ndarray] = {}  # rows of numbers of inputs, by address
        self._next = np.zeros(2, np.int64)
        # A row is a structure: addresses of activations and of numbers, and a count.
        self._Z, self._pools = (np.zeros((threads, 3), np.int64) for _ in range(2))
        self._spare, self._lots = self._Z[:0], np.zeros(threads, MEMBERS["lot"])
        for n in range(threads):
            self._Z[n, 0] = self._get()
        block = self._blocks[int(self._Z[0, 0])]
        self._scratch = [scratch(block.stride) for _ in range(threads)]
        self._lots["scratch"] = [address(each) for each in self._scratch]
        for name, slots in (("Z", self._Z), ("pool", self._pools)):
            self._lots[name] = address(slots) + slots.strides[0] * np.arange(threads)
        self._lots["faulty"] = -1
        self._record = Record(
            "window", plan=chain.plan_of(tidy=tidy), first=first - layers.first,
            last=stop - layers.first, stride=block.stride, width=width, few=few,
            nrows=layers.neurons(first), ncols=layers.neurons(stop),
            positions=layers.position(first), next=self._next, lots=self._lots,
        )  # fmt: skip
        work = sum(chain.costs[first - layers.first : stop - layers.first]) * width / 16
        self._at_once = threads * max(1, int(CALL / work))

    def rows(self, rows: Any, ids: np.ndarray, step: int) -> Iterator[AlignedBlock]:
        """See `gbdnn.kernels.kernel.Window`."""
        members = dict.fromkeys(("given", "X"))
        if isinstance(rows, np.ndarray):
            size, (row_stride, column_stride) = rows.itemsize, rows.strides
            members |= {"X": rows, "row_stride": row_stride // size}
            members["column_stride"] = column_stride // size
        else:
            names = "indptr", "columns", "values", "value_step"
            members |= zip(names, self._chain.arrays(rows), strict=True)
        ids = np.ascontiguousarray(ids, np.int64)
        self._record.set(ids=ids, rows=len(ids), step=step, **members)
        yield from self._pieces(-(-len(ids) // step))

    def blocks(self, blocks: Sequence[AlignedBlock]) -> Iterator[AlignedBlock]:
        """See `gbdnn.kernels.kernel.Window`."""
        given = np.zeros((len(blocks), 3), np.int64)
        for n, (Y, ids) in enumerate(zip(blocks, self._rows(len(blocks)).tolist(), strict=True)):
            self._blocks[Y.address], given[n] = Y, (Y.address, ids, len(Y.inputs))
            self._ids[ids][: len(Y.inputs)] = Y.inputs
        self._record.set(given=given)
        yield from self._pieces(len(blocks))

    def end(self) -> Iterator[AlignedBlock]:
        """See `gbdnn.kernels.kernel.Window`."""
        self._have_spare(0)
        for Y in self._Z[:, 0].tolist():
            self._buffers.put(self._blocks.pop(Y))
        yield from self._left(self._pools[self._pools[:, 0] != 0])

    def _pieces(self, count: int) -> Iterator[AlignedBlock]:
        """Take pieces through the layers."""
        given, done = bool(self._record.array["given"][0]), 0
        while done < count:
            pieces = min(count - done, self._at_once)
            self._have_spare(0 if given else min(pieces, self._most))
            room = max(pieces, len(self._spare)) + 1
            own, finished = (np.empty((self._threads, room, 3), np.int64) for _ in range(2))
            for name, slots in (("own", own), ("done", finished)):
                self._lots[name] = address(slots) + slots.strides[0] * np.arange(self._threads)
            self._lots["owned"] = self._lots["finished"] = 0
            self._next[:] = done, 0
            self._record.set(pieces=done + pieces, spare=self._spare, spares=len(self._spare))
            together(min(self._threads, pieces), self._chain.compiled["pass"], self._record)
            self._require_finite()
            done = min(int(self._next[0]), done + pieces)
            spare = [own[n, :k] for n, k in enumerate(self._lots["owned"].tolist())]
            self._spare = np.concatenate([*spare, self._spare[self._next[1] :]])
            for n, k in enumerate(self._lots["finished"].tolist()):
                yield from self._left(finished[n, :k])

    def _have_spare(self, count: int) -> None:
        """Have `count` spare blocks, used ones first."""
        for Y in self._left(self._spare[count:]):
            self._buffers.put(Y)
        more = np.zeros((max(0, count - len(self._spare)), 3), np.int64)
        more[:, 0], more[:, 1] = [self._get() for _ in more], self._rows(len(more))
        self._spare = np.concatenate([self._spare[:count], more])

    def _get(self) -> int:
        """Take a block; return its address."""
        Y = self._buffers.get(self._chain.neurons, self._width)
        self._blocks[Y.address] = Y
        return int(Y.address)

    def _rows(self, count: int) -> np.ndarray:
        """Return addresses of rows for the numbers of the inputs of `count` blocks."""
        rows = np.empty((count, self._width), np.int64)
        places = address(rows) + rows.strides[0] * np.arange(count) if count else np.zeros(0, int)
        self._ids.update(zip(places.tolist(), rows, strict=True))
        return places

    def _require_finite(self) -> None:
        faulty, layers = self._lots["faulty"], self._chain.layers
        if faulty.max() >= 0:
            first = int(faulty[faulty >= 0].min())
            raise non_finite(layers.first + first, layers.plans[first].info)

    def _left(self, slots: np.ndarray) -> Iterator[AlignedBlock]:
        """Yield the blocks of structures, which are no longer used."""
        neurons = self._chain.layers.neurons(self._stop)
        for at, ids_at, count in slots.tolist():
            Y = self._blocks.pop(at)
            Y.inputs, Y.neurons = self._ids.pop(ids_at)[:count], neurons
            yield Y


class Lane:
    """Blocks of a thread that computes streams, and what it did.

    Attributes
    ----------
    width : int
        Most inputs per block.
    done : ndarray of int64, shape (5,)
        Entries of the answer, clock ticks of reading, computing and writing, and the layer of an
        error.
    counts : ndarray of int64, shape (layers, 5)
        As for `FusedChain.run`, if it is watched.
    """

    def __init__(self, chain: FusedChain, width: int, *, watched: bool = False) -> None:
        self.width, self.watched, self.done = width, watched, np.zeros(5, np.int64)
        self.counts = np.zeros((len(chain.layers.plans), 5), np.int64)
        Y, Z = (AlignedBlock(chain.neurons, width, chain.dtype) for _ in range(2))
        statistics = np.array([address(self.counts), 0]) if watched else None
        self.record = Record(
            "lane", Y=Y, Z=Z, stride=Y.stride, ids=np.empty(width, np.int64), scratch=Y.scratch,
            done=self.done, statistics=statistics,
        )  # fmt: skip


class Stream:
    """Dense inputs that threads take through all layers of a chain, in compiled code.

    Parameters
    ----------
    chain, checked : FusedChain
        Without and with a check for sums outside the dtype's range.
    largest : float
        Blocks with a larger feature are checked.
    """

    def __init__(self, chain: FusedChain, checked: FusedChain, largest: float) -> None:
        layers, dtype = chain.layers, chain.dtype
        bits = np.array([largest, np.inf], dtype).view(f"i{dtype.itemsize}").tolist()
        self._next = np.zeros(1, np.int64)
        self._record = Record(
            "stream", plan=chain.plan_of(tidy=False), checked=checked.plan_of(tidy=False),
            layers=len(layers.plans), largest=bits[0], infinite=bits[1],
            nrows=layers.neurons(layers.first), ncols=layers.neurons(layers.stop), next=self._next,
        )  # fmt: skip
        self._compiled, self._layers = chain.compiled["stream"], layers

    def begin(
        self, X: np.ndarray, width: int, blocks: int, answer: np.ndarray,
        present: np.ndarray | None,
    ) -> None:  # fmt: skip
        """Take other inputs.

        Parameters
        ----------
        X : ndarray of the chain's dtype, shape (inputs, neurons of the first layer)
            Its strides are multiples of the item size.
        width : int
            Inputs per block.
        blocks : int
            Most blocks per call, which cannot be interrupted.
        answer, present : ndarray, shape (inputs, neurons of the last layer)
            C-ordered; see `Answer`. Without `present`, entries are not counted.
        """
        row_stride, column_stride = X.strides
        self._next[0] = 0
        self._record.set(
            X=X, row_stride=row_stride // X.itemsize, column_stride=column_stride // X.itemsize,
            inputs=len(X), width=width, blocks=blocks, answer=answer, present=present,
        )  # fmt: skip

    def call(self, lanes: Sequence[Lane]) -> int:
        """Compute blocks of `width` inputs on a thread for each lane; add to `done` and `counts`.

        Returns
        -------
        int
            -1 if no block is left; -2 if some may be; the first input of a block with a feature
            that is not finite.
        """
        table, found = np.array([lane.record.address for lane in lanes]), np.full(len(lanes), -1)
        together(len(lanes), self._compiled, self._record, table, found)
        if found.min() == -3:
            faulty = int(lanes[int(found.argmin())].done[4])
            raise non_finite(faulty, self._layers.plans[faulty].info)
        return int(found.max() if found.max() >= 0 else found.min())

    def end(self) -> None:
        """Let go of the arrays."""
        self._record.set(X=None, answer=None, present=None)
