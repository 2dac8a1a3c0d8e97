"""Output for people: facts on standard output, progress bars on standard error."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import rich.console
import rich.progress

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gbdnn.engine.stats import LayerStats


def fact_lines(facts: Mapping[str, object]) -> str:
    """Return one line per fact."""
    return "\n".join(f"{name:<11} {value}" for name, value in facts.items())


class Bars(rich.progress.Progress):
    """Progress bars in a ``with`` block, shown if standard output and error are a terminal.

    With `silent` they are never shown.
    """

    def __init__(self, *, silent: bool = False) -> None:
        streams = (sys.stdout, sys.stderr)
        super().__init__(
            rich.progress.TextColumn("{task.description}"),
            rich.progress.BarColumn(),
            rich.progress.MofNCompleteColumn(),
            rich.progress.TimeElapsedColumn(),
            console=rich.console.Console(stderr=True),
            transient=True,
            disable=silent or not all(stream is not None and stream.isatty() for stream in streams),
        )

    def add(self, what: str) -> Callable[[int, int | None], None] | None:
        """Return a function of (done, count), whose first call shows the bar; None if not shown."""
        if self.disable:
            return None
        task = self.add_task(what, total=None, visible=False)

        def show(done: int, count: int | None) -> None:
            self.update(task, completed=done, total=count, visible=True)

        return show

    def add_inference(self, layers: int, repeat: int = 1) -> Callable[[LayerStats], None] | None:
        """Return a callback for `infer` that shows the deepest layer reached, over all runs."""
        show = self.add("inference")
        if show is None:
            return None
        runs, deepest = 0, -1

        def callback(stats: LayerStats) -> None:
            nonlocal runs, deepest
            if stats.block == 0 and stats.layer == 0:
                runs, deepest = runs + 1, -1
            if stats.layer > deepest:
                deepest = stats.layer
                show((runs - 1) * layers + deepest + 1, layers * repeat)

        return callback
