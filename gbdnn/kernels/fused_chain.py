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

_SPARE = 2  # blocks before a call that reads rows, which ends when there are none


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
        table = layer_table(layers.weights, droppable, checked)
        self._plans = [
            Record("plan", table=table, tidy=tidy, edge_cost=costs.speeds().fused,
                   move_cost=costs.MOVE, row_cost=costs.MOVE_ROW)
            for tidy in (False, True)
        ]  # fmt: skip
        self.compiled = required(self.dtype)
        self._idle: list[FusedWindow] = []  # append and pop are atomic

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

    def window(
        self, first: int, stop: int, buffers: Buffers, *, width: int, few: int, tidy: bool
    ) -> FusedWindow:
        """Return a thread's way through layers `first` to `stop`; blocks have `width` inputs."""
        try:
            found = self._idle.pop()
        except IndexError:
            found = FusedWindow(self, width)
        found.begin(first, stop, buffers, few=few, tidy=tidy)
        return found

    def leave(self, window: FusedWindow) -> None:
        """Keep a window, which has ended, for another one."""
        self._idle.append(window)

    def rows(self, Y: AlignedBlock, k: int, *, droppable: bool) -> Iterator[SparseRows]:
        """Yield the inputs as sparse rows."""
        step = max(1, LEAVING // max(1, Y.neurons))
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
    """The blocks of a thread on their way through consecutive layers, in compiled code.

    Its methods yield finished blocks: full ones of pooled survivors, and those with more than `few`
    survivors.

    """

    def __init__(self, chain: FusedChain, width: int) -> None:
        self._chain, self._width, self._first, self._stop = chain, width, 0, 0
        self._buffers: Any = None
        self._blocks: dict[int, AlignedBlock] = {}  # by address
        slots = np.zeros(5 + 2 * _SPARE, MEMBERS["block"])
        self._ids: dict[int, np.ndarray] = {}
        self._Z, self._pool, self._given = slots[:1], slots[1:2], slots[2:3]
        self._spare, self._done = slots[3 : 4 + _SPARE], slots[4 + _SPARE :]
        self._record = Record(
            "window", width=width, Z=self._Z, pool=self._pool, spare=self._spare, done=self._done
        )
        self._state = self._record.array[0]

    def begin(self, first: int, stop: int, buffers: Buffers, *, few: int, tidy: bool) -> None:
        """Take blocks through other layers; see `gbdnn.kernels.kernel.Chain.window`."""
        layers, state = self._chain.layers, self._state
        self._buffers, self._first, self._stop = buffers, first, stop
        Z = buffers.get(self._chain.neurons, self._width)
        self._blocks[Z.address] = Z
        if not state["stride"]:
            self._record.set(scratch=scratch(Z.stride), stride=Z.stride)
        state["plan"] = self._chain.plan_of(tidy=tidy).address
        state["first"], state["last"], state["few"] = first - layers.first, stop - layers.first, few
        state["nrows"], state["ncols"], state["faulty"] = *map(layers.neurons, (first, stop)), -1
        self._Z["Y"], self._pool["Y"] = Z.address, 0

    def rows(self, rows: Any, ids: np.ndarray, step: int) -> Iterator[AlignedBlock]:
        """Take rows, an array or `SparseRows`, through the layers, `step` per block."""
        position = self._chain.layers.position(self._first)
        self._record.set(
            ids=np.ascontiguousarray(ids, np.int64),
            rows=len(ids),
            next=0,
            step=step,
            positions=position,
        )
        if isinstance(rows, np.ndarray):
            size, (row_stride, column_stride) = rows.itemsize, rows.strides
            self._record.set(
                X=rows, row_stride=row_stride // size, column_stride=column_stride // size
            )
        else:
            indptr, columns, values, value_step = self._chain.arrays(rows)
            self._record.set(
                X=None, indptr=indptr, columns=columns, values=values, value_step=value_step
            )
        left = 1
        while left:
            self._fill_up()
            left = self._chain.compiled["pass_rows"](self._record)
            yield from self._finished()

    def block(self, Y: AlignedBlock) -> Iterator[AlignedBlock]:
        """Take a block through the layers; it is consumed."""
        count = len(Y.inputs)
        self._hold(self._given, Y)[:count] = Y.inputs
        self._given["count"] = count
        self._chain.compiled["pass_block"](self._record, self._given)
        self._release()
        yield from self._finished()

    def end(self) -> Iterator[AlignedBlock]:
        """Yield the pool, if there are survivors, and return all other blocks."""
        if self._pool["Y"][0]:
            yield self._left(self._pool[0])
        self._release()
        self._buffers.put(self._blocks.pop(int(self._Z["Y"][0])))
        self._chain.leave(self)

    def _hold(self, slot: np.ndarray, Y: AlignedBlock) -> np.ndarray:
        """Write a block to its structure; return an array for the numbers of its inputs."""
        ids = np.empty(self._width, np.int64)
        slot["Y"], slot["ids"] = Y.address, address(ids)
        self._blocks[Y.address], self._ids[address(ids)] = Y, ids
        return ids

    def _fill_up(self) -> None:
        """Take further spare blocks."""
        for n in range(int(self._state["spares"]), _SPARE):
            Y = self._buffers.get(self._chain.neurons, self._width)
            self._hold(self._spare[n : n + 1], Y)
            self._state["spares"] = n + 1

    def _release(self) -> None:
        """Return the spare blocks."""
        count, self._state["spares"] = int(self._state["spares"]), 0
        for slot in self._spare[:count]:
            self._buffers.put(self._left(slot))

    def _finished(self) -> Iterator[AlignedBlock]:
        faulty, layers = int(self._state["faulty"]), self._chain.layers
        if faulty >= 0:
            raise non_finite(layers.first + faulty, layers.plans[faulty].info)
        count, self._state["finished"] = int(self._state["finished"]), 0
        for slot in self._done[:count]:
            yield self._left(slot)

    def _left(self, slot: np.void) -> AlignedBlock:
        """Return the block of a structure, which is no longer used."""
        at, ids_at, count = slot.tolist()
        Y, ids = self._blocks.pop(at), self._ids.pop(ids_at)
        Y.inputs, Y.neurons = ids[:count], self._chain.layers.neurons(self._stop)
        return Y


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
