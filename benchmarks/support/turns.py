"""Programs in turn: the loop by which every script times what it compares.

A round takes each program once, in another order than the round before: what disturbs the machine
for a while disturbs all of them, and none always follows the same one. Ratios are of runs of the
same round. A program is what is called and returns its ``seconds``: `timed` makes one of a function
of this process, `processes.Process.ask` of one in a process of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median, quantiles
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

    def ratios(self, name: Hashable, to: Hashable, key: str = "seconds") -> list[float]:
        """Return how many times as long as another a program took, round by round."""
        pairs = zip(self.runs[name], self.runs[to], strict=True)
        return [mine[key] / other[key] for mine, other in pairs]


def in_turn(
    programs: Mapping[Any, Callable[[], Run]],
    rounds: int,
    *,
    warm: int = 1,
    pause: float = 0.0,
    told: Callable[[int, Any, Run], object] = lambda *_: None,
) -> Turns:
    """Run programs in turn.

    Parameters
    ----------
    programs : mapping
        What each is called, and a call that returns its ``seconds`` and whatever else.
    rounds : int
        That count.
    warm : int, default 1
        Rounds before them.
    pause : float, default 0
        Seconds between two runs: idle threads of an OpenMP runtime spin for up to 0.2 s.
    told : callable
        Called after each run with the round, from 1 on (0 and below are warm), name and run.
    """
    names = list(programs)
    found = Turns({name: [] for name in names}, {name: [] for name in names})
    for turn in range(warm + rounds):
        kept = found.first if turn < warm else found.runs
        for name in ordered(names, turn):
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

    It returns seconds by the wall's clock and by the processor's (``cpu``), and what `then` makes
    of the answer, which is not timed.
    """

    def program() -> Run:
        cpu, began = process_time(), perf_counter()
        answer = function()
        seconds = perf_counter() - began
        return {"seconds": seconds, "cpu": process_time() - cpu, **then(answer)}

    return program


def repeated(function: Callable[[], Any], rounds: int) -> list[float]:
    """Return the seconds of one function, called again and again; a first call is not counted."""
    return in_turn({"": timed(function)}, rounds).seconds("")


def quartiles(numbers: Sequence[float]) -> tuple[float, float, float]:
    """Return first quartile, median and third quartile."""
    low, _, high = quantiles(numbers, n=4) if len(numbers) > 1 else [*numbers] * 3
    return low, median(numbers), high
