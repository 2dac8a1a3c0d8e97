"""The plan of a run: kernels and rules, chosen before the run by a cost model.

`choose` is a function from `Facts` (network, features, options, and whether there are compiled
kernels) to a `Plan`, with the cost model of this machine. What depends on the inputs that survive
is a rule of the plan: whether inputs are computed as sparse rows or in blocks.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from gbdnn.arrays.sources import dense_pays
from gbdnn.engine.sizes import MAGNITUDES, NetworkFacts, Sizes, sharing, single_window, sizes
from gbdnn.errors import ArgumentError
from gbdnn.kernels import costs, lagraph
from gbdnn.kernels.blocks import sample
from gbdnn.kernels.compiled.loading import functions, of_any_processor, required
from gbdnn.kernels.full import FULL
from gbdnn.kernels.fused import FUSED
from gbdnn.kernels.kernel import LayerPlan
from gbdnn.kernels.overflow import may_overflow
from gbdnn.kernels.sparse import SPARSE
from gbdnn.model.tables import Table
from gbdnn.runtime.machine import machine
from gbdnn.runtime.threads import available

if TYPE_CHECKING:
    from gbdnn.arrays.sources import RowSource
    from gbdnn.kernels.kernel import BlockKernel
    from gbdnn.model.layer_info import LayerInfo
    from gbdnn.model.network import Network
    from gbdnn.runtime.machine import Machine

__all__ = [
    "BLOCK_KERNELS", "ENGINES", "MEMORY", "Engine", "Facts", "Plan", "choose", "plan_layers",
    "plan_of",
]  # fmt: skip

Engine = Literal["auto", "graphblas", "fused", "full", "sparse", "lagraph"]
"""Kernels of a run: "auto" and "graphblas" choose per layer, the others force one kernel."""

_CHOOSE = ("auto", "graphblas")

BLOCK_KERNELS: dict[str, BlockKernel] = {kernel.name: kernel for kernel in (FUSED, FULL)}
"""All kernels that compute on blocks, by name; the first that can run is the default."""

MEMORY = 512 << 20
"""Default memory budget of `infer` in bytes, beyond weights, features and answer."""

_HALVINGS = 12  # of a layer's neurons, to find the entries at which kernels take the same time
_PLANS = 256  # kept per network


ENGINES = (*_CHOOSE, *BLOCK_KERNELS, SPARSE.name)
"""Values of ``engine``: choices per layer, and all kernels."""


class Facts(NamedTuple):
    """All that a plan depends on, apart from the machine.

    Attributes
    ----------
    net : NetworkFacts
    inputs : int
    entries : float
        Nonzero features, estimated. Of a few dense inputs all features count if that is enough.
    is_dense : bool
        Whether the features are an array.
    engine, memory, deduplicate
        As for `infer`.
    threads : int
    is_watched : bool
        Whether a callback gets statistics of each layer.
    is_compiled : bool
        Whether there are compiled kernels for this processor.
    has_library : bool
        Whether there is compiled code at all, such as the loop of the sparse kernel.
    """

    net: NetworkFacts
    inputs: int
    entries: float
    is_dense: bool
    engine: Engine
    memory: int
    deduplicate: bool | Literal["auto"]
    threads: int
    is_watched: bool
    is_compiled: bool
    has_library: bool = True

    def may_be_single_window(self) -> bool:
        """Whether dense inputs, or a few, pass a network without regrouping."""
        net, inputs = self.net, self.inputs
        if not (net.in_memory and inputs) or self.deduplicate is True or self.is_watched:
            return False
        answer = (inputs > costs.SINGLES) * inputs * net.infos[-1].ncols * (net.dtype.itemsize + 1)
        if max(net.narrowest, answer) > self.memory or not fits_shallow(net, inputs):
            return False
        elements = inputs * net.infos[0].nrows
        if inputs <= costs.FEW_INPUTS:
            return self.is_dense or elements <= costs.FEW_ELEMENTS
        return self.is_dense and dense_pays(costs.SPARSEST * elements, self.entries)


class Plan(NamedTuple):
    """What `infer` decides before it runs; made by `gbdnn.plan`, shown as a table.

    Attributes
    ----------
    facts : Facts
        All that the plan depends on.
    kernel : str
        Kernel of blocks; ``"sparse"`` or ``"lagraph"`` if none runs.
    is_single_window : bool
        Whether each block passes all layers without regrouping.
    sizes : Sizes
        Inputs per block, blocks computed at the same time, and how memory is divided.

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> plan = gbdnn.plan([np.eye(3), np.eye(3)], np.eye(3), engine="full", nthreads=1)
    >>> plan.kernel, plan.sizes.workers, [layers.kernel for layers in plan.groups]
    ('full', 1, ['full'])
    """

    facts: Facts
    kernel: str
    is_single_window: bool
    sizes: Sizes

    @property
    def block_kernel(self) -> BlockKernel | None:
        """Kernel of blocks; None if only the sparse kernel runs."""
        return BLOCK_KERNELS.get(self.kernel)

    @property
    def reorders(self) -> bool:
        """Whether neurons are reordered."""
        regroups = not self.is_single_window and self.kernel == FUSED.name
        return regroups and costs.reordering_pays(self.facts.inputs)

    @property
    def is_wide(self) -> bool:
        """Whether weights are prepared for wide blocks."""
        width = min(self.sizes.width, self.facts.inputs)
        return self.kernel == FUSED.name and costs.is_wide(width, self.facts.net.dtype.itemsize)

    # Rules for inputs that survive

    def only(self, info: LayerInfo) -> bool | None:
        """Return whether a layer needs the sparse kernel, or blocks; None if costs decide."""
        if self.block_kernel is None or not self.block_kernel.is_exact(info):
            return True
        return None if self.facts.engine in _CHOOSE and not self.is_single_window else False

    @property
    def merges(self) -> bool:
        """Whether equal inputs are merged."""
        regroups = not (self.is_single_window or self.kernel == lagraph.NAME)
        return bool(self.facts.deduplicate) and regroups

    def is_sparse(self, k: int, inputs: int, entries: float, *, dense: bool = False) -> bool:
        """Whether the sparse kernel computes layer `k` of rows with `entries` entries in total.

        With `dense`, the rows are an array that would have to be converted.
        """
        info = self.facts.net.infos[k]
        only, kernel = self.only(info), self.block_kernel
        if only is not None or kernel is None:
            return bool(only)
        width = min(self.sizes.width, max(inputs, 1))
        in_blocks = -(-inputs // width) * kernel.cost(info, width, entries)
        as_rows = SPARSE.cost(info, inputs, entries)
        elements = float(inputs) * info.nrows
        if dense:
            as_rows += costs.FIND_ENTRIES * elements
            return as_rows < in_blocks + costs.DENSE_COPY * elements
        if k + 1 == len(self.facts.net.infos):  # blocks become rows of the answer
            entries += costs.new_entries(inputs, entries, info.edges, *info.shape)
        return as_rows < in_blocks + costs.CONVERT * entries

    def limit(self, k: int, inputs: int, *, is_sparse: bool) -> float:
        """Return the entries per input up to which the sparse kernel computes layer `k`.

        Without `is_sparse`, inputs are in blocks, which they leave if they have fewer entries.
        """
        info = self.facts.net.infos[k]
        if self.only(info) is not None:
            return math.inf if self.only(info) else -1.0
        low, high = 0.0, float(info.nrows)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            entries = middle * inputs
            pays = (self.is_sparse if is_sparse else self.leaving_pays)(k, inputs, entries)
            low, high = (middle, high) if pays else (low, middle)
        return high if is_sparse else low

    def leaving_pays(self, k: int, inputs: int, entries: float) -> bool:
        """Whether sparse rows are much cheaper than blocks before layer `k`."""
        info, kernel = self.facts.net.infos[k], self.block_kernel
        as_rows = SPARSE.cost(info, inputs, entries) + costs.CONVERT * entries
        return kernel is not None and 2 * as_rows < kernel.cost(info, inputs, entries)

    def leaves(self, k: int, inputs: int, Y: np.ndarray) -> bool:
        """Whether inputs in blocks like `Y` become sparse rows: required, or much cheaper."""
        info = self.facts.net.infos[k]
        only = self.only(info)
        if only is not None:
            return only
        some = sample(Y)
        entries = np.count_nonzero(some != 0) / max(some.size, 1) * inputs * info.nrows
        return self.leaving_pays(k, inputs, entries)

    # What is shown

    @property
    def entries(self) -> list[float]:
        """Estimated entries before each layer, and of the answer, if no input dies."""
        entries = [self.facts.entries]
        for info in self.facts.net.infos:
            paths = math.inf if info.revives else entries[-1] * info.edges / max(info.nrows, 1)
            entries.append(min(paths, float(self.facts.inputs) * info.ncols))
        return entries

    @property
    def groups(self) -> list[LayerGroup]:
        """Consecutive layers with the same kernel, if no input dies."""
        groups: list[LayerGroup] = []
        for k, (info, entries) in enumerate(zip(self.facts.net.infos, self.entries, strict=False)):
            ms, first = self._costs(info, entries), k
            kernel, why = self._kernel(k, entries, groups[-1].kernel if groups else None, ms)
            if groups and groups[-1][2:4] == (kernel, why):
                first, *_, before = groups.pop()
                ms = {name: before[name] + ms[name] for name in ms}
            groups.append(LayerGroup(first, k + 1, kernel, why, ms))
        return groups

    def _kernel(
        self, k: int, entries: float, after: str | None, ms: dict[str, float]
    ) -> tuple[str, str]:
        """Return the kernel of a layer, and why, from the kernel before it and all times."""
        facts, only = self.facts, self.only(self.facts.net.infos[k])
        if self.block_kernel is None:
            return self.kernel, "wide layers" if facts.engine in _CHOOSE else "forced"
        if only:
            return SPARSE.name, "positive bias on entries"
        if only is False:
            return self.kernel, "single window" if facts.engine in _CHOOSE else "forced"
        dense = after is None and facts.is_dense
        as_rows = after != self.kernel and self.is_sparse(k, facts.inputs, entries, dense=dense)
        kernel = SPARSE.name if as_rows else self.kernel
        is_least = ms[kernel] == min(ms[self.kernel], ms[SPARSE.name])
        return kernel, "least time" if is_least else "least time with conversion"

    def _costs(self, info: LayerInfo, entries: float) -> dict[str, float]:
        """Return the time of a layer in each kernel, in ms."""
        inputs, sizes, times = self.facts.inputs, self.sizes, {}
        width = max(1, min(sizes.width, inputs))
        blocks = -(-inputs // width)
        side_by_side = max(1, min(blocks, sizes.workers)) * sizes.threads_each
        for kernel in BLOCK_KERNELS.values():
            ns = blocks * kernel.cost(info, width, 0) / side_by_side
            times[kernel.name] = ns / 1e6 if kernel.is_exact(info) else math.inf
        if self.is_single_window and inputs <= costs.SINGLES:
            shares = sizes.threads_each
            ns = costs.single_layer(info.edges, *info.shape) / shares
            ns += (shares > 1) * (costs.SHARE + shares * costs.THREAD)
            times[self.kernel] = inputs * ns / 1e6
        as_rows = SPARSE.cost(info, inputs, entries) / self.facts.threads
        names = SPARSE.name, *[lagraph.NAME] * (self.kernel == lagraph.NAME)
        return times | dict.fromkeys(names, as_rows / 1e6)

    @property
    def seconds(self) -> float:
        """Estimated time of the call if no input dies, with reading and writing."""
        facts, threads = self.facts, max(1, self.sizes.workers * self.sizes.threads_each)
        elements = facts.inputs * (facts.net.infos[0].nrows + facts.net.infos[-1].ncols)
        moving = costs.DENSE_COPY * elements
        if not facts.is_dense:
            moving = costs.CONVERT * facts.entries + costs.WRITE * self.entries[-1]
        layers = sum(group.ms[group.kernel] for group in self.groups)
        return layers / 1e3 + (costs.INFER + moving / threads) / 1e9

    def _notes(self) -> dict[str, str]:
        """Return sizes, merging and the time of the whole call."""
        facts, sizes = self.facts, self.sizes
        blocks: list[Any] = [
            f"{sizes.width} inputs, {sizes.workers} at a time",
            sizes.threads_each > 1 and f"{sizes.threads_each} threads share each layer's neurons",
            self.reorders and "neurons reordered",
        ]
        if self.block_kernel is None:
            blocks = [f"none; {facts.threads} threads take parts of the rows"]
        if self.kernel == lagraph.NAME:
            blocks = [f"none; {facts.threads} threads within each operation on all rows"]
        memory: list[Any] = [
            f"{facts.memory / 2**20:.4g} MiB",
            len(sizes.starts) > 1 and f"{len(sizes.starts)} groups of layers",
            facts.memory < sizes.enough
            and f"refuses inputs with more than {sizes.entries} entries after a layer",
        ]
        many = ", if many are equal" * (facts.deduplicate == "auto")
        may_die = not (facts.net.infos[-1].revives or self.is_single_window)
        return {
            "blocks": ", ".join(filter(None, blocks)),
            "equal inputs merged": "between windows of layers" + many if self.merges else "no",
            "memory": ", ".join(filter(None, memory)),
            "expected": f"{self.seconds:.3g} s{' if no input dies' * may_die}",
        }

    def _table(self) -> Table:
        inputs, layers, engine = self.facts.inputs, len(self.facts.net.infos), self.facts.engine
        title = f"Plan: {inputs} inputs, {layers} layers, engine {engine!r}"
        names = [*BLOCK_KERNELS, SPARSE.name, *[lagraph.NAME] * (self.kernel == lagraph.NAME)]
        header = ("layers", "kernel", *(f"{name}, ms" for name in names), "why")
        rows = [
            (f"{first}-{stop - 1}", kernel, *(f"{time:.3g}" for time in ms.values()), why)
            for first, stop, kernel, why, ms in self.groups
        ]
        return Table(title, header, rows, self._notes())

    def __repr__(self) -> str:
        return str(self._table())

    def _repr_html_(self) -> str:
        return self._table().html()


class LayerGroup(NamedTuple):
    """Consecutive layers with the same kernel, and the estimated time in each kernel."""

    first: int
    stop: int
    kernel: str
    why: str
    ms: dict[str, float]


def choose(facts: Facts) -> Plan:
    """Return the plan of a run.

    Raises
    ------
    ArgumentError
        `memory` is too small, or LAGraph's operations would have to keep to it or merge inputs.
    """
    net, inputs, kernel = facts.net, facts.inputs, BLOCK_KERNELS.get(facts.engine)
    if facts.engine == lagraph.NAME or (facts.engine in _CHOOSE and not facts.has_library):
        if facts.deduplicate is True or facts.memory != MEMORY:
            what = "deduplicate" if facts.memory == MEMORY else "memory"
            why = "" if facts.engine == lagraph.NAME else "; this installation has no compiled code"
            raise ArgumentError(
                f"{what}= cannot be combined with engine='lagraph', which computes all inputs at"
                f" once{why}"
            )
        return Plan(facts, lagraph.NAME, False, Sizes((0,), inputs or 1, 1, facts.threads, 0, 0, 0))
    if facts.engine in _CHOOSE:
        all_run = facts.engine == "auto" and facts.is_compiled
        kernel = next(kind for kind in BLOCK_KERNELS.values() if all_run or not kind.is_compiled)
    given = net, inputs, facts.threads, facts.memory
    if kernel is not None and kernel.is_compiled and facts.may_be_single_window():
        return Plan(facts, kernel.name, True, single_window(*given))
    try:
        made = sizes(*given, kernel)
    except ArgumentError:
        if facts.engine not in _CHOOSE:
            raise
        kernel = None  # layers too wide for blocks may have few entries
        made = sizes(*given, None)
    name = SPARSE.name if kernel is None else kernel.name
    return Plan(facts, name, is_single_window=False, sizes=made)


def plan_of(
    net: Network, X: RowSource, *, engine: Engine = "auto",
    deduplicate: bool | Literal["auto"] = "auto", memory: int = MEMORY,
    nthreads: int | None = None, callback: Any = None,
) -> Plan:  # fmt: skip
    """Return the plan of a run with these options; nothing is prepared or counted.

    Raises
    ------
    MissingPackageError
        ``engine="fused"``, and there are no compiled kernels for this processor.
    """
    kernel, inputs, is_dense = BLOCK_KERNELS.get(engine), X.nrows, X.dense_rows is not None
    if kernel is not None and kernel.is_compiled:
        required(X.dtype)
    here, is_small = machine(), is_dense and inputs <= costs.FEW_INPUTS
    # Counting the entries of a few inputs, or threads, may take longer than to follow the plan.
    if nthreads is None and is_small and inputs <= costs.SINGLES:
        alone = sharing(net.prepared(NetworkFacts.of), inputs, here.cores) == 1
        threads = 1 if alone else available()
    else:
        threads = nthreads or available()
    entries = inputs * X.ncols if is_small else X.nvals
    # More threads than cores would take turns on them.
    given = inputs, entries, is_dense, engine, memory, deduplicate, min(here.cores, threads)
    plan = net.prepared(_planned, here, *given, callback is not None, most=_PLANS)
    if is_small and not plan.is_single_window:
        threads = min(here.cores, nthreads or available())
        plan = choose(plan.facts._replace(entries=X.nvals, threads=threads))
    return plan


def _planned(net: Network, _: Machine, *given: Any) -> Plan:
    of_net = net.prepared(NetworkFacts.of)
    libraries: dict[str, Any] = {
        "is_compiled": functions(of_net.dtype) is not None,
        "has_library": of_any_processor(of_net.dtype) is not None,
    }
    return choose(Facts(of_net, *given, **libraries))


def plan_layers(net: Network, largest: float, kernel: BlockKernel | None) -> list[LayerPlan]:
    """Return the plans of all layers for features of at most `largest` in absolute value."""
    # Rounded up: few distinct plans are cached on the network.
    bound = min(magnitude for magnitude in (*MAGNITUDES, math.inf) if largest <= magnitude)
    return net.prepared(_layer_plans, kernel, bound)


def _layer_plans(net: Network, kernel: BlockKernel | None, largest: float) -> list[LayerPlan]:
    plans: list[LayerPlan] = []
    overflow = may_overflow(net.infos, largest)
    droppable = True
    for layer, check in zip(net.infos[::-1], overflow[::-1], strict=True):
        info, after = layer.info, droppable
        droppable = droppable and not info.revives
        in_blocks = kernel is not None and kernel.is_exact(info)
        plans.append(LayerPlan(info, in_blocks, droppable, after, check))
    return plans[::-1]


def fits_shallow(facts: NetworkFacts, inputs: int) -> bool:
    """Whether regrouping cannot help: the network is shallow, or inputs do not die."""
    drops = len(facts.infos) > costs.DEEP and not facts.infos[-1].revives
    return facts.is_exact and not (drops and inputs > costs.FEW_INPUTS)
