"""Measure the constants of `gbdnn.kernels.costs.Speeds` on this processor.

    python benchmarks/limits/constants.py --json constants.json

The cost of an edge is measured with networks of equal layers with random patterns and dense inputs
on one thread. For the sparse kernel, the time of a new entry relative to a product is fitted to
layers of sparse inputs; each layer allocates new arrays, which is expensive on some virtual
machines. Add a record for another kind of processor to ``SPEEDS``.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # read when NumPy is imported

import numpy as np
import typer

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import options
import report
from turns import repeated

if TYPE_CHECKING:
    from collections.abc import Callable

    import gbdnn

_FEW, _MANY = 32, 128  # edges per neuron


def main(
    neurons: Annotated[int, typer.Option(min=_MANY, help="Neurons per layer.")] = 1024,
    layers: options.Count = 8,
    inputs: options.Count = 960,
    rounds: options.Rounds = 9,
    json_file: options.Json = None,
) -> None:
    """Measure the constants; print them with those that gbdnn uses."""
    import graphblas as gb

    import gbdnn
    from gbdnn.kernels.costs import Speeds, speeds
    from gbdnn.runtime.machine import machine, processor_name

    def ns(call: Callable[[], object]) -> float:
        return median(repeated(call, rounds)) * 1e9 / (inputs * layers * neurons)

    def full(net: gbdnn.Network) -> Callable[[], object]:
        return lambda: gbdnn.infer(net, X, engine="full", nthreads=1, deduplicate=False)

    def fused(net: gbdnn.Network) -> Callable[[], object]:
        call = gbdnn.compile(net, nthreads=1)
        return lambda: call(X)

    def by_edge(kernel: Callable[[gbdnn.Network], Callable[[], object]]) -> float:
        few, many = (ns(kernel(network(edges))) for edges in (_FEW, _MANY))
        return (many - few) / (_MANY - _FEW)

    def network(edges: int) -> gbdnn.Network:
        made = []
        for _ in range(layers):
            W = np.zeros((neurons, neurons), np.float32)
            for j in range(neurons):
                W[random.choice(neurons, edges, replace=False), j] = 1 / edges
            made.append(gbdnn.Layer(W, 0.0, dtype="FP32"))
        return gbdnn.Network(made)

    def entry() -> float:
        counts, times = [], []
        for edges in (_FEW, _MANY):
            net = network(edges)[:1]
            for share in (0.01, 0.03, 0.1):
                some = random.random((inputs, neurons)) < share
                few = gb.Matrix.from_dense(some.astype(np.float32), missing_value=0)
                runs: list[gbdnn.inference.LayerStats] = []
                infer = partial(gbdnn.infer, net, few, engine="sparse", callback=runs.append)
                repeated(partial(infer, nthreads=1), rounds)
                counts.append([int(few.nvals) * edges, runs[0].entries])
                times.append(median(run.seconds for run in runs) * 1e9)
        products, entries = np.array(counts, float).T / times  # weights relative errors equally
        return float(entries @ (1 - products) / (entries @ entries))

    random = np.random.default_rng(0)
    X = random.random((inputs, neurons), dtype=np.float32) + 0.5
    W = random.random((neurons, neurons), dtype=np.float32)
    found = Speeds(
        full=by_edge(full),
        fused=by_edge(fused),
        dense=ns(fused(network(neurons))) / neurons,
        product=ns(lambda: X @ W) * layers / neurons,
        entry=entry(),
    )
    vectors, caches = machine().vectors, machine().caches
    print(f"{processor_name()}, {vectors}, caches {caches}")
    names = zip(Speeds._fields, found, speeds(), strict=True)
    head = ("ns in FP32", "measured", "gbdnn takes")
    report.table([dict(zip(head, each, strict=True)) for each in names])
    facts = report.circumstances() | {"vectors": vectors, "caches": caches}
    report.write(json_file, {**facts, "constants": found._asdict()})


if __name__ == "__main__":
    options.run(main)
