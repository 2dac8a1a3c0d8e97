"""Compare a pipeline of ranks with one process with the same number of threads.

    mpiexec -n 2 --bind-to none python benchmarks/scale/pipeline.py --images DIR --cuts 3 --cuts 60

Each rank has one thread. All ranks run on one machine and communicate through its memory. The table
shows seconds and bytes sent for each cut.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from time import sleep
from typing import Annotated, Any

import typer

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import problems
from turns import in_turn, timed


def main(
    neurons: problems.Neurons = 4096,
    layers: problems.Layers = 120,
    inputs: problems.Inputs = 20_000,
    data: problems.Data = None,
    images: problems.Images = None,
    seed: problems.Seed = 0,
    cuts: Annotated[
        list[str] | None,
        typer.Option(metavar="K,...", help="First layers of ranks 1, 2, ...; may be repeated."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Timed runs of each.")] = 3,
    deduplicate: problems.Deduplicate = True,
    json_file: problems.Json = None,
) -> None:
    """Time one process and the pipeline, interleaved, and print medians."""
    from mpi4py import MPI

    import gbdnn

    comm = MPI.COMM_WORLD
    # Only the first rank needs the features.
    given = (inputs, data, images) if comm.rank == 0 else (1, data, None)
    problem = problems.build(neurons, layers, *given, seed)
    net, X, options = problem.network, problem.features, problems.merging(deduplicate)
    asked = [None, *(list(map(int, each.split(","))) for each in cuts or [])]
    reports: dict[str, Any] = {}
    expected = None if comm.rank else gbdnn.infer(net, X, nthreads=comm.size, **options)

    def one_process() -> Any:
        return None if comm.rank else gbdnn.infer(net, X, nthreads=comm.size, **options)

    def pipeline(name: str, cuts: list[int] | None) -> Any:
        return gbdnn.distributed.pipeline(
            net, X, comm=comm, cuts=cuts, nthreads=1, **options,
            report=lambda stats: reports.__setitem__(name, stats),
        )  # fmt: skip

    def checked(Y: Any) -> dict[str, bool]:
        _wait(comm)
        return {"equal": Y is None or Y.isequal(expected, check_dtype=True)}

    calls = {"one process": timed(one_process, checked)}
    for each in asked:
        name = "cut by a sample" if each is None else f"cut at {each}"
        calls[name] = timed(partial(pipeline, name, each), checked)
    turns = in_turn(calls, rounds)
    if comm.rank:
        return
    rows = []
    for name in calls:
        ranks = [asdict(stats) for stats in reports.get(name, ())]
        rows.append({"name": name, "seconds": turns.seconds(name), "ranks": ranks})
        sent = ", ".join(f"{rank['layers']} sent {rank['sent'] / 1e6:.1f} MB" for rank in ranks)
        print(f"{name:<18} {turns.median(name):.2f} s  {sent}")
    every = [run for kept in (turns.first, turns.runs) for runs in kept.values() for run in runs]
    equal = all(run["equal"] for run in every)
    print("answers are equal" if equal else "FAILED: answers differ")
    if json_file is not None:
        found = {"ranks": comm.size, "equal": equal, "runs": rows}
        json_file.write_text(json.dumps(found, indent=2) + "\n")
    raise SystemExit(0 if equal else 1)


def _wait(comm: Any) -> None:
    """Wait for all ranks without spinning."""
    barrier = comm.Ibarrier()
    while not barrier.Test():
        sleep(0.001)


if __name__ == "__main__":
    typer.run(main)
