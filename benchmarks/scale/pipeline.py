"""Compare a pipeline of ranks with one process with the same number of threads.

    mpiexec -n 2 --bind-to none python benchmarks/scale/pipeline.py --images DIR --cuts 3 --cuts 60

Each rank has one thread. All ranks run on one machine and communicate through its memory. The table
shows seconds and bytes sent for each cut.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from time import sleep
from typing import Annotated, Any

import typer

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import options
import problems
import report
from turns import checked, in_turn, timed

USUAL = problems.Choice(neurons=4096, inputs=20_000)


def main(
    choice: problems.Choice = USUAL,
    cuts: Annotated[
        list[str] | None,
        typer.Option(metavar="K,...", help="First layers of ranks 1, 2, ...; may be repeated."),
    ] = None,
    rounds: options.Rounds = 3,
    deduplicate: options.Deduplicate = True,
    json_file: options.Json = None,
) -> None:
    """Time one process and the pipeline, interleaved, and print medians."""
    from mpi4py import MPI

    import gbdnn

    comm = MPI.COMM_WORLD
    # Only the first rank needs the features.
    problem = choice.build(**({"inputs": 1, "images": None} if comm.rank else {}))
    net, X, given = problem.network, problem.features, problems.merging(deduplicate)
    asked = [None, *(list(map(int, each.split(","))) for each in cuts or [])]
    reports: dict[str, Any] = {}

    def one_process() -> Any:
        return None if comm.rank else gbdnn.infer(net, X, nthreads=comm.size, **given)

    expected = one_process()

    def pipeline(name: str, cuts: list[int] | None) -> Any:
        return gbdnn.distributed.pipeline(
            net, X, comm=comm, cuts=cuts, nthreads=1, **given,
            report=lambda stats: reports.__setitem__(name, stats),
        )  # fmt: skip

    def compared(Y: Any) -> dict[str, bool]:
        _wait(comm)
        return {"equal": Y is None or Y.isequal(expected, check_dtype=True)}

    calls = {"one process": timed(one_process, compared)}
    for each in asked:
        name = "cut by a sample" if each is None else f"cut at {each}"
        calls[name] = timed(partial(pipeline, name, each), compared)
    turns = in_turn(calls, rounds)
    if comm.rank:
        return
    rows = []
    for name in calls:
        ranks = [asdict(stats) for stats in reports.get(name, ())]
        rows.append({"name": name, "seconds": turns.seconds(name), "ranks": ranks})
        sent = ", ".join(f"{rank['layers']} sent {rank['sent'] / 1e6:.1f} MB" for rank in ranks)
        print(f"{name:<18} {turns.median(name):.2f} s  {sent}")
    equal = all(run["equal"] for run in turns.every())
    print("answers are equal" if equal else "FAILED: answers differ")
    found = {"ranks": comm.size, "equal": equal, "runs": rows}
    report.finish(json_file, found, [{"check": checked(equal)}])


def _wait(comm: Any) -> None:
    """Wait for all ranks without spinning."""
    barrier = comm.Ibarrier()
    while not barrier.Test():
        sleep(0.001)


if __name__ == "__main__":
    options.run(main)
