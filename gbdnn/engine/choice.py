"""Which form computes what: the one room where that is decided.

A layer's block form depends on the layer alone. Whether queued inputs run as one sparse matrix or
in blocks depends on how many they are and how many entries they have, by the cost model of
`gbdnn.kernels.costs`. Nothing depends on the momentary state of the machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from gbdnn.engine.dense_features import DenseFeatures
from gbdnn.errors import ArgumentError
from gbdnn.kernels import costs
from gbdnn.kernels.blocks import AlignedBlock, Block, padded
from gbdnn.kernels.full import FULL
from gbdnn.kernels.fused import FUSED
from gbdnn.kernels.sparse import SPARSE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gbdnn.engine.features import Features
    from gbdnn.engine.memory import Budget
    from gbdnn.kernels.form import BlockForm
    from gbdnn.model.layer_info import LayerInfo
    from gbdnn.model.network import Network

__all__ = [
    "Engine",
    "FormChoice",
    "NetworkFacts",
    "block_form",
    "direct_bytes",
    "direct_features",
    "is_direct",
    "sample",
    "takes_direct",
]

Engine = Literal["auto", "sparse", "full", "fused"]


class FormChoice:
    """The decisions of one run.

    Parameters
    ----------
    net : Network
        The layers.
    engine : str
        As for `infer`.
    budget : Budget
        Of which blocks get a share.
    inputs : int
        Number of inputs.
    nthreads : int
        Threads of the run.

    Attributes
    ----------
    forms : tuple of BlockForm
        What layers may take in blocks.
    fused : bool
        Whether blocks take the fused form.
    """

    def __init__(
        self, net: Network, engine: Engine, budget: Budget, inputs: int, nthreads: int
    ) -> None:
        self._engine, self._memory, self._threads = engine, budget.working, nthreads
        self._neurons = max((max(info.shape) for info in net.infos), default=0)
        self._dtype = net.infos[0].dtype
        self._itemsize = self._dtype.itemsize
        self.fused = False
        self.blocks_may_leave = engine == "auto"
        fits = self.block_bytes(16) <= self._memory
        if not fits and engine not in ("auto", "sparse"):
            raise ArgumentError(
                f"memory={budget.total} is too small: a block of 16 inputs at {self._neurons}"
                f" neurons takes {self.block_bytes(16)} bytes of the {self._memory} for blocks"
            )
        self.fused = fits and self._takes_fused(net, inputs)
        block_form: BlockForm = FUSED if self.fused else FULL
        self.forms = () if engine == "sparse" or not fits else (block_form,)
        self.reorders = bool(self.forms) and costs.reordering_pays(inputs)

    def _takes_fused(self, net: Network, inputs: int) -> bool:
        dtype = net.infos[0].dtype
        if self._engine == "fused":
            FUSED.load(dtype)
        if self._engine != "auto":
            return self._engine == "fused"
        # The same for equal calls: whether the network has been prepared does not count.
        work = inputs * net.edges * costs.MULTIPLY_ADD + len(net) * costs.FULL_CALL
        prepare = net.edges * costs.PREPARE_EDGE + len(net) * costs.PREPARE_LAYER
        if work > prepare and FUSED.is_due(dtype, work) and FUSED.has_loaded(dtype):
            return True
        FUSED.went_without(dtype, costs.RUN_CALLS + work)
        return False

    def is_sparse(
        self,
        form: BlockForm | None,
        info: LayerInfo,
        inputs: int,
        entries: float,
        *,
        dense: bool = False,
    ) -> bool:
        """Whether so many inputs, with so many entries in all, take the layer as sparse rows.

        They are rows already, or an array, if they are `dense`.
        """
        if form is None:
            return True
        if self._engine != "auto":
            return False
        width = min(self.width(inputs), max(inputs, 1))
        dear = -(-inputs // width) * form.cost(info, width, entries)
        cheap = SPARSE.cost(info, inputs, entries)
        elements = float(inputs) * info.nrows
        if dense:
            return cheap + costs.FIND_ENTRIES * elements < dear + costs.DENSE_COPY * elements
        return cheap < dear + costs.CONVERT * entries

    def leaves(self, form: BlockForm | None, info: LayerInfo, block: Any) -> bool:
        """Whether the sparse form is clearly cheaper for a block, the conversion included."""
        inputs = len(block.inputs)
        if form is None:
            return True
        if not self.blocks_may_leave:
            return False
        seen = sample(block.filled)
        entries = np.count_nonzero(seen) * block.neurons / max(len(seen), 1)
        cheap = SPARSE.cost(info, inputs, entries) + costs.CONVERT * entries
        return bool(2 * cheap < form.cost(info, inputs, entries))

    def width(self, inputs: int) -> int:
        """Return the inputs per block: what suits the caches and is within the memory."""
        if self.fused:
            lanes = 64 // self._itemsize
            width = costs.fused_width(self._neurons, self._itemsize, inputs, self._threads)
            while width > lanes and self.block_bytes(width) > self._memory:
                width -= lanes
            return width
        width = costs.block_width(self._neurons, self._itemsize, inputs)
        while width > 16 and self.block_bytes(width) > self._memory:
            width -= 32
        return width

    def block_bytes(self, width: int) -> int:
        """Return the bytes that a thread works in: a block, the next one, and one to compact by."""
        if self.fused:
            return 3 * AlignedBlock.size(self._neurons, width, self._dtype)
        return 3 * Block.size(max(self._neurons, 1), padded(width), self._dtype)

    def workers(self, inputs: int, edges: int) -> tuple[int, int]:
        """Return how many blocks run side by side, and how many threads each product has."""
        width = self.width(inputs)
        blocks = -(-inputs // width)
        if self.fused:
            workers, inner = min(self._threads, blocks), 1
        else:
            workers, inner = costs.inner_threads(self._threads, blocks, width, edges)
        return max(1, min(workers, self._memory // self.block_bytes(width))), inner


class NetworkFacts(NamedTuple):
    """What the choice of a direct run needs to know of a network, found once."""

    is_exact: bool
    edges: int
    neurons: int
    may_drop: bool
    preparing: float
    narrow_block_bytes: int

    @classmethod
    def of(cls, net: Network) -> NetworkFacts:
        """Return the facts of a network."""
        edges, neurons = net.edges, max(max(info.shape) for info in net.infos)
        return cls(
            all(FUSED.is_exact(info) for info in net.infos),
            edges,
            neurons,
            not net.infos[-1].revives,
            edges * costs.PREPARE_EDGE + len(net) * costs.PREPARE_LAYER,
            direct_bytes(neurons, 128 // net.infos[0].dtype.itemsize, net.infos[0].dtype),
        )


def is_direct(net: Network) -> bool:
    """Whether direct runs give a network's answer, whatever they cost."""
    return net.in_memory and net.prepared(NetworkFacts.of).is_exact


