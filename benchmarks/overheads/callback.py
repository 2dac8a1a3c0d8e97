"""Measure the cost of a callback by interleaved runs with and without one.

    python benchmarks/overheads/callback.py --images MNIST --engine fused --json callback.json

The callback only stores its records. The table shows medians, and quartiles in brackets, of the
ratios of each pair of runs, in wall-clock time and processor time.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import options
import problems  # noqa: TC002 -- typer reads the annotations
import report
from turns import in_turn, quartiles, timed


def main(
    choice: problems.Choice,
    nthreads: options.Count = 1,
    engine: options.Several = None,
    rounds: Annotated[int, typer.Option(min=2, help="Pairs of runs.")] = 15,
    json_file: options.Json = None,
) -> None:
    """Run each kernel with and without a callback, and print the ratio of the times."""
    import gbdnn

    problem = choice.build()
    found = report.started(problem, rounds=rounds, nthreads=nthreads, runs={})
    rows = []
    for kernel in options.words(engine, ["fused", "full"]):

        def infer(kernel: str = kernel, **more: Any) -> None:
            gbdnn.infer(
                problem.network, problem.features, engine=kernel, nthreads=nthreads,
                deduplicate=False, **more,
            )  # fmt: skip

        def with_callback(infer: Any = infer) -> list[Any]:
            kept: list[Any] = []
            infer(callback=kept.append)
            return kept

        programs = {
            "without": timed(infer),
            "with": timed(with_callback, lambda kept: {"records": len(kept)}),
        }
        runs = found["runs"][kernel] = in_turn(programs, rounds).runs
        row = {"engine": kernel, "records": runs["with"][0]["records"]}
        rows.append(row | {"wall": _added(runs, "seconds"), "processor": _added(runs, "cpu")})
    report.table(rows)
    report.write(json_file, found)


def _added(runs: dict[str, list[dict[str, Any]]], key: str) -> str:
    pairs = zip(runs["with"], runs["without"], strict=True)
    low, middle, high = quartiles([100 * (mine[key] / other[key] - 1) for mine, other in pairs])
    return f"{middle:+.1f} % ({low:+.1f} to {high:+.1f})"


if __name__ == "__main__":
    options.run(main)
