"""Train wide sparse networks, as Nerva and SET published them, on random data of the same shapes.

    python benchmarks/learning/wide.py --nthreads 2 --json wide.json
    python benchmarks/learning/wide.py --only "3072-32768x3-10, 1 %" --steps 20

Each network is trained in a process of its own. An epoch is timed by some of its steps, after as
many untimed ones, and scaled to its number of steps; `--steps 0` runs whole epochs. Peak memory
includes the creation of the network.

Nerva: CIFAR-10, 50,000 inputs, minibatches of 100, four threads; SET: the lung data, of which 135
inputs are for training, minibatches of 2, on a laptop.
"""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise, product
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

import gbdnn
from gbdnn.training import SGD, erdos_renyi

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import memory
import options
import report


class Case(NamedTuple):
    """A network, the shape of its data, and the published time of an epoch."""

    sizes: tuple[int, ...]
    density: float
    inputs: int
    batch: int
    published: float | None
    distribution: str = "uniform"


def _nerva(hidden: tuple[int, ...], density: float, published: float) -> Case:
    return Case((3072, *hidden, 10), density, 50_000, 100, published)


def _set(neurons: int, batch: int, minutes: float | None) -> Case:
    """Return a case with 10 (n + m) edges in a layer of n x m, three equal hidden layers."""
    hidden = neurons // 3
    sizes = (3312, hidden, hidden, hidden, 5)
    shapes = list(pairwise(sizes))
    edges = sum(min(10 * (n + m), n * m) for n, m in shapes)
    density = edges / sum(n * m for n, m in shapes)
    published = None if minutes is None else 60 * minutes
    return Case(sizes, density, 135, batch, published, "erk")


CASES = {
    **{
        f"3072-1024-512-10, {100 * density:g} %": _nerva((1024, 512), density, published)
        for density, published in
        ((0.001, 2.3), (0.01, 2.86), (0.05, 4.90), (0.1, 7.39), (0.2, 12.6))
    },
    **{
        f"3072-{hidden}x3-10, 1 %": _nerva((hidden,) * 3, 0.01, published)
        for hidden, published in ((4096, 35.5), (8192, 129), (16384, 1101), (32768, 4467))
    },
    "3312-300000x3-5, minibatches of 2": _set(900_000, 2, 49),
    "3312-600000x3-5, minibatches of 2": _set(1_800_000, 2, 112),
    "3312-600000x3-5, minibatches of 16": _set(1_800_000, 16, None),
}  # fmt: skip


def main(
    only: Annotated[list[str] | None, typer.Option(help="Name of a network; repeatable.")] = None,
    steps: Annotated[int, typer.Option(min=0, help="Timed steps; 0: all of an epoch.")] = 10,
    nthreads: options.Several = None,
    quick: options.Quick = False,
    json_file: options.Json = None,
) -> None:
    """Print the time of an epoch and the peak memory of wide sparse networks."""
    counts = options.numbers(nthreads, [2])
    if quick:
        only, steps = [next(iter(CASES))], 1
    if unknown := set(only or ()) - CASES.keys():
        raise typer.BadParameter(f"{', '.join(unknown)}; there are {'; '.join(CASES)}")
    found = report.started("wide sparse networks, FP32, SGD", nthreads=counts, wide=[])
    for name, count in product(only or CASES, counts):
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            found["wide"].append(pool.submit(_measured, name, steps, count).result())
        print(f"  {name}, {count} threads: {found['wide'][-1]['seconds']:.3g} s", flush=True)
        report.write(json_file, found)
    report.table([row | {"peak": memory.mib(row["peak"])} for row in found["wide"]])


def _measured(name: str, steps: int, nthreads: int) -> dict[str, Any]:
    case = CASES[name]
    whole = -(-case.inputs // case.batch)
    steps = min(steps or whole, whole)
    random = np.random.default_rng(0)
    inputs = steps * case.batch if steps < whole else case.inputs
    X = random.standard_normal((inputs, case.sizes[0]), dtype=np.float32)
    y = random.integers(0, case.sizes[-1], inputs)
    with memory.Peak() as peak:
        net = erdos_renyi(case.sizes, case.density, distribution=case.distribution)  # type: ignore[arg-type]
        edges = net.edges
        run = gbdnn.train(
            net, X, y, epochs=2, batch_size=case.batch, optimizer=SGD(1e-3), nthreads=nthreads
        )
    seconds = run.history[-1].seconds / steps
    return {
        "network": name, "edges": edges, "published": case.published, "threads": nthreads,
        "seconds": seconds * whole, "ms": 1e3 * seconds, "steps": steps, "peak": peak.most,
    }  # fmt: skip


if __name__ == "__main__":
    options.run(main)
