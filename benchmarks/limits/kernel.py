"""How fast a layer is by itself: the fused form's, and the full form's product, by width.

    python benchmarks/limits/kernel.py --nthreads 1 --nthreads 2 --json kernel.json

The product is SuiteSparse's `saxpy5`; bias and activation, which the fused form's layer includes,
come on top of it. Both are timed on blocks of several widths, with the neurons as given and
reordered, on layers of the network sampled evenly. Each thread has blocks of its own.
"""

from __future__ import annotations

import sys
import threading
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import graphblas as gb
import numpy as np
import typer

from gbdnn.kernels import full
from gbdnn.kernels.blocks import AlignedBlock, Block, padded
from gbdnn.kernels.buffers import Buffers
from gbdnn.kernels.form import ChainLayers
from gbdnn.kernels.fused import FUSED
from gbdnn.kernels.fused_chain import FusedChain
from gbdnn.kernels.reorder import orders

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import problems
import report

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gbdnn.model.layer import Layer
    from gbdnn.model.network import Network

    Step = Callable[[], object]

WIDTHS = (16, 32, 48, 64, 80, 112, 128, 144, 176, 192, 208, 240, 304)

# A block beyond this many bytes is not tried: it is far beyond every cache.
_LARGEST = 24 << 20


def main(
    neurons: problems.Neurons = 1024,
    layers: problems.Layers = 120,
    data: problems.Data = None,
    seed: problems.Seed = 0,
    nthreads: problems.Threads = None,
    repeat: Annotated[int, typer.Option(min=1, help="Times that a layer is timed.")] = 7,
    sample: Annotated[int, typer.Option(min=1, help="Layers that are timed.")] = 12,
    width: Annotated[
        list[str] | None,
        typer.Option(metavar="N", help="Inputs per block; several by comma or repetition."),
    ] = None,
    json_file: problems.Json = None,
) -> None:
    """Print multiply-adds per second of both, as given and reordered."""
    import hardware

    counts = problems.thread_counts(nthreads, [1])
    widths = problems.numbers(width, "--width", list(WIDTHS))
    problem = problems.build(neurons, layers, 1, data, None, seed)
    found = report.facts(problem, repeat=repeat)
    report.heading(found)
    ks = sampled(len(problem.network), sample)
    found["sampled_layers"] = ks
    found["sweeps"] = {}
    for count in counts:
        before = hardware.rates(count)
        rows = [
            {"form": form, **row}
            for form in ("full", "fused")
            for row in sweep(problem.network, ks, repeat, count, widths, form)
        ]
        after = hardware.rates(count)
        rates = {cache: (before[cache] + after[cache]) / 2 for cache in before}
        found["sweeps"][count] = {"hardware": rates, "rows": rows}
        _print(count, rates, rows)
    report.write(json_file, found)


def sampled(layers: int, count: int) -> list[int]:
    """Return `count` layers spread evenly over a network, the first and the last among them."""
    return sorted({round(at) for at in np.linspace(0, layers - 1, min(count, layers))})


def sweep(
    net: Network,
    ks: Sequence[int],
    repeat: int,
    nthreads: int,
    widths: Sequence[int] = WIDTHS,
    form: str = "full",
) -> list[dict[str, Any]]:
    """Return multiply-adds per second for each numbering and width, all threads together.

    Each of `nthreads` threads has its own blocks and takes the layers `ks` in turn, `repeat` times,
    GraphBLAS on one thread in each. A layer's time is its median, its rate the sum over threads;
    ``rate`` is that of all layers together, ``rates`` are the layers' own. Widths that the full
    form does not have are left out there.
    """
    neurons = max(max(layer.shape) for layer in net)
    if form == "fused":
        FUSED.load(net[0].dtype)
    rows = []
    for name, prepared in _numberings(net, ks, form).items():
        for width in widths:
            if form == "full" and width != padded(width):
                continue
            if width > 16 and width * neurons * net[0].dtype.itemsize > _LARGEST:
                continue
            make = _full_steps if form == "full" else _fused_steps
            layers = [net[k] for k in ks]
            seconds = _side_by_side(partial(make, layers, prepared, width), repeat, nthreads)
            work = np.array([width * layer.edges for layer in layers], float)
            rows.append(
                {
                    "numbering": name,
                    "width": width,
                    "rate": float(sum(work.sum() / one.sum() for one in seconds)),
                    "rates": sum(work / one for one in seconds).tolist(),
                }
            )
    return rows


