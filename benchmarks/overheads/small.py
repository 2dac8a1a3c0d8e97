"""Few inputs: milliseconds of a call, with compiled code on disk, without, and in the full form.

    python benchmarks/overheads/small.py --json small.json

Each number of inputs and each way has a process of its own, and calls are made in turn. Compiled
code is in a folder made for this run: the user's own is neither read nor written. Where the folder
is empty at first, code is compiled only once a process has done so much that it pays: the table
says in which call that was, and what the longest call took.
"""

from __future__ import annotations

import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import problems
import report
from processes import Process, prepared, serve
from turns import in_turn, timed

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

SIZES = (1, 10, 100, 1000)
# For each way the engine, and whether code is compiled beforehand.
WAYS = {
    "auto, code on disk": ("auto", True),
    "auto, nothing on disk": ("auto", False),
    "full": ("full", False),
}

_PAUSE = 0.05


def main(
    neurons: problems.Neurons = 1024,
    layers: problems.Layers = 120,
    data: problems.Data = None,
    images: problems.Images = None,
    seed: problems.Seed = 0,
    nthreads: Annotated[int, typer.Option(min=1)] = 2,
    size: Annotated[
        list[str] | None,
        typer.Option(metavar="N", help="Numbers of inputs, by comma or repetition."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Timed calls of each.")] = 30,
    json_file: problems.Json = None,
) -> None:
    """Print median milliseconds of a call by number of inputs."""
    sizes = problems.numbers(size, "--size", list(SIZES))
    problem = problems.build(neurons, layers, max(sizes), data, images, seed)
    found = report.facts(problem, nthreads=nthreads, rounds=rounds)
    report.heading(found)
    truth, _ = problems.true_categories(problem)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        problems.save(problem, folder)
        _warm(folder)
        found["rows"] = [
            row for inputs in sizes for row in _beside(folder, inputs, nthreads, rounds, truth)
        ]
    _print(found["rows"], nthreads)
    report.write(json_file, found)
    if not all(row["check"] == "PASSED" for row in found["rows"]):
        raise typer.Exit(1)


def _warm(folder: Path) -> None:
    """Compile the fused form into the folder for those that are to find it."""
    with prepared([_process("warm", folder, 1, "fused", folder / "warm")], {}) as able:
        able["warm"].ask(nthreads=1)


def _beside(
    folder: Path, inputs: int, nthreads: int, rounds: int, truth: np.ndarray
) -> list[dict[str, Any]]:
    """Return a row per way for one number of inputs."""
    codes = {
        way: folder / ("warm" if warm else f"{inputs}-{engine}")
        for way, (engine, warm) in WAYS.items()
    }
    started = [
        _process(way, folder, inputs, engine, codes[way]) for way, (engine, _) in WAYS.items()
    ]
    compiled_in = {way: None for way in WAYS if not any(codes[way].glob("*.o"))}

    def note(turn: int, way: str, _: dict[str, Any]) -> None:
        if way in compiled_in and compiled_in[way] is None and any(codes[way].glob("*.o")):
            compiled_in[way] = turn

    with prepared(started, {}) as able:
        calls = {way: partial(each.ask, nthreads=nthreads) for way, each in able.items()}
        turns = in_turn(calls, rounds, pause=_PAUSE, told=note)
    right = truth[truth < inputs].tolist()
    rows = []
    for way, runs in turns.runs.items():
        first, *_ = every = [*turns.first[way], *runs]
        is_right = all(run["categories"] == right for run in every)
        row = {
            "inputs": inputs,
            "way": way,
            "seconds": [run["seconds"] for run in every],
            "compiled_in": compiled_in.get(way),
            "check": "PASSED" if is_right else "FAILED",
            "first": first["seconds"],
            "median": turns.median(way),
            "longest": max(turns.seconds(way)),
            "to_full": turns.median(way) / turns.median("full"),
        }
        rows.append(row)
    return rows


def _process(name: str, folder: Path, inputs: int, engine: str, code: Path) -> Process:
    """Return a process that calls `infer` on the first inputs of a problem, again and again."""
    return Process(name, __file__, "--serve", folder, inputs, engine, GBDNN_CACHE_DIR=str(code))


def _prepared(folder: str, inputs: str, engine: str) -> Callable[..., dict[str, Any]]:
    """Return what the side that runs calls."""
    import peers

    import gbdnn

    net, X = peers.network(problems.load(Path(folder), int(inputs)))

    def run(nthreads: int) -> dict[str, Any]:
        return timed(
            lambda: gbdnn.infer(net, X, engine=engine, nthreads=nthreads),
            lambda Y: {"categories": gbdnn.categories(Y).tolist()},
        )()

    return run


def _print(rows: list[dict[str, Any]], nthreads: int) -> None:
    report.table(
        ["inputs", "engine", "median ms", "to full", "first ms", "longest ms", "compiled in call"],
        [
            (
                row["inputs"],
                row["way"],
                f"{1e3 * row['median']:.2f}",
                f"x {row['to_full']:.2f}",
                f"{1e3 * row['first']:.1f}",
                f"{1e3 * row['longest']:.1f}",
                "-" if row["compiled_in"] is None else row["compiled_in"] + 1,
            )
            for row in rows
        ],
    )
    print(
        f"\n{nthreads} threads. The first call of a process, which prepares the network and loads"
        " what is on disk, is not in the median."
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(lambda: _prepared(*sys.argv[2:]))
    else:
        typer.run(main)
