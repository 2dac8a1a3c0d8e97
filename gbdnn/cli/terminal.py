"""Output for people: facts on standard output, progress bars on standard error."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO, cast

import rich.console
import rich.progress
from rich.text import Text
from typer import echo

from gbdnn.engine.progress import RunProgress, watched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

_A_SECOND = 4  # looks at the work that is done; each takes a millisecond or two of one core
_NEARLY = 0.99  # of a bar, as long as something is still to do


def fact_lines(facts: Mapping[str, object]) -> str:
    """Return one line per fact."""
    return "\n".join(f"{name:<11} {value}" for name, value in facts.items())


class LastingStream:
    """A standard stream that takes everything: what it cannot write is dropped, and nothing stops.

    Attributes
    ----------
    failure : OSError, optional
        Why it could not.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.failure: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write text."""
        self._try(self._stream.write, text)
        return len(text)

    def flush(self) -> None:
        """Write what is buffered."""
        self._try(self._stream.flush)

    def _try(self, step: Callable[..., object], *arguments: str) -> None:
        try:
            step(*arguments)
        except OSError as err:
            self.failure = err
            # Where what is buffered goes, too, when Python ends.
            with suppress(OSError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, self._stream.fileno())
                os.close(nowhere)


@contextmanager
def lasting_streams() -> Iterator[LastingStream | None]:
    """Make standard output and error take everything in a ``with`` block; give the output."""
    before = sys.stdout, sys.stderr
    out, err = (None if each is None else LastingStream(each) for each in before)
    sys.stdout, sys.stderr = cast("TextIO", out), cast("TextIO", err)
    try:
        yield out
    finally:
        sys.stdout, sys.stderr = before


def say(message: str) -> None:
    """Write a message to standard output, if it is open: above the bars, if some are shown."""
    echo(message, file=sys.stdout)


def warn(message: str) -> None:
    """Write a warning to standard error, if it is open."""
    if sys.stderr is not None:
        sys.stderr.write(f"gbdnn: warning: {message}\n")
        sys.stderr.flush()


class Told(logging.Handler):
    """Writes what takes a while to standard error, if it is a terminal: above the bars."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        if sys.stderr is not None and sys.stderr.isatty():
            sys.stderr.write(f"gbdnn: {record.getMessage()}\n")
            sys.stderr.flush()


class _Count(rich.progress.ProgressColumn):
    """How many of how many are done; of work, the part in percent."""

    def render(self, task: rich.progress.Task) -> Text:
        if task.total is None:
            return Text("")
        if task.fields["work"] is not None:
            return Text(f"{task.percentage:.0f}%")
        return Text(f"{int(task.completed)}/{int(task.total)}")


class Bars(rich.progress.Progress):
    """Progress bars in a ``with`` block, shown if standard output and error are a terminal.

    With `silent` they are never shown. They are drawn by a thread of their own: what is computed
    meanwhile is counted, and not asked.
    """

    def __init__(self, *, silent: bool = False) -> None:
        streams = (sys.stdout, sys.stderr)
        super().__init__(
            rich.progress.SpinnerColumn("line"),
            rich.progress.TextColumn("{task.description}"),
            rich.progress.BarColumn(),
            _Count(),
            rich.progress.TimeElapsedColumn(),
            rich.progress.TextColumn("left"),
            rich.progress.TimeRemainingColumn(elapsed_when_finished=False),
            console=rich.console.Console(stderr=True),
            transient=True,
            refresh_per_second=_A_SECOND,
            speed_estimate_period=20.0,
            disable=silent or not all(stream is not None and stream.isatty() for stream in streams),
        )

    def add(self, what: str) -> Callable[[int, int | None], None] | None:
        """Return a function of (done, count), whose first call shows the bar; None if not shown."""
        if self.disable:
            return None
        task = self.add_task(what, total=None, visible=False, start=False, work=None)

        def show(done: int, count: int | None) -> None:
            self.start_task(task)
            self.update(task, completed=done, total=count, visible=True)

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
    def inference(self, repeat: int = 1) -> Iterator[None]:
        """Show how much of each run in the ``with`` block is done, while it runs.

        The first `repeat` runs are numbered.
        """
        if self.disable:
            yield
            return
        with watched(RunProgress()) as work:
            task = self.add_task("inference", total=None, work=work, repeat=repeat, seen=0)
            try:
                yield
            finally:
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
            of = f", run {work.runs} of {task.fields['repeat']}" if numbered else ""
            task.total = None
            self.reset(task.id, description=f"inference{of}")  # draws
        if (part := work.fraction) > 0:
            self.update(task.id, completed=min(part, _NEARLY), total=1.0)
        self.update(task.id, visible=not (work.ended and work.runs))
