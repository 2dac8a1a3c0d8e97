"""The gain of computing equal inputs once, by depth; the loss where none are equal.

    python benchmarks/overheads/merging.py --json merging.json

Every depth of one network runs with and without, in turn. A converged layer's time is what the
deepest network takes beyond the shallowest one, over the layers between. The network where nothing
becomes equal has weights drawn at random, without a clip, and dense inputs drawn at random.
"""

from __future__ import annotations

import gc
import sys
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import problems
import report
from turns import in_turn, timed

if TYPE_CHECKING:
    import graphblas as gb

    import gbdnn


def main(
    neurons: problems.Neurons = 1024,
    depths: Annotated[str, typer.Option(help="Numbers of layers.")] = "120,480,1920",
    inputs: problems.Inputs = None,
    images: problems.Images = None,
    seed: problems.Seed = 0,
    nthreads: Annotated[int, typer.Option(min=1)] = 2,
    rounds: Annotated[int, typer.Option(min=1, help="Timed runs of each.")] = 8,
    distinct_inputs: Annotated[int, typer.Option(min=1, help="Dense random inputs.")] = 20_000,
    distinct_layers: Annotated[int, typer.Option(min=1, help="Layers of random weights.")] = 60,
    json_file: problems.Json = None,
) -> None:
    """Time inference with and without merging."""
    layers = sorted(int(word) for word in depths.split(","))
    problem = problems.build(neurons, layers[-1], inputs, None, images, seed)
    found = report.facts(problem, rounds=rounds, nthreads=nthreads)
    report.heading(found)
    found["depths"] = [
        {"layers": depth, **_beside(problem.network[:depth], problem.features, rounds, nthreads)}
        for depth in layers
    ]
    for fewer, more in pairwise(found["depths"]):
        for way in ("with", "without"):
            seconds = median(more[way]) - median(fewer[way])
            more[f"layer_{way}"] = seconds / (more["layers"] - fewer["layers"])
    net, X = _random(neurons, distinct_layers, distinct_inputs, seed)
    found["distinct"] = _beside(net, X, rounds, nthreads)
    _print(found, f"{distinct_layers}, random weights, {distinct_inputs} dense inputs")
    report.write(json_file, found)


def _beside(net: gbdnn.Network, X: gb.Matrix, rounds: int, nthreads: int) -> dict[str, Any]:
    """Return seconds with and without; the first runs are not among them."""
    import gbdnn

    ways = {
        way: partial(gbdnn.infer, net, X, compress=compress, nthreads=nthreads)
        for way, compress in (("without", False), ("with", "auto"))
    }
    equal = ways["with"]().isequal(ways["without"]())
    gc.collect()
    # An answer's memory is there again before the next run.
    turns = in_turn(
        {way: timed(run) for way, run in ways.items()}, rounds, warm=0, told=lambda *_: gc.collect()
    )
    ratios = turns.ratios("without", "with")
    seconds = {way: turns.seconds(way) for way in ways}
    return {**seconds, "ratio": median(ratios), "ratios": ratios, "equal": equal}


def _random(neurons: int, layers: int, inputs: int, seed: int) -> tuple[gbdnn.Network, gb.Matrix]:
    """Return a network in which activations neither die, nor grow, nor become equal."""
    import graphblas as gb

    import gbdnn

    random = np.random.default_rng(seed)
    degree = min(32, neurons)
    made = []
    for _ in range(layers):
        rows = random.permuted(np.tile(np.arange(neurons), (neurons, 1)), axis=1)[:, :degree]
        # Half of all sums are positive: weights of variance 2 / degree keep the activations' size.
        values = random.normal(0, np.sqrt(2 / degree), rows.size).astype(np.float32)
        columns = np.repeat(np.arange(neurons), degree)
        W = gb.Matrix.from_coo(rows.reshape(-1), columns, values, nrows=neurons, ncols=neurons)
        made.append(gbdnn.Layer(W, copy=False))
    X = gb.Matrix.from_dense(random.random((inputs, neurons), np.float32))
    return gbdnn.Network(made), X


def _print(found: dict[str, Any], distinct: str) -> None:
    head = ["layers", "without s", "with s", "without / with", "ms a layer, without", "with"]
    rows = [
        (
            each["layers"],
            f"{median(each['without']):.3f}",
            f"{median(each['with']):.3f}",
            f"{each['ratio']:.2f}",
            f"{1e3 * each['layer_without']:.3f}" if "layer_without" in each else "",
            f"{1e3 * each['layer_with']:.3f}" if "layer_with" in each else "",
        )
        for each in [*found["depths"], {"layers": distinct, **found["distinct"]}]
    ]
    report.table(head, rows)
    same = all(each["equal"] for each in [*found["depths"], found["distinct"]])
    print(f"\nanswers with and without: {'equal' if same else 'DIFFERENT'}")
    if not same:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
