"""Simulate 1 to 1,000 machines from the measured times of batches on one.

    python benchmarks/scale/replay.py --network 4096x120 --inputs 20000 --json replay.json
    python benchmarks/scale/replay.py --measured threads.json --layers-to 1920

The first command measures batches on workers of this machine: spawned processes with one thread
each, or threads. The second takes them from an earlier run, or from the JSON of `threads.py`, where
one worker has all threads. A simulated machine is one such worker. With ``static`` and ``hashed``
batches each machine has one batch, of consecutive inputs or of inputs chosen by a hash; with
``dynamic`` ones a free machine takes the next of four batches per machine.

Several measured workers are compared with the simulation. The output lists the assumptions.
"""

from __future__ import annotations

import heapq
import json
import sys
from math import ceil, log2
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from scipy.optimize import nnls

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import batches
import options
import papers
import problems

NODES = (1, 2, 4, 8, 16, 20, 24, 32, 100, 1000)
ASSUMPTIONS = """\
A machine computes as fast as a measured worker does while all measured workers compute.
A batch takes the time per input of measured batches of its size (interpolated; of the largest \
size; below the smallest, a fixed time and a time per input), times its share of 64 parts' times.
Inputs beyond those measured repeat these. A layer beyond those measured takes the mean time of a \
layer in their second half, by size of batch, times the batch's share of the inputs alive.
Broadcast: every machine receives 4 bytes per edge, forwards them while it receives, and starts \
after a latency for each of log2(machines) steps.
The caller sends features, and receives answers, one batch after the other, each with a latency. A \
machine waits for its features, and is free when its answer is sent.
Published seconds are of inference alone: compare them with the slowest machine's."""


def main(
    network: Annotated[str, typer.Option(metavar="NxL", help="Neurons x layers.")] = "4096x120",
    inputs: Annotated[int, typer.Option(min=64, help="Measured inputs.")] = 20_000,
    images: options.Images = None,
    measured: Annotated[
        Path | None, typer.Option(metavar="FILE", help="JSON of this script or of threads.py.")
    ] = None,
    workers: options.Count = 2,
    nthreads: options.Count = 1,
    pool: Annotated[str, typer.Option(help="spawned, or threads for large networks.")] = "spawned",
    rounds: options.Rounds = 5,
    layers_to: Annotated[int | None, typer.Option(help="Simulate a deeper network.")] = None,
    inputs_to: Annotated[int, typer.Option(help="Simulated inputs.")] = problems.INPUTS,
    bandwidth: Annotated[float, typer.Option(help="Of a link, in GB/s.")] = 1.25,
    latency: Annotated[float, typer.Option(help="In microseconds.")] = 50.0,
    quick: options.Quick = False,
    json_file: options.Json = None,
) -> None:
    """Measure batches, or read their times, and simulate machines."""
    study = papers.Study(quick=quick, json_file=json_file)
    study.title = "Machines, simulated"
    if measured is not None:
        read = json.loads(measured.read_text(encoding="utf-8"))
        read = read.get("results", read)  # of `many_cores.py`
        every = read.get("measured") or [each["batches"] for each in read["networks"]]
    else:
        neurons, layers = map(int, network.split("x"))
        sizes = (8, 240) if quick else (layers, inputs)
        problem = problems.Choice(neurons, *sizes, images=images).build()
        every = [batches.measure(problem, workers, nthreads, 1 if quick else rounds, pool=pool)]
    for found in every:
        neurons, layers = found["neurons"], layers_to or found["layers"]
        if layers in (120, 480, 1920):
            study.published(neurons, layers, ["ellis", "mofrad"])
            study.scaling(neurons, layers)
        link = 1e9 * bandwidth, latency / 1e6
        study.rows += [
            simulated(found, kind, nodes, inputs_to, layers, *link)
            for kind in batches.KINDS
            for nodes in NODES
        ]
        study.rows += agreement(found)
    assumed = [*ASSUMPTIONS.splitlines(), f"{bandwidth} GB/s and {latency} us per message."]
    print(*assumed, sep="\n")
    study.end(assumptions=assumed, measured=every)


def simulated(
    found: dict[str, Any], kind: str, nodes: int, inputs: int, layers: int, rate: float, wait: float
) -> dict[str, Any]:
    """Return the row of a number of machines, with links of `rate` bytes per second."""
    n, order = batches.KINDS[kind]
    ends = np.linspace(0, inputs, min(inputs, n * nodes) + 1)
    last, busy = play(*costs(found, order, ends, layers), nodes, rate, wait)
    alone = costs(found, "given", np.array([0, inputs]), layers)[0].sum()
    spread = 4 * found["edges"] / found["layers"] * layers / rate + wait * ceil(log2(nodes))
    return {
        "network": f"{found['neurons']} x {layers}",
        "program": f"gbdnn, {kind} batches",
        "on": f"{nodes} x {found['threads']} threads",
        "inputs": inputs,
        "answer": "simulated" if found["check"] == "PASSED" else "WRONG",
        "seconds": float(busy.max()),
        "edges/s": inputs * found["edges"] / found["layers"] * layers / busy.max(),
        "broadcast, s": spread if nodes > 1 else 0.0,
        "with features and answers, s": last,
        "efficiency": float(alone / (nodes * last)),
        "max / mean": float(busy.max() / busy.mean()),
    }


