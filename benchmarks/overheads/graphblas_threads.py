"""Measure GraphBLAS's kernels by number of threads: seconds, processor seconds, and waits.

    python benchmarks/overheads/graphblas_threads.py --images MNIST --inputs 10000 --nthreads 1,2,16

Engine "lagraph" makes GraphBLAS's calls from Python, with OpenMP inside; "sparse" makes the same
calls from C, on threads with parts of the rows. Every input is computed. Waits are voluntary
context switches; engines are interleaved, and the table shows medians.
"""

from __future__ import annotations

import sys
from functools import partial
from itertools import product
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

import gbdnn

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import options
import problems  # noqa: TC002 -- typer reads the annotations
import report
from turns import in_turn

if TYPE_CHECKING:
    from collections.abc import Callable


def main(
    choice: problems.Choice,
    nthreads: options.Several = None,
    engine: options.Several = None,
    rounds: Annotated[int, typer.Option(min=1)] = 5,
    json_file: options.Json = None,
) -> None:
    """Compare engines and numbers of threads."""
    problem = choice.build()
    calls = {
        (kernel, threads): partial(
            gbdnn.infer, problem.network, problem.features, engine=kernel, nthreads=threads,
            deduplicate=False,
        )
        for kernel, threads in product(
            options.words(engine, ["lagraph", "sparse", "full"]), options.numbers(nthreads, [1, 2])
        )
    }  # fmt: skip
    turns = in_turn({name: partial(measured, call) for name, call in calls.items()}, rounds)
    cells = [
        {"engine": name[0], "threads": name[1]}
        | {what: median(run[what] for run in runs) for what in runs[0]}
        for name, runs in turns.runs.items()
    ]
    report.table(cells)
    report.write(json_file, report.started(problem, rounds=rounds, cells=cells))


def measured(call: Callable[[], Any]) -> dict[str, float]:
    """Return the time and the waits of a call."""
    before, began = getrusage(RUSAGE_SELF), perf_counter()
    call()
    seconds, after = perf_counter() - began, getrusage(RUSAGE_SELF)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": seconds, "processor s": used, "waits": after.ru_nvcsw - before.ru_nvcsw}


if __name__ == "__main__":
    options.run(main)
