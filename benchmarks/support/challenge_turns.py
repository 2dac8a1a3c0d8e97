"""Programs on a challenge problem, each in its own process, interleaved and checked."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import problems
from peers import PROGRAMS
from turns import checked, in_turn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from processes import Process

    from gbdnn.challenge import Problem

    Able = dict[str, Process]

# An OpenMP runtime's idle threads spin for up to 0.2 s before they sleep.
PAUSE = 0.3


@contextmanager
def workers(problem: Problem, names: Iterable[str], found: dict[str, Any]) -> Iterator[Able]:
    """Start the programs and wait until they have prepared the problem."""
    with tempfile.TemporaryDirectory() as folder:
        problems.save(problem, Path(folder))
        with PROGRAMS.started(names, found, folder) as able:
            found["prepared"] = {
                name: {"seconds": each.prepared["seconds"], **each.prepared["facts"]}
                for name, each in able.items()
            }
            yield able


def interleaved(
    able: Able,
    counts: list[int],
    rounds: int,
    truth: np.ndarray,
    inputs: Callable[[str, int], int],
    batch: Callable[[str, int], int | None] = lambda *_: None,
) -> list[dict[str, Any]]:
    """Run all programs interleaved; round 0 is the warm-up.

    `inputs` and `batch` return the number of first inputs and the size of batches of a program on a
    number of threads.
    """
    runs = []

    def once(name: str, threads: int) -> dict[str, Any]:
        at = {"nthreads": threads, "inputs": inputs(name, threads), "batch": batch(name, threads)}
        answer = able[name].ask(**at)
        right = np.array_equal(answer.pop("categories"), truth[truth < at["inputs"]])
        return at | answer | {"check": checked(right)}

    def note(turn: int, key: tuple[str, int], run: dict[str, Any]) -> None:
        name, threads = key
        runs.append({"program": name, "round": turn, **run})
        words = f"round {turn}: {PROGRAMS[name].title}, {threads} threads"
        print(f"{words}: {run['seconds']:.3f} s, {run['check']}", flush=True)

    def calls(counts: list[int]) -> dict[tuple[str, int], Any]:
        serial = PROGRAMS.having("serial")
        keys = [(name, 1 if name in serial else n) for n in counts for name in able]
        return {key: partial(once, *key) for key in keys}

    in_turn(calls([max(counts)]), 0, pause=PAUSE, told=note)
    in_turn(calls(counts), rounds, warm=0, pause=PAUSE, told=note)
    return runs
