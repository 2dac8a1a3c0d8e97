"""Programs on a challenge problem, each in its own process, interleaved and checked."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import problems
from peers import PROGRAMS
from turns import checked, in_turn

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

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
            yield able


def interleaved(
    able: Able,
    counts: list[int],
    rounds: int,
    truth: np.ndarray,
    inputs: int,
    batches: Mapping[tuple[str, int], int] = MappingProxyType({}),
) -> list[dict[str, Any]]:
    """Run all programs interleaved; round 0 is the warm-up.

    `batches` has the size of batches of a program on a number of threads; others have one batch.
    """
    runs = []

    def once(name: str, threads: int) -> dict[str, Any]:
        at = {"nthreads": threads, "inputs": inputs, "batch": batches.get((name, threads))}
        answer = able[name].ask(**at)
        right = np.array_equal(answer.pop("categories"), truth)
        return at | answer | {"check": checked(right)}

    def note(turn: int, key: tuple[str, int], run: dict[str, Any]) -> None:
        name, threads = key
        runs.append({"program": name, "round": turn, **run})
        words = f"round {turn}: {PROGRAMS[name].title}, {threads} threads"
        print(f"{words}: {run['seconds']:.3f} s, {run['check']}", flush=True)

    def calls(counts: list[int]) -> dict[tuple[str, int], Any]:
        return {key: partial(once, *key) for key in product(able, counts)}

    in_turn(calls([max(counts)]), 0, pause=PAUSE, told=note)
    in_turn(calls(counts), rounds, warm=0, pause=PAUSE, twice=True, told=note)
    return runs