def takes_direct(net: Network, inputs: int, engine: Engine, memory: int) -> bool:
    """Whether so many dense inputs go through a network's layers without queues.

    `memory` is what blocks may take.
    """
    if engine not in ("auto", "fused") or not net.in_memory or not inputs:
        return False
    facts = net.prepared(NetworkFacts.of)
    deep = len(net) > costs.DEEP and facts.may_drop and inputs > costs.FEW_INPUTS
    if deep or not facts.is_exact or facts.narrow_block_bytes > memory:
        return False
    if engine == "fused":
        FUSED.load(net.infos[0].dtype)
        return True
    work = costs.RUN_CALLS + inputs * facts.edges * costs.MULTIPLY_ADD
    if facts.preparing > max(work, costs.PREPARE_AT_ONCE):
        return False
    dtype = net.infos[0].dtype
    return FUSED.is_due(dtype, work) and FUSED.has_loaded(dtype)


def direct_features(X: Features) -> DenseFeatures | None:
    """Return features as those of a direct run: dense ones, or few rows made dense; else None."""
    if isinstance(X, DenseFeatures):
        sparse = X.nrows > costs.FEW_INPUTS and not costs.dense_features_pay(
            costs.SPARSEST * X.nrows * X.ncols, X.nvals
        )
        return None if sparse else X
    if X.nrows <= costs.FEW_INPUTS and X.nrows * X.ncols <= costs.FEW_ELEMENTS:
        rows = X.sparse_rows(0, X.nrows)
        return DenseFeatures(rows.dense(), rows.dtype)
    return None


def direct_bytes(neurons: int, width: int, dtype: np.dtype) -> int:
    """Return the bytes that a thread of a direct run works in."""
    return 2 * AlignedBlock.size(max(neurons, 1), width, dtype)


def block_form(info: LayerInfo, forms: Sequence[BlockForm]) -> BlockForm | None:
    """Return the block form of a layer, the cheapest that is exact; None if there is none."""
    exact = [form for form in forms if form.is_exact(info)]
    return min(exact, key=lambda form: form.cost(info, 16, 0), default=None)


def sample(array: np.ndarray) -> np.ndarray:
    """Return activations at one neuron in sixteen, at some 64 at least."""
    return array[:: min(16, max(1, len(array) // 64))]
