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
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Annotated, Any

import typer

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import problems
import report
from processes import Process, answering, requests

if TYPE_CHECKING:
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
    call = _Calls(folder, 1, "fused", folder / "warm")
    call.run(1)
    call.close()


def _beside(
    folder: Path, inputs: int, nthreads: int, rounds: int, truth: np.ndarray
) -> list[dict[str, Any]]:
    """Return a row per way for one number of inputs."""
    calls = {
        way: _Calls(folder, inputs, engine, folder / ("warm" if warm else f"{inputs}-{engine}"))
        for way, (engine, warm) in WAYS.items()
    }
    rows: dict[str, dict[str, Any]] = {
        way: {"inputs": inputs, "way": way, "seconds": [], "compiled_in": None, "check": "PASSED"}
        for way in WAYS
    }
    right = truth[truth < inputs].tolist()
    for turn in range(rounds + 1):
        for way, call in calls.items():
            had = call.has_code
            answer = call.run(nthreads)
            rows[way]["seconds"].append(answer["seconds"])
            if call.has_code and not had:
                rows[way]["compiled_in"] = turn
            if answer["categories"] != right:
                rows[way]["check"] = "FAILED"
            sleep(_PAUSE)
    for call in calls.values():
        call.close()
    base = median(rows["full"]["seconds"][1:])
    for row in rows.values():
        first, *others = row["seconds"]
        row |= {
            "first": first,
            "median": median(others),
            "longest": max(others),
            "to_full": median(others) / base,
        }
    return list(rows.values())


class _Calls(Process):
    """A process that calls `infer` on the first inputs of a problem, again and again."""

    def __init__(self, folder: Path, inputs: int, engine: str, code: Path) -> None:
        command = (__file__, "--serve", str(folder), str(inputs), engine)
        super().__init__(f"infer, {engine}", *command, GBDNN_CACHE_DIR=str(code))
        self._code = code

    @property
    def has_code(self) -> bool:
        """Whether there is compiled code on disk."""
        return any(self._code.glob("*.o"))

    def run(self, nthreads: int) -> dict[str, Any]:
        """Return seconds and categories of one call."""
        return self.ask(nthreads=nthreads)


def _serve(folder: Path, inputs: int, engine: str) -> None:
    """The side that runs."""
    import peers

    import gbdnn

    net, X = peers.network(problems.load(folder, inputs))
    with answering() as answer:
        for asked in requests():
            began = perf_counter()
            Y = gbdnn.infer(net, X, engine=engine, nthreads=asked["nthreads"])
            seconds = perf_counter() - began
            answer(seconds=seconds, categories=gbdnn.categories(Y).tolist())


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
        _serve(Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    else:
        typer.run(main)
