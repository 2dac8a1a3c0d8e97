"""Which form computes what: the one room where that is decided.

A layer's block form depends on the layer alone. Whether queued inputs run as one sparse matrix or
in blocks depends on how many they are and how many entries they have, by the cost model of
`gbdnn.kernels.costs`. Nothing depends on the momentary state of the machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from gbdnn.engine.memory import Budget
from gbdnn.engine.sources import DenseRows, dense_rows_of
from gbdnn.errors import ArgumentError
from gbdnn.kernels import costs
from gbdnn.kernels.blocks import AlignedBlock, Block, padded, sample
from gbdnn.kernels.buffers import Buffers
from gbdnn.kernels.full import FULL
from gbdnn.kernels.fused import FUSED
from gbdnn.kernels.sparse import SPARSE
from gbdnn.runtime.threads import available

if TYPE_CHECKING:
    from gbdnn.engine.plan import LayerPlan
    from gbdnn.engine.sources import RowSource
    from gbdnn.kernels.form import BlockForm
    from gbdnn.model.network import Network

__all__ = ["Engine", "FormChoice", "NetworkFacts", "is_direct"]

Engine = Literal["auto", "sparse", "full", "fused"]


class NetworkFacts(NamedTuple):
    """What choices need to know of a network, found once.

    Attributes
    ----------
    is_exact : bool
        Whether block forms give the answer of every layer.
    edges, neurons, layers : int
        In all, of the widest layer, how many.
    may_drop : bool
        Whether an input without entries behind the last layer stays without.
    preparing : float
        ns to prepare the weights for the fused form.
    dtype : numpy.dtype
    """

    is_exact: bool
    edges: int
    neurons: int
    layers: int
    may_drop: bool
    preparing: float
    dtype: np.dtype

    @classmethod
    def of(cls, net: Network) -> NetworkFacts:
        """Return the facts of a network."""
        edges, layers = net.edges, len(net)
        return cls(
            is_exact=all(FUSED.is_exact(info) for info in net.infos),
            edges=edges,
            neurons=max(max(info.shape) for info in net.infos),
            layers=layers,
            may_drop=not net.infos[-1].revives,
            preparing=edges * costs.PREPARE_EDGE + layers * costs.PREPARE_LAYER,
            dtype=net.infos[0].dtype,
        )


def is_direct(net: Network) -> bool:
    """Whether direct runs give a network's answer, whatever they cost."""
    return net.in_memory and net.prepared(NetworkFacts.of).is_exact