def _numberings(net: Network, ks: Sequence[int], form: str) -> dict[str, list[Any]]:
    """Return weights of some layers, with the neurons as given and reordered."""
    prepare = (full.FULL if form == "full" else FUSED).prepare
    order = net.prepared(orders)
    return {
        "as given": [prepare(net[k], None, None) for k in ks],
        "reordered": [prepare(net[k], *order[k : k + 2]) for k in ks],
    }


def _full_steps(
    layers: Sequence[Layer], weights: Sequence[Any], width: int
) -> list[tuple[Step, Step]]:
    """Return for each layer its product, and what is to be done before the next round."""
    blocks: dict[tuple[int, int], Block] = {}
    steps = []
    for layer, each in zip(layers, weights, strict=True):
        for role, neurons in enumerate(layer.shape):
            if (neurons, role) not in blocks:
                blocks[neurons, role] = Block(neurons, width, layer.dtype)
                blocks[neurons, role].array.fill(1)
        Y, Z = blocks[layer.nrows, 0], blocks[layer.ncols, 1]
        # Sums that grow for ever would overflow.
        steps.append((partial(full.multiply, Y, Z, each.W), partial(Z.array.fill, 1)))
    return steps


def _fused_steps(
    layers: Sequence[Layer], weights: Sequence[Any], width: int
) -> list[tuple[Step, Step]]:
    """Return for each layer a call of the compiled code, and nothing to be done afterwards."""
    neurons, none = max(max(layer.shape) for layer in layers), [None] * len(layers)
    buffers = Buffers(layers[0].dtype, 0, AlignedBlock, (neurons, width))
    infos, no = [layer.info for layer in layers], [False] * len(layers)
    chain = FusedChain(
        ChainLayers(first=0, infos=infos, weights=weights, droppable=no, checked=no, positions=none)
    )
    blocks = [chain.block(buffers, 0, width) for _ in range(2)]
    for block in blocks:
        block.flat.fill(1)
    buffers.put(blocks.pop())

    def step(k: int) -> None:
        Y = blocks.pop()
        Y.neurons, Y.inputs = layers[k].nrows, np.arange(width)
        Y, _ = chain.run(Y, k, k + 1, buffers, tidy=False, counts=None, stands=None)
        blocks.append(Y)

    return [(partial(step, k), lambda: None) for k in range(len(layers))]


def _side_by_side(
    make: Callable[[], list[tuple[Step, Step]]], repeat: int, nthreads: int
) -> list[np.ndarray]:
    """Return for each thread the median seconds of each step, all threads at work."""
    start = threading.Barrier(nthreads)
    seconds: list[np.ndarray] = []

    def work() -> None:
        with gb.ss.Context(engage=False, nthreads=1):
            steps = make()
            taken = np.empty((repeat, len(steps)))
            _round(steps)
            start.wait()
            for each in taken:
                each[:] = _round(steps)
        seconds.append(np.array([median(column) for column in taken.T]))

    threads = [threading.Thread(target=work) for _ in range(nthreads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(seconds) < nthreads:
        raise SystemExit("a thread failed")
    return seconds


def _round(steps: list[tuple[Step, Step]]) -> list[float]:
    """Return the seconds of each step."""
    taken = []
    for step, reset in steps:
        began = perf_counter()
        step()
        taken.append(perf_counter() - began)
        reset()
    return taken


def _print(count: int, hardware: dict[str, float], rows: list[dict[str, Any]]) -> None:
    found = {(row["form"], row["numbering"], row["width"]): row["rate"] for row in rows}
    columns = [(form, name) for name in ("as given", "reordered") for form in ("full", "fused")]

    def cell(*key: Any) -> str:
        return f"{found[key] / 1e9:.1f}" if key in found else "-"

    head = [f"inputs per block, {count} threads"]
    head += [f"{'saxpy5' if form == 'full' else form}, {name}" for form, name in columns]
    widths = sorted({width for *_, width in found})
    report.table(head, [(width, *(cell(*column, width) for column in columns)) for width in widths])
    best = [max(rate for key, rate in found.items() if key[:2] == column) for column in columns]
    print("best:", ", ".join(f"{rate / 1e9:.1f}" for rate in best), "G multiply-adds/s")
    told = ", ".join(f"{rate / 1e9:.1f} from {cache}" for cache, rate in hardware.items())
    print(f"the hardware's, with a load each: {told}")


if __name__ == "__main__":
    typer.run(main)
