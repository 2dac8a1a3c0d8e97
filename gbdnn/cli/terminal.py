"""Output for people: facts on standard output, warnings on standard error."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO, cast

from typer import echo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

COMPILE = "gbdnn info --machine --compile"


def fact_lines(facts: Mapping[str, object]) -> str:
    """Return one line per fact."""
    return "\n".join(f"{name:<11} {value}" for name, value in facts.items())


def counted(count: int, one: str) -> str:
    """Return a number of things: ``"1 layer"``, ``"120 layers"``, ``"2 batches"``."""
    ending = "" if count == 1 else "es" if one.endswith("ch") else "s"
    return f"{count:,} {one}{ending}"


def computed_in(edges: Mapping[str, float], compiling: float) -> str:
    """Return which forms computed the edges, those of a percent or more, and what was compiled.

    Parameters
    ----------
    edges : mapping of str to float
        Edges, or their part, by the form that computed them.
    compiling : float
        Seconds in which code was compiled.
    """
    total = sum(edges.values())
    parts = sorted(((x / total, form) for form, x in edges.items()), reverse=True)
    some = [f"the {form} form ({100 * part:.0f} %)" for part, form in parts if part >= 0.01]
    if len(some) == 1:
        some = [some[0].partition(" (")[0]]
    words = f"computed in {' and '.join(some)}" if some else "no edge was computed"
    if compiling:
        words += f"; compiled now, in {compiling:.1f} s, which {COMPILE} does beforehand"
    return words


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


def tell(message: str) -> None:
    """Write a line to standard error, if it is open."""
    if sys.stderr is not None:
        sys.stderr.write(f"gbdnn: {message}\n")
        sys.stderr.flush()


def warn(message: str) -> None:
    """Write a warning to standard error, if it is open."""
    tell(f"warning: {message}")


class Told(logging.Handler):
    """Writes that code is compiled to standard error, if it is a terminal: above the bars."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        if sys.stderr is not None and sys.stderr.isatty():
            tell(f"{record.getMessage()}; {COMPILE} does it beforehand")


def in_bytes(size: int) -> str:
    """Return a number of bytes in the largest unit that it reaches."""
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << power:
            return f"{size / (1 << power):.4g} {unit}"
    return f"{size} bytes"
