"""Measure the cost of a callback by interleaved runs with and without one.

    python benchmarks/overheads/callback.py --images MNIST --engine fused --json callback.json

The callback only stores its records. The table shows medians, and quartiles in brackets, of the
ratios of each pair of runs, in wall-clock time and processor time.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import options
import problems  # noqa: TC002 -- typer reads the annotations
import report
from turns import in_turn, quartiles, timed

if TYPE_CHECKING:
    from gbdnn.challenge import Problem


def main(
    choice: problems.Choice,
    nthreads: options.Count = 1,
    engine: options.Several = None,
    rounds: Annotated[int, typer.Option(min=2, help="Pairs of runs.")] = 15,
    json_file: options.Json = None,
) -> None:
    """Run each kernel with and without a callback, and print the ratio of the times."""
    problem = choice.build()
    found = report.started(problem, rounds=rounds, nthreads=nthreads, runs={})
    rows = []
    for kernel in options.words(engine, ["fused", "full"]):
        infer = partial(_infer, problem, kernel, nthreads)
        turns = in_turn(
            {
                "without": timed(infer),
                "with": timed(lambda run=infer: run([]), lambda kept: {"records": len(kept)}),
            },
            rounds,
        )
        pairs = [
            {way: (run["seconds"], run["cpu"]) for way, run in zip(turns.runs, both, strict=True)}
            | {"records": both[1]["records"]}
            for both in zip(*turns.runs.values(), strict=True)
        ]
        found["runs"][kernel] = pairs
        row = {"engine": kernel, "records": pairs[0]["records"]}
        rows.append(row | {"wall": _added(pairs, 0), "processor": _added(pairs, 1)})
    report.table(rows)
    report.write(json_file, found)


def _infer(problem: Problem, engine: str, nthreads: int, kept: list[Any] | None = None) -> Any:
    """Run without a callback, or with one that stores its records; return them."""
    import gbdnn

    gbdnn.infer(
        problem.network, problem.features, engine=engine, nthreads=nthreads, deduplicate=False,
        callback=None if kept is None else kept.append,
    )  # fmt: skip
    return kept


def _added(pairs: list[dict[str, Any]], at: int) -> str:
    percent = [100 * (pair["with"][at] / pair["without"][at] - 1) for pair in pairs]
    low, middle, high = quartiles(percent)
    return f"{middle:+.1f} % ({low:+.1f} to {high:+.1f})"


if __name__ == "__main__":
    options.run(main)
