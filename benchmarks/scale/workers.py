"""Workers beside one process; and a simulation of many workers from measured times of batches.

    python benchmarks/scale/workers.py --images MNIST --no-compress --json workers.json

Measured: one process with all threads and a spawned pool of one thread each, in turn, warm; the
pool's first calls apart. Simulated: the inputs, sorted by class and repeated, are computed in
batches on one thread; the batches' times are dealt to workers as a pool would deal them. What moves
over a network is not in it.
"""

from __future__ import annotations

import gzip
import heapq
import multiprocessing
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import problems
import report
from turns import in_turn, timed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import gbdnn


def main(
    neurons: problems.Neurons = 1024,
    layers: problems.Layers = 120,
    inputs: problems.Inputs = None,
    images: problems.Images = None,
    seed: problems.Seed = 0,
    compress: problems.Compress = True,
    workers: Annotated[int, typer.Option(min=1, help="Processes with a thread each.")] = 2,
    rounds: Annotated[int, typer.Option(min=1, help="Timed runs of each.")] = 5,
    replayed: Annotated[str, typer.Option(help="Workers that are simulated.")] = "8,24,100",
    copies: Annotated[int, typer.Option(min=1, help="Of the inputs, for the simulation.")] = 4,
    json_file: problems.Json = None,
) -> None:
    """Time workers, and simulate more of them."""
    import gbdnn

    problem = problems.build(neurons, layers, inputs, None, images, seed)
    found = report.facts(problem, rounds=rounds, workers=workers, compress=compress)
    report.heading(found)
    option = problems.merging(compress)
    with tempfile.TemporaryDirectory() as folder:
        gbdnn.save(problem.network, Path(folder, "net"))
        gbdnn.save(problem.features, Path(folder, "X"))
        found |= _measured(problem, Path(folder), workers, rounds, option)
    print(f"one process, {workers} threads: {median(found['one_process']):.3f} s")
    for kind in ("stored", "in memory"):
        seconds = found["pool"][kind]
        print(
            f"{workers} processes, a thread each, features {kind}: {median(seconds):.3f} s,"
            f" {median(found['ratio'][kind]):.2f} times as long"
        )
    first, second, third = found["calls"]
    print(f"first call {first:.2f} s, second {second:.3f}, third {third:.3f}")
    found["simulation"] = _simulated(problem, images, replayed, copies, option)
    for each in found["simulation"]:
        print(
            f"simulated: {each['workers']} workers, {each['inputs']} inputs sorted by class: over"
            f" the ideal, static {each['static']:.2f}, dynamic {each['dynamic']:.2f}, hashed"
            f" {each['hashed']:.2f}"
        )
    report.write(json_file, found)


def _measured(
    problem: Any, folder: Path, workers: int, rounds: int, option: dict[str, Any]
) -> dict[str, Any]:
    import gbdnn

    net, X = gbdnn.load(folder / "net"), gbdnn.io.open_features(folder / "X")
    whole: Callable[[], Any] = lambda: gbdnn.infer(  # noqa: E731
        problem.network, problem.features, nthreads=workers, **option
    )
    want = whole()
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:

        def checked(Y: Any) -> dict[str, Any]:
            if not np.array_equal(gbdnn.categories(Y), gbdnn.categories(want)):
                raise SystemExit("the categories differ")
            return {}

        infer = partial(gbdnn.infer, net, executor=pool, nthreads=1, **option)
        pools = {
            kind: timed(partial(infer, features), checked)
            for kind, features in (("stored", X), ("in memory", problem.features))
        }
        calls = [pools["stored"]()["seconds"] for _ in range(3)]
        turns = in_turn({"one": timed(whole), **pools}, rounds, warm=0)
    return {
        "one_process": turns.seconds("one"),
        "pool": {kind: turns.seconds(kind) for kind in pools},
        "ratio": {kind: turns.ratios(kind, "one") for kind in pools},
        "calls": calls,
    }


def _simulated(
    problem: Any, images: Path | None, replayed: str, copies: int, option: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return the time over the ideal, by how inputs are dealt."""
    from gbdnn.distributed.executors.batches import cuts, dealt

    order = np.argsort(_classes(problem.inputs, images), kind="stable").repeat(copies)
    hashed = order[dealt(len(order))]
    found = []
    for count in (int(word) for word in replayed.split(",")):
        starts = cuts(len(order), count)
        if len(starts) - 1 < 2 * count:
            print(f"simulated: {count} workers would want {2 * 2048 * count} inputs; skipped")
            continue
        ways = {
            "static": _times(problem, order, cuts(len(order), count, len(order) // count), option),
            "dynamic": _times(problem, order, starts, option),
            "hashed": _times(problem, hashed, starts, option),
        }
        over = {name: replay(times, count) / (sum(times) / count) for name, times in ways.items()}
        found.append({"workers": count, "inputs": len(order), **over, "seconds": ways})
    return found


def replay(seconds: Sequence[float], workers: int) -> float:
    """Return when the last worker is done if each takes the next batch as it becomes idle."""
    idle = [0.0] * workers
    for each in seconds:
        heapq.heapreplace(idle, idle[0] + each)
    return max(idle)


def _times(
    problem: Any, order: np.ndarray, starts: np.ndarray, option: dict[str, Any]
) -> list[float]:
    """Return the seconds of each batch on one thread, the faster of two runs."""
    import gbdnn

    net: gbdnn.Network = problem.network
    seconds = []
    for start, stop in pairwise(starts):
        X = problem.features[np.sort(order[start:stop]), :].new()
        runs = []
        for _ in range(2):
            began = perf_counter()
            gbdnn.infer(net, X, nthreads=1, **option)
            runs.append(perf_counter() - began)
        seconds.append(min(runs))
    return seconds


def _classes(inputs: int, images: Path | None) -> np.ndarray:
    """Return the class of each input: of MNIST's images, or of scikit-learn's digits."""
    from sklearn.datasets import load_digits

    from gbdnn.challenge.problems import training_images

    file = training_images(images) if images is not None else None
    if file is None:
        labels = load_digits().target
    else:
        with gzip.open(file.with_name("train-labels-idx1-ubyte.gz")) as content:
            labels = np.frombuffer(content.read(), np.uint8, offset=8)
    return np.resize(labels, inputs)


if __name__ == "__main__":
    typer.run(main)
