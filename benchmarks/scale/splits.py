"""What it costs to share a run out over processes, by a model: three ways, side by side.

    python benchmarks/scale/splits.py --neurons 4096 --layers 120 --ranks 2 --inputs 20000
    python benchmarks/scale/splits.py NET --ranks 4 --bandwidth 1e8

The network is generated, or read from a store.

===============  ===================================  ==========================================
split            every rank                           what moves
===============  ===================================  ==========================================
data parallel    all layers, a share of the inputs    the weights to each rank, features, answer
pipeline         some layers, the inputs that come    its own weights, features, survivors, answer
by neurons       a share of each layer's neurons      its own weights, activations of every layer
===============  ===================================  ==========================================

A split by neurons is not built: each layer waits for the activations of all ranks.

The model has the speed of one machine, and the activity of the challenge's networks on MNIST's
images: it compares ways, and is no forecast.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import typer

import gbdnn
from gbdnn.arrays.checks import whole_number
from gbdnn.distributed.mpi.stages import balanced_cuts
from gbdnn.engine.choice import MEMORY, layer_bytes
from gbdnn.errors import ArgumentError
from gbdnn.kernels import costs

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import problems  # noqa: TC002 -- typer reads the annotations
import report

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gbdnn.model.layer_info import LayerInfo

BANDWIDTH = 1.25e9  # bytes a second of a rank's link: 10 Gbit/s

# The challenge's networks, measured: share of the inputs that live behind layers 0, 1, ..., and of
# a living input's activations that are not 0; later layers as the last number.
_LIVING = (0.98, 0.78, 0.47, 0.24, 0.13, 0.07)
_DENSITY = (0.26, 0.18, 0.21, 0.32, 0.54, 0.63, 1.0)
_DENSITY_OF_OTHERS = 0.5  # a ReLU lets half of the sums through
_MULTIPLY_ADD = costs.MACHINES["AVX-512"].fused  # on any machine
_BATCH = 4096  # inputs of a pipeline's batch
_CLEARLY = 0.9  # of the seconds of the simpler way


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitCost:
    """What one way to split a run costs.

    Attributes
    ----------
    name : {"data parallel", "pipeline", "by neurons"}
        How it is split.
    moved : int
        Bytes that all ranks get from files and from each other.
    seconds : float
        Of the slowest rank, at the cost model's speed.
    computing : float
        The part of them in which it computes.
    memory : int
        Bytes of the rank that needs most, but for the interpreter and its libraries.
    built : bool
        Whether gbdnn can do it.
    """

    name: Literal["data parallel", "pipeline", "by neurons"]
    moved: int
    seconds: float
    computing: float
    memory: int
    built: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPlan:
    """The ways to share a run out over ranks.

    Attributes
    ----------
    ranks, inputs : int
        How many.
    cuts : tuple of int
        The first layers of the pipeline's ranks 1, 2, ....
    costs : tuple of SplitCost
        Data parallel, pipeline, by neurons.
    best : SplitCost
        Which to take: data parallel, unless a pipeline takes less than 0.9 times its seconds.
    """

    ranks: int
    inputs: int
    cuts: tuple[int, ...]
    costs: tuple[SplitCost, ...]
    best: SplitCost


def plan_split(
    infos: Sequence[LayerInfo],
    ranks: int,
    inputs: int,
    *,
    density: float = 0.1,
    living: float = 0.05,
    memory: int = MEMORY,
    bandwidth: float = BANDWIDTH,
    nthreads: int = 1,
) -> SplitPlan:
    """Return what each way costs to share a run out over ranks.

    Parameters
    ----------
    infos : sequence of LayerInfo
        At least one layer: ``net.infos``.
    ranks, inputs : int
        How many.
    density : float, default 0.1
        Share of the features that is not 0.
    living : float, default 0.05
        Share of the inputs that live to the end, where dead ones can be dropped at all: in networks
        with a bias below 0, or the rule ``entries`` and none above.
    memory : int, default 512 MiB
        Working memory of a rank, as ``memory=`` of `infer`. Data parallel ranks stream the weights
        in it.
    bandwidth : float, default 1.25e9
        Bytes a second that a rank gets, from files and from other ranks.
    nthreads : int, default 1
        Threads of a rank.

    Returns
    -------
    SplitPlan

    Raises
    ------
    ArgumentError
        A number has no meaning, or there is no layer.

    Notes
    -----
    Seconds are those of the fused kernel by ``gbdnn.kernels.costs``, every input computed, weights
    read while computing.
    """
    if not infos:
        raise ArgumentError("a network without layers: there is nothing to share out")
    whole_number(ranks, "ranks", least=1)
    whole_number(inputs, "inputs", least=0)
    if not bandwidth > 0:
        raise ArgumentError(f"bandwidth is a number of bytes a second > 0, not {bandwidth}")
    run = _Estimate(infos, inputs, density, living, nthreads)
    cuts = balanced_cuts(run.seconds, run.bytes / bandwidth, ranks)
    found = (
        _data_parallel(run, ranks, memory, bandwidth),
        _pipeline(run, cuts, memory, bandwidth),
        _by_neurons(run, ranks, memory, bandwidth),
    )
    data, pipeline, _ = found
    best = pipeline if pipeline.seconds < _CLEARLY * data.seconds else data
    return SplitPlan(ranks=ranks, inputs=inputs, cuts=cuts, costs=found, best=best)


class _Estimate:
    """A run, layer by layer: arrays of seconds of one rank alone, and of bytes.

    Attributes
    ----------
    seconds, weights, held : ndarray, shape (layers,)
        Of computing; of the weights in a file, and in memory.
    bytes : ndarray, shape (layers + 1,)
        Of the rows before each layer, and of the answer.
    """

    def __init__(
        self,
        infos: Sequence[LayerInfo],
        inputs: int,
        density: float,
        living: float,
        nthreads: int,
    ) -> None:
        after = range(len(infos))
        if _loses_inputs(infos):
            live = [max(_LIVING[k], living) if k < len(_LIVING) else living for k in after]
            dense = [_DENSITY[min(k, len(_DENSITY) - 1)] for k in after]
        else:
            live, dense = [1.0] * len(infos), [_DENSITY_OF_OTHERS] * len(infos)
        itemsize = infos[0].dtype.itemsize
        rows = inputs * np.array([1.0, *live])
        width = np.array([infos[0].nrows, *(info.ncols for info in infos)])
        index = np.where(width <= 1 << 16, 2, 4)
        self.bytes = rows * (16 + width * np.array([density, *dense]) * (index + itemsize))
        layer = [i.edges * _MULTIPLY_ADD + i.ncols * costs.PASS for i in infos]
        self.seconds = 1e-9 * rows[:-1] * np.array(layer) / nthreads
        self.weights = np.array([i.edges * (4 + itemsize) + 8.0 * (i.ncols + 1) for i in infos])
        self.held = np.array([float(layer_bytes(info)) for info in infos])
        self.inputs = inputs


def _loses_inputs(infos: Sequence[LayerInfo]) -> bool:
    """Whether inputs may die, and stay dead."""
    lowers = any(info.lowest_bias < 0 and info.activation == "relu" for info in infos)
    return lowers and not any(info.revives or info.highest_bias > 0 for info in infos)


def _data_parallel(run: _Estimate, ranks: int, memory: int, bandwidth: float) -> SplitCost:
    """Every rank takes its inputs through all layers, and streams those that memory cannot hold."""
    weights = float(run.weights.sum())
    passes = 1.0
    if run.held.sum() > memory:
        queued = float(run.bytes[1:].max()) / ranks
        passes = max(1.0, np.ceil(queued / max(memory // 2, 1)))
    share = float(run.bytes[0] + run.bytes[-1]) / ranks
    computing = float(run.seconds.sum()) / ranks
    return SplitCost(
        name="data parallel",
        moved=int(ranks * (passes * weights + share)),
        seconds=max(computing, passes * weights / bandwidth) + share / bandwidth,
        computing=computing,
        memory=int(memory + min(run.held.sum(), memory) + share),
        built=True,
    )


def _pipeline(run: _Estimate, cuts: Sequence[int], memory: int, bandwidth: float) -> SplitCost:
    """Every rank holds its layers; sending and computing overlap, but for the first batch."""
    parts = list(pairwise([0, *cuts, len(run.seconds)]))
    computing = [float(run.seconds[a:b].sum()) for a, b in parts]
    moving = [float(run.bytes[a] + run.bytes[b]) / bandwidth for a, b in parts]
    reading = max(float(run.weights[a:b].sum()) for a, b in parts) / bandwidth
    first = min(1.0, _BATCH / max(run.inputs, 1)) * (sum(computing) - max(computing))
    return SplitCost(
        name="pipeline",
        moved=int(run.weights.sum() + run.bytes[[0, *cuts, -1]].sum()),
        seconds=reading + max(map(max, zip(computing, moving, strict=True))) + first,
        computing=max(computing),
        memory=int(memory + max(run.held[a:b].sum() for a, b in parts) + 2 * run.bytes[-1]),
        built=True,
    )


def _by_neurons(run: _Estimate, ranks: int, memory: int, bandwidth: float) -> SplitCost:
    """Every rank computes its neurons of a layer, and gets the others' before the next one."""
    weights = float(run.weights.sum()) / ranks
    exchanged = float(run.bytes[1:-1].sum()) * (ranks - 1) / ranks
    computing = float(run.seconds.sum()) / ranks
    ends = float(run.bytes[0] + run.bytes[-1] / ranks)
    return SplitCost(
        name="by neurons",
        moved=int(ranks * (weights + exchanged + ends)),
        seconds=computing + (weights + exchanged + ends) / bandwidth,
        computing=computing,
        memory=int(memory + run.held.sum() / ranks + run.bytes[0] + run.bytes[-1] / ranks),
        built=False,
    )


