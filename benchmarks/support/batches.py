"""Measured times of batches of inputs on the workers of an executor, for `replay`."""

from __future__ import annotations

import tempfile
from functools import partial
from operator import attrgetter
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import pools
from turns import checked, in_turn, timed

import gbdnn

if TYPE_CHECKING:
    from gbdnn.challenge import Problem

PARTS = (64, 16, 4, 1)
KINDS = {"static": (1, "given"), "hashed": (1, "hashed"), "dynamic": (4, "given")}
_KEPT = ("inputs", "alive", "entries", "bytes")


def measure(
    problem: Problem,
    workers: int,
    nthreads: int,
    rounds: int,
    truth: np.ndarray | None = None,
    pool: str = "spawned",
) -> dict[str, Any]:
    """Return the median seconds of batches: the inputs in 64, 16, 4 parts and 1, interleaved.

    All workers compute at the same time; several do not compute one part. Both orders are measured,
    the first half of the layers, and the batches of `KINDS`, which have one or four parts per
    worker. Categories are compared with `truth`, by default those of one process.
    """
    layers = len(problem.network)
    parts = PARTS if workers == 1 else PARTS[:3]
    cases = {f"{order}, {n}": (n, order, layers) for order in ("given", "hashed") for n in parts}
    cases |= {f"half, {n}": (n, "given", max(1, layers // 2)) for n in parts}
    cases |= {kind: (n * workers, order, layers) for kind, (n, order) in KINDS.items()}
    if truth is None:
        options: dict[str, Any] = {"deduplicate": False, "nthreads": workers * nthreads}
        truth = gbdnn.categories(gbdnn.infer(problem.network, problem.features, **options))
    with tempfile.TemporaryDirectory() as name, pools.opened(pool, workers) as executor:
        network = problem.network
        if pool != "threads":  # a worker reads the network once
            gbdnn.save(network, Path(name) / "net")
            network = gbdnn.load(Path(name) / "net")

        def once(parts: int, order: str, depth: int) -> dict[str, Any]:
            records: list[Any] = []
            size = -(-problem.inputs // parts)
            over = gbdnn.distributed.Workers(
                executor, count=workers, batch=size, order=order, stats=records.append
            )
            infer = partial(
                gbdnn.infer, network[:depth], problem.features,
                executor=over, nthreads=nthreads, deduplicate=False,
            )  # fmt: skip

            def then(Y: Any) -> dict[str, Any]:
                right = depth < layers or np.array_equal(gbdnn.categories(Y), truth)
                return {"records": sorted(records, key=attrgetter("batch")), "right": right}

            return timed(infer, then)()

        turns = in_turn({name: partial(once, *case) for name, case in cases.items()}, rounds)
    right = all(run["right"] for runs in turns.runs.values() for run in runs)
    found: dict[str, Any] = {
        "neurons": problem.network.shape[0],
        "layers": layers,
        "edges": problem.network.edges,
        "inputs": problem.inputs,
        "workers": workers,
        "threads": nthreads,
        "check": checked(right),
        "runs": {},
    }
    for name, runs in turns.runs.items():
        each = {key: [getattr(one, key) for one in runs[0]["records"]] for key in _KEPT}
        times = zip(*([one.seconds for one in run["records"]] for run in runs), strict=True)
        each["seconds"] = [median(batch) for batch in times]
        found["runs"][name] = each | {"wall": turns.median(name)}
    return found
