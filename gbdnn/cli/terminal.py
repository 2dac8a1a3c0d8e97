"""Output to the terminal, and the progress bar."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.filesize import pick_unit_and_suffix
from rich.progress import Progress
from typer import echo

from gbdnn.engine.progress import RunProgress, watched
from gbdnn.io.writing import is_standard_output

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path


def say(message: str, data: Path | None = None) -> None:
    """Print a message, ignoring a closed pipe; to standard error if `data` is standard output."""
    file = sys.stderr if data is not None and is_standard_output(data) else sys.stdout
    try:
        echo(message, file=file)
    except OSError as err:  # what is left in the buffer would fail again as Python ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), file.fileno())
        if not isinstance(err, BrokenPipeError):
            raise


def lines_of(facts: Mapping[str, object]) -> str:
    """Return one line per fact."""
    return "\n".join(f"{name:<11} {value}" for name, value in facts.items())


def in_bytes(size: int) -> str:
    """Return a number of bytes with a unit."""
    unit, name = pick_unit_and_suffix(size, ["bytes", "KiB", "MiB", "GiB", "TiB"], 1024)
    return f"{size / unit:.4g} {name}"


def kernels(edges: Mapping[str, float]) -> str:
    """Return the kernels and their percentages of the edges."""
    shares = sorted(((x, kernel) for kernel, x in edges.items() if x), reverse=True)
    total = sum(edges.values())
    return ", ".join(f"{kernel} {x / total:.0%}" for x, kernel in shares) or "no edges"


class Bar(Progress):
    """A bar for the current step, shown if standard output and error are terminals."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        shown = sys.stdout is not None and sys.stdout.isatty() and console.is_terminal
        self._run: RunProgress | None = None
        super().__init__(
            *self.get_default_columns(), console=console, transient=True, disable=not shown
        )

    def begin(self, step: str) -> None:
        """Begin a step, of unknown length until `show` is called."""
        for task in self.task_ids:
            self.remove_task(task)
        self.add_task(step, total=None)

    def show(self, done: float, total: float | None) -> None:
        """Update the progress of the current step."""
        self.update(self.task_ids[-1], completed=done, total=total)

    @contextmanager
    def inference(self) -> Iterator[RunProgress]:
        """Show the progress of a run in the ``with`` block."""
        self.begin("inference")
        with watched(RunProgress()) as self._run:
            try:
                yield self._run
            finally:
                self._run = None

    def get_renderables(self) -> Iterable[RenderableType]:
        """Return what to draw; called several times per second."""
        if self._run is not None and (part := self._run.fraction):
            self.show(part, 1.0)
        return super().get_renderables()
