"""The loop by which every script times what it compares, and statistics of its runs.

In a round every program runs once, in another order than in the round before, so that disturbances
of the machine affect all programs, and none always follows the same one. Ratios compare runs of the
same round. A program is a function that returns its ``seconds``: `timed` makes one of a function of
this process, `processes.Process.ask` of a program in its own process.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from time import perf_counter, process_time, sleep
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    Run = dict[str, Any]


@dataclass
class Turns:
    """What programs returned, by name: in the rounds that count, and in those before."""

    runs: dict[Any, list[Run]] = field(default_factory=dict)
    first: dict[Any, list[Run]] = field(default_factory=dict)

    def seconds(self, name: Hashable) -> list[float]:
        """Return a program's seconds, round by round."""
        return [run["seconds"] for run in self.runs[name]]

    def median(self, name: Hashable) -> float:
        """Return the median of a program's seconds."""
        return median(self.seconds(name))

    def ratios(self, name: Hashable, to: Hashable) -> list[float]:
        """Return how many times as long as another a program took, round by round."""
        return ratios(self.runs[name], self.runs[to])


def in_turn(
    programs: Mapping[Any, Callable[[], Run]],
    rounds: int,
    *,
    warm: int = 1,
    pause: float = 0.0,
    twice: bool = False,
    told: Callable[[int, Any, Run], object] = lambda *_: None,
) -> Turns:
    """Run programs in turn.

    Parameters
    ----------
    programs : mapping
        Names, and functions that return a dict with ``seconds``.
    rounds : int
        Rounds that count.
    warm : int, default 1
        Rounds before them.
    pause : float, default 0
        Seconds between two runs: idle threads of an OpenMP runtime spin for up to 0.2 s.
    twice : bool, default False
        Whether a program runs twice in its turn, and the second run is kept. In a virtual machine,
        memory can be slow after a pause, so that the first run takes up to 0.07 s more.
    told : callable
        Called after each run with the round, from 1 on (0 and below are warm), name and run.
    """
    names = list(programs)
    found = Turns({name: [] for name in names}, {name: [] for name in names})
    for turn in range(warm + rounds):
        kept = found.first if turn < warm else found.runs
        for name in ordered(names, turn):
            for _ in range(1 + twice):
                run = programs[name]()
            kept[name].append(run)
            told(turn - warm + 1, name, run)
            sleep(pause)
    return found


def ordered(names: Sequence[Any], turn: int) -> list[Any]:
    """Return names in the order of a round: another one begins, and after all have, backwards."""
    first = turn % len(names)
    turned = [*names[first:], *names[:first]]
    return turned[::-1] if turn // len(names) % 2 else turned


def timed(
    function: Callable[[], Any], then: Callable[[Any], Run] = lambda _: {}
) -> Callable[[], Run]:
    """Return a program that calls a function of this process.

    It returns seconds of the wall clock and of the processor (``cpu``), and the result of `then`
    on the answer, which is not timed.
    """

    def program() -> Run:
        cpu, began = process_time(), perf_counter()
        answer = function()
        seconds = perf_counter() - began
        return {"seconds": seconds, "cpu": process_time() - cpu, **then(answer)}

    return program


def ratios(runs: Sequence[Run], to: Sequence[Run]) -> list[float]:
    """Return the seconds of runs over those of others."""
    return [mine["seconds"] / other["seconds"] for mine, other in zip(runs, to, strict=True)]


def checked(right: bool) -> str:
    """Return the words of a check: PASSED or FAILED, which sorts first."""
    return "PASSED" if right else "FAILED"
