"""Progress bars on standard error, in one layout."""

from __future__ import annotations

import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import rich.console
import rich.progress
from rich.table import Column
from rich.text import Text

from gbdnn.engine.progress import RunProgress, watched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_A_SECOND = 4  # looks at the work that is done; each takes a millisecond or two of one core
_NEARLY = 0.99  # of a bar, as long as something is still to do
_WIDEST = 40  # columns of a bar


class _Words(rich.progress.ProgressColumn):
    """A column that is as wide as its words."""

    def __init__(self, words: Callable[[rich.progress.Task], str]) -> None:
        super().__init__(Column(no_wrap=True))
        self._words = words

    def render(self, task: rich.progress.Task) -> Text:
        return Text(self._words(task))


def _done(task: rich.progress.Task) -> str:
    """Return how many of how many are done; of work, the part in percent."""
    if task.total is None:
        return ""
    if task.fields["work"] is not None:
        return f"{task.percentage:.0f}%"
    return f"{int(task.completed)}/{int(task.total)}"


def _elapsed(task: rich.progress.Task) -> str:
    return _clock((task.finished_time if task.finished else task.elapsed) or 0.0)


def _left(task: rich.progress.Task) -> str:
    """Return how long it will take still, nothing where that is not estimated."""
    seconds = None if task.finished else task.time_remaining
    return "" if seconds is None else f"left {_clock(seconds)}"


def _clock(seconds: float) -> str:
    """Return minutes and seconds, with hours where there are any."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


class Bars(rich.progress.Progress):
    """Progress bars in a ``with`` block, shown if standard output and error are a terminal.

    Each says what is done, how much of it, for how long, and how long it will take where that can
    be estimated. With `silent` they are never shown. They are drawn by a thread of their own: what
    is computed meanwhile is counted, and not asked.
    """

    def __init__(self, *, silent: bool = False) -> None:
        streams = (sys.stdout, sys.stderr)
        super().__init__(
            _Words(lambda task: task.description),
            # What a narrow terminal leaves to it.
            rich.progress.BarColumn(None, table_column=Column(max_width=_WIDEST)),
            _Words(_done),
            _Words(_elapsed),
            _Words(_left),
            console=rich.console.Console(stderr=True),
            transient=True,
            refresh_per_second=_A_SECOND,
            speed_estimate_period=20.0,
            disable=silent or not all(stream is not None and stream.isatty() for stream in streams),
        )

    def add(self, what: str, *, begun: bool = False) -> Callable[[int, int | None], None] | None:
        """Return a function of (done, count), None if bars are not shown.

        The bar is shown from the first call on, or, if it has `begun`, at once.
        """
        if self.disable:
            return None
        task = self.add_task(what, total=None, visible=False, start=False, work=None)

        def show(done: int, count: int | None) -> None:
            self.start_task(task)
            self.update(task, completed=done, total=count, visible=True)

        if begun:
            show(0, None)
        return show

    @contextmanager
    def busy(self, what: str) -> Iterator[None]:
        """Show that something is done, of which nobody knows how much is left."""
        task = None if self.disable else self.add_task(what, total=None, work=None)
        try:
            yield
        finally:
            if task is not None:
                self.remove_task(task)

    @contextmanager
    def inference(self, repeat: int = 1) -> Iterator[RunProgress]:
        """Show how much of each run in the ``with`` block is done, while it runs; give the counts.

        The first `repeat` runs are numbered.
        """
        with watched(RunProgress()) as work:
            task = None
            if not self.disable:
                task = self.add_task("inference", total=None, work=work, repeat=repeat, seen=0)
            try:
                yield work
            finally:
                if task is not None:
                    self.remove_task(task)

    def get_renderables(self) -> Iterable[rich.console.RenderableType]:
        """Return what is drawn, after a look at the runs that are watched."""
        for task in self.tasks:
            with suppress(KeyError):  # the run has ended meanwhile, and its bar is removed
                self._look(task)
        return super().get_renderables()

    def _look(self, task: rich.progress.Task) -> None:
        work = task.fields["work"]
        if work is None:
            return
        if work.runs != task.fields["seen"]:  # until a layer is done, weights are read and prepared
            task.fields["seen"] = work.runs
            numbered = 1 < task.fields["repeat"] >= work.runs
            of = f" {work.runs} of {task.fields['repeat']}" if numbered else ""
            task.total = None
            self.reset(task.id, description=f"inference{of}")  # draws
        if (part := work.fraction) > 0:
            self.update(task.id, completed=min(part, _NEARLY), total=1.0)
        self.update(task.id, visible=not (work.ended and work.runs))
