"""OMP_WAIT_POLICY active, passive and unset, on a quiet machine and next to a busy process.

    python benchmarks/scale/wait_policy.py --json wait_policy.json

An OpenMP thread that waits for the next parallel region spins (active), sleeps (passive), or spins
for a while and then sleeps (unset). libgomp reads the variable when it is loaded, so every run has
its own process, which ends before the next one starts, since spinning threads would disturb it. The
time of a process is the median of its runs after a warm-up. The busy process is a loop that keeps
one core busy.

``GOMP_SPINCOUNT``, which overrides the policy, is removed from the environment.
``OMP_DISPLAY_ENV=true`` makes libgomp print the policy that is in force.
"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import typer

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import options
import problems
import report
from peers import KERNELS, PROGRAMS
from processes import busy
from turns import checked, in_turn

from gbdnn.thread_scaling.study import interval

POLICIES = ("unset", "active", "passive")
CONDITIONS = ("quiet", "busy")
RUNS = 3  # timed runs per process


def main(
    neurons: options.Count = 1024,
    layers: options.Count = 120,
    inputs: options.Count = 10_000,
    images: options.Images = None,
    nthreads: options.Cores = None,
    rounds: Annotated[int, typer.Option(min=1, help="Processes per policy.")] = 3,
    quick: options.Quick = False,
    json_file: options.Json = None,
) -> None:
    """Compare OpenMP wait policies; print seconds and ratios to the default."""
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        os.environ.pop(name, None)
    names = list(KERNELS)
    if quick:
        names, layers, inputs, rounds = ["gbdnn-sparse"], 12, 256, 1
    problem = problems.Choice(neurons, layers, inputs, images=images).build()
    found = report.started(problem, rounds=rounds)
    threads = found["threads"] = nthreads or int(found["machine"]["cores"])
    truth, found["checked_against"] = problems.true_categories(problem)
    with tempfile.TemporaryDirectory() as folder:
        problems.save(problem, Path(folder))
        once = partial(run, folder, inputs, threads, truth)
        kinds = [(c, name, p) for c in CONDITIONS for name in names for p in POLICIES]
        turns = in_turn({kind: partial(once, *kind) for kind in kinds}, rounds, warm=0)
    found["rows"] = []
    for condition, name, policy in kinds:
        key = condition, name, policy
        seconds, low, high = interval(turns.seconds(key))
        found["rows"].append({
            "condition": condition, "program": KERNELS[name], "policy": policy,
            "seconds": seconds, "seconds_low": low, "seconds_high": high,
            "check": min(run["check"] for run in turns.runs[key]),
            "to_unset": median(turns.ratios(key, (condition, name, "unset"))),
        })  # fmt: skip
    report.table(found["rows"])
    report.finish(json_file, found, found["rows"])


def run(folder: str, inputs: int, threads: int, truth: np.ndarray, *kind: str) -> dict[str, Any]:
    """Return the median time of one process under a policy."""
    condition, name, policy = kind
    environment = {} if policy == "unset" else {"OMP_WAIT_POLICY": policy}
    with (
        PROGRAMS.started([name], {}, folder, **environment) as able,
        busy() if condition == "busy" else nullcontext(),
    ):
        ask = partial(able[name].ask, nthreads=threads, batch=None, inputs=inputs)
        answers = [ask() for _ in range(1 + RUNS)]
    right = all(np.array_equal(each["categories"], truth) for each in answers)
    seconds = median(each["seconds"] for each in answers[1:])
    found = {"seconds": seconds, "check": checked(right)}
    print(f"{condition}, {KERNELS[name]}, {policy}: {seconds:.3f} s, {found['check']}", flush=True)
    return found


if __name__ == "__main__":
    options.run(main)