def costs(
    found: dict[str, Any], order: str, ends: np.ndarray, layers: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return seconds, bytes of features and bytes of the answer of batches of inputs.

    Batch k has the inputs from ``ends[k]`` to ``ends[k + 1]`` in an order, "given" or "hashed".
    """
    runs = found["runs"]
    fine = {key: np.array(each) for key, each in runs[f"{order}, 64"].items()}
    answers = np.minimum(6 * fine["entries"] + 4 * fine["inputs"], fine["bytes"])
    shares = [fine[key] / max(1e-12, fine[key].sum()) for key in ("seconds", "alive")]
    times = ceil(ends[-1] / found["inputs"])
    at, *sums = (
        np.append(0, np.cumsum(np.tile(each, times)))
        for each in (fine["inputs"], *shares, fine["bytes"] - answers, answers)
    )
    work, alive, features, answers = (np.diff(np.interp(ends, at, each)) for each in sums)
    sizes, deeper = np.diff(ends), layers - found["layers"]
    whole, half = (per_input(runs, sizes, which) for which in ("given", "half"))
    layer = np.maximum(0, whole - half) / (found["layers"] - found["layers"] // 2)
    own = per_input(runs, sizes, order)
    seconds = found["inputs"] * (work * own + deeper * alive * layer)
    return seconds, features, answers


def per_input(runs: dict[str, Any], sizes: np.ndarray, which: str) -> np.ndarray:
    """Return the mean seconds of an input in batches of some sizes."""
    some = [runs[f"{which}, {n}"] for n in batches.PARTS if f"{which}, {n}" in runs]
    known = np.array([each["inputs"][0] for each in some], float)
    rates = np.array([sum(each["seconds"]) / sum(each["inputs"]) for each in some])
    slope = max(0.0, (known[1] * rates[1] - known[0] * rates[0]) / (known[1] - known[0]))
    fixed = max(0.0, known[0] * (rates[0] - slope))
    found = np.interp(np.log(sizes), np.log(known), rates)
    return np.where(sizes < known[0], slope + fixed / sizes, found)


def play(
    seconds: np.ndarray,
    features: np.ndarray,
    answers: np.ndarray,
    workers: int,
    rate: float = np.inf,
    wait: float = 0.0,
) -> tuple[float, np.ndarray]:
    """Return when the last answer arrives, and how long each worker computes.

    The next batch goes to the worker that is free first.
    """
    free = [(0.0, k) for k in range(workers)]
    busy, link, ends = np.zeros(workers), 0.0, []
    for taken, sent, answer in zip(seconds, features, answers, strict=False):
        at, k = heapq.heappop(free)
        link = max(at, link) + wait + sent / rate
        busy[k] += taken
        ends.append((link + taken, answer / rate))
        heapq.heappush(free, (sum(ends[-1]), k))
    last = 0.0
    for done, arriving in sorted(ends):
        last = max(last, done) + arriving
    return last, busy


def agreement(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return rows that compare measured and simulated seconds on several workers.

    The caller's own time, fixed and per batch, is what the runs in 64, 16 and 4 parts take in
    addition to the workers' times.
    """
    runs, workers = found["runs"], found["workers"]
    rows: list[dict[str, Any]] = []
    for kind, (n, order) in batches.KINDS.items() if workers > 1 else ():
        known = [runs[f"{order}, {parts}"] for parts in batches.PARTS[:3]]
        A = np.array([[1, len(each["seconds"])] for each in known])
        zero = np.zeros(max(batches.PARTS))
        rest = [each["wall"] - play(each["seconds"], zero, zero, workers)[0] for each in known]
        ends = np.append(0, np.cumsum(runs[kind]["inputs"]))
        each = costs(found, order, ends, found["layers"])
        own = np.array([1, n * workers]) @ nnls(A, np.maximum(0, rest))[0]
        seconds, wall = float(play(*each, workers)[0] + own), runs[kind]["wall"]
        rows.append(
            {
                "network": f"{found['neurons']} x {found['layers']}",
                "program": f"gbdnn, {kind} batches",
                "on": f"{workers} workers of {found['threads']} threads",
                "inputs": found["inputs"],
                "seconds": wall,
                "answer": "right" if found["check"] == "PASSED" else "WRONG",
                "simulated, s": seconds,
                "simulated / measured": seconds / wall,
            }
        )
    return rows


if __name__ == "__main__":
    options.run(main)