def main(
    path: Annotated[
        Path | None,
        typer.Argument(metavar="NET", help="A stored network; default: a generated one."),
    ] = None,
    neurons: problems.Neurons = 4096,
    layers: problems.Layers = 120,
    inputs: Annotated[int, typer.Option(min=0, help="Number of inputs.")] = 20_000,
    ranks: Annotated[int, typer.Option(min=1, help="Processes of one thread.")] = 2,
    memory: Annotated[float, typer.Option(help="Working memory of a process, in MiB.")] = 512,
    bandwidth: Annotated[float, typer.Option(help="Bytes a second of its link.")] = BANDWIDTH,
    json_file: problems.Json = None,
) -> None:
    """Compare the ways to share a run out over processes."""
    net = gbdnn.radixnet(neurons, layers, lazy=True) if path is None else gbdnn.load(path)
    if not isinstance(net, gbdnn.Network):
        raise typer.BadParameter(f"{path} holds no network")
    plan = plan_split(net.infos, ranks, inputs, memory=int(memory * 2**20), bandwidth=bandwidth)
    typer.echo(
        f"{ranks} processes of one thread, {inputs:,} inputs, {bandwidth / 1e6:,.4g} MB/s;"
        f" a pipeline cut at {list(plan.cuts)}:"
    )
    report.table(
        ["split", "MB moved", "seconds", "MB of a process", ""],
        [
            [
                way.name,
                f"{way.moved / 1e6:,.1f}",
                f"{way.seconds:.3g}",
                f"{way.memory / 1e6:,.1f}",
                "take this" if way is plan.best else "" if way.built else "not built",
            ]
            for way in plan.costs
        ],
    )
    found: dict[str, Any] = asdict(plan)
    report.write(json_file, found | {"bandwidth": bandwidth})


if __name__ == "__main__":
    typer.run(main)