class FormChoice:
    """The decisions of one run.

    Parameters
    ----------
    net : Network
        At least one layer.
    X : RowSource
    engine : str
        As for `infer`.
    memory, copied : int
        As for `infer`; the part of it that copies of features take already.
    nthreads : int, optional
        As for `infer`.
    may_be_direct : bool
        Whether the caller's other options leave the choice of a direct run.

    Attributes
    ----------
    direct : DenseRows, optional
        The features of a direct run; None if inputs are queued.
    budget : Budget
        How the memory of a queued run is divided.
    form : BlockForm, optional
        That of blocks; None if there are none.
    reorders, is_wide : bool
        Whether neurons are reordered, and whether blocks are so wide that weights are for that.
    threads : int
        Of a queued run.
    dtype : numpy.dtype
    """

    def __init__(
        self,
        net: Network,
        X: RowSource,
        engine: Engine,
        memory: int,
        copied: int,
        nthreads: int | None,
        *,
        may_be_direct: bool,
    ) -> None:
        self._facts, self._engine = net.prepared(NetworkFacts.of), engine
        self.dtype, self._inputs = self._facts.dtype, X.nrows
        self.direct: DenseRows | None = None
        if may_be_direct and self._may_be_direct(net, (memory - copied) // 2):
            self.direct = dense_rows_of(X)
        fused = self._takes_fused()
        if self.direct is not None and fused:
            return
        self.direct = None
        self.threads = available() if nthreads is None else nthreads
        self.budget = Budget.of_run(memory, net, X.nrows, copied)
        self.blocks_may_leave = engine == "auto"
        self.form: BlockForm | None = FUSED if fused else FULL
        needed = self._block_bytes(self._narrowest)
        if engine == "sparse" or needed > self.memory:
            if engine not in ("auto", "sparse"):
                raise ArgumentError(
                    f"memory={memory} is too small: a block of {self._narrowest} inputs at"
                    f" {self._facts.neurons} neurons takes {needed} bytes of the {self.memory} for"
                    " blocks"
                )
            self.form = None
        self.reorders = self.form is not None and costs.reordering_pays(X.nrows)
        self.is_wide = fused and costs.is_wide(self.width(X.nrows), self.dtype.itemsize)

    @property
    def memory(self) -> int:
        """Bytes for blocks, or sparse activations."""
        return self.budget.working

    def _may_be_direct(self, net: Network, memory: int) -> bool:
        """Whether dense inputs may go through all layers without queues."""
        facts, inputs = self._facts, self._inputs
        if self._engine not in ("auto", "fused") or not net.in_memory or not inputs:
            return False
        deep = facts.layers > costs.DEEP and facts.may_drop and inputs > costs.FEW_INPUTS
        narrow = 2 * AlignedBlock.size(facts.neurons, 128 // self.dtype.itemsize, self.dtype)
        return facts.is_exact and not deep and narrow <= memory

    def _takes_fused(self) -> bool:
        """Whether blocks take the fused form; the code is loaded then."""
        if self._engine == "fused":
            FUSED.load(self.dtype)
        if self._engine != "auto":
            return self._engine == "fused"
        # The same for equal calls: whether the network has been prepared does not count.
        facts = self._facts
        work = self._inputs * facts.edges * costs.MACHINE.full * self.dtype.itemsize / 4
        if self.direct is not None:
            work += costs.RUN_CALLS
            pays = facts.preparing <= max(work, costs.PREPARE_AT_ONCE)
        else:
            work += facts.layers * costs.FULL_CALL
            pays = work > facts.preparing
        if pays and FUSED.is_due(self.dtype, work) and FUSED.has_loaded(self.dtype):
            return True
        FUSED.went_without(self.dtype, work)
        return False

    def is_sparse(
        self, plan: LayerPlan, inputs: int, entries: float, *, dense: bool = False
    ) -> bool:
        """Whether so many inputs, with so many entries in all, take the layer as sparse rows.

        They are rows already, or an array, if they are `dense`.
        """
        if self.form is None or not plan.in_blocks:
            return True
        if self._engine != "auto":
            return False
        width = min(self.width(inputs), max(inputs, 1))
        dear = -(-inputs // width) * self.form.cost(plan.info, width, entries)
        cheap = SPARSE.cost(plan.info, inputs, entries)
        elements = float(inputs) * plan.info.nrows
        if dense:
            return cheap + costs.FIND_ENTRIES * elements < dear + costs.DENSE_COPY * elements
        return cheap < dear + costs.CONVERT * entries

    def leaves(self, plan: LayerPlan, block: Any) -> bool:
        """Whether the sparse form is clearly cheaper for a block, the conversion included."""
        if self.form is None or not self.blocks_may_leave:
            return False
        inputs, seen = len(block.inputs), sample(block.filled)
        entries = np.count_nonzero(seen) * block.neurons / max(len(seen), 1)
        cheap = SPARSE.cost(plan.info, inputs, entries) + costs.CONVERT * entries
        return bool(2 * cheap < self.form.cost(plan.info, inputs, entries))

    def width(self, inputs: int) -> int:
        """Return the inputs per block: what suits the caches and is within the memory."""
        neurons, itemsize, step = self._facts.neurons, self.dtype.itemsize, 32
        if self.form is FUSED:
            step = self._narrowest
            width = costs.fused_width(neurons, itemsize, inputs, self.threads)
        else:
            width = costs.block_width(neurons, itemsize, inputs)
        while width > self._narrowest and self._block_bytes(width) > self.memory:
            width -= step
        return width

    @property
    def _narrowest(self) -> int:
        """Inputs of the narrowest block: a cache line of them, in the full form 16."""
        return 64 // self.dtype.itemsize if self.form is FUSED else 16

    def buffers(self, width: int) -> Buffers:
        """Return the blocks of a run, each for so many inputs."""
        if self.form is FUSED:
            shape = self._facts.neurons, width
            return Buffers(self.dtype, self.memory, AlignedBlock, shape)
        return Buffers(self.dtype, self.memory)

    def _block_bytes(self, width: int) -> int:
        """Return the bytes that a thread works in: a block, the next one, and one to compact by."""
        neurons = self._facts.neurons
        if self.form is FUSED:
            return 3 * AlignedBlock.size(neurons, width, self.dtype)
        return 3 * Block.size(max(neurons, 1), padded(width), self.dtype)

    def workers(self, inputs: int, edges: int) -> tuple[int, int]:
        """Return how many blocks run side by side, and how many threads each product has."""
        width = self.width(inputs)
        blocks = -(-inputs // width)
        if self.form is FUSED:
            workers, inner = min(self.threads, blocks), 1
        else:
            workers, inner = costs.inner_threads(self.threads, blocks, width, edges)
        return max(1, min(workers, self.memory // self._block_bytes(width))), inner
