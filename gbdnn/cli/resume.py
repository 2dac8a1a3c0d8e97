"""Commands that go on after a kill: what they say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Option

from gbdnn.cli.outputs import require_new
from gbdnn.cli.terminal import say
from gbdnn.io.store.unfinished import find_unfinished

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Show = Callable[[int, int | None], object] | None

Restart = Annotated[
    bool, Option("--restart", help="Begin anew; discard what a killed run has left.")
]


class Resumed:
    """Progress of a store that is written part by part: says where it goes on, and shows a bar.

    Parameters
    ----------
    path : Path
        The store.
    show : callable, optional
        Of a progress bar.
    restart : bool
        Whether nothing is resumed.
    force : bool
        Whether a finished store is replaced.

    Raises
    ------
    OutputError
        When it is told that something is left to do: a finished store would be replaced.
    """

    def __init__(self, path: Path, show: Show, *, restart: bool, force: bool) -> None:
        self._path, self._show, self._force = path, show, force
        self._left = None if restart else find_unfinished(path)
        self._has_begun = self._was_complete = False

    def __call__(self, done: int, total: int) -> None:
        """Take how much is done; at first what an earlier run has done."""
        if not self._has_begun:
            self._has_begun, self._was_complete = True, done == total > 0
            left = self._left
            if not self._was_complete and not self._force:
                require_new(self._path)
            if left is not None and not self._was_complete:
                words = f"{left.what.removesuffix('s')} {done:,} of {total:,}"
                if left.layer is not None:
                    words += f", layer {left.layer:,} of {left.layers:,}"
                say(f"{self._path}: resumes at {words}")
        if self._show is not None:
            self._show(done, total)

    def tell(self, work: str) -> None:
        """Say, at the end, if there was nothing left to do."""
        if self._was_complete:
            say(f"{self._path}: is complete: nothing was left to {work}")
