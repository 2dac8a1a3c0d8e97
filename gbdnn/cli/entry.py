"""The command line: its commands, its error messages and exit codes."""

from __future__ import annotations

import logging
import sys
import traceback
from contextlib import nullcontext
from functools import partial
from signal import Signals
from typing import Annotated, Any

import typer
from typer import Option
from typer.core import TyperGroup

import gbdnn
from gbdnn.cli import ranks
from gbdnn.cli.challenge import challenge
from gbdnn.cli.convert import convert
from gbdnn.cli.examples import EXAMPLES
from gbdnn.cli.generate import generate
from gbdnn.cli.infer import infer
from gbdnn.cli.info import info
from gbdnn.cli.signals import raised
from gbdnn.cli.terminal import Told, lasting_streams, say, tell
from gbdnn.cli.train import train
from gbdnn.errors import GbdnnError, NonFiniteError
from gbdnn.runtime.first_use import gb

_BAD_INPUT, _OWN_FAULT, _INTERRUPTED = 2, 3, 130


class _PassedOn(Exception):  # noqa: N818 -- not an error of its own
    """Takes an error past typer."""

    def __init__(self, err: Exception) -> None:
        super().__init__()
        self.err = err


class _Commands(TyperGroup):
    """Of a closed pipe typer would make 1, which means FAILED; of a file's end Ctrl-C's code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (OSError, EOFError) as err:
            raise _PassedOn(err) from err

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands with their whole first sentences, which typer would cut off."""
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, each.get_short_help_str(1000)) for name, each in commands.items() if each]
            )


app = typer.Typer(
    name="gbdnn",
    cls=_Commands,
    help="Sparse deep neural network inference and training in the language of GraphBLAS.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _command in (challenge, infer, train, generate, convert, info):
    # A line for each: \b keeps a paragraph as it is.
    _lines = EXAMPLES[_command.__name__].strip().splitlines()
    app.command(epilog="\n".join(["\b", "Examples:", *(f"  {line}" for line in _lines)]))(_command)


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context,
    version: Annotated[bool, Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        say(f"gbdnn {gbdnn.__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        say(context.get_help())
        raise typer.Exit


def main() -> None:
    """Run the command line and exit with its code."""
    log = logging.getLogger("gbdnn.compiled")
    log.setLevel(logging.INFO)
    log.addHandler(Told())
    with lasting_streams() as out:
        # The launcher of a pipeline ends its other ranks by SIGTERM, when one of them has said why.
        with nullcontext(list[int]()) if ranks.are_started() else raised() as came:
            code, said = _run()
        if came and code:
            code, said = 128 + came[0], f"ended by {Signals(came[0]).name}"
        if said:
            ranks.tell(partial(_say, said), code)
        # A reader that has left is not an error.
        if out is not None and not isinstance(err := out.failure, BrokenPipeError | None):
            code = code or _BAD_INPUT
            _say(f"standard output cannot be written: {err.strerror or err}")
    sys.exit(code)


def _run() -> tuple[int, str]:
    """Run the command line; return its exit code, and why it fails."""
    try:
        code = app(prog_name="gbdnn", standalone_mode=False) or 0
    except _PassedOn as passed:
        return _fault(passed.err)
    except (Exception, KeyboardInterrupt) as err:
        return _fault(err)
    # Typer catches a KeyboardInterrupt and returns this.
    return code, "interrupted" if code == _INTERRUPTED else ""


def _fault(err: BaseException) -> tuple[int, str]:
    """Return the exit code that an error has, and a line; of one that nobody foresaw, all lines."""
    if isinstance(err, KeyboardInterrupt | typer.Abort):
        return _INTERRUPTED, "interrupted"
    if isinstance(err, typer.TyperException):
        return _BAD_INPUT, err.format_message().replace("Value error, ", "")
    if isinstance(err, NonFiniteError):
        return _BAD_INPUT, f"{err} (layers count from 0)"
    if isinstance(err, GbdnnError):
        return _BAD_INPUT, str(err)
    if isinstance(err, OSError):  # not converted by the reader or writer of a file
        where = "" if err.filename is None else f"{err.filename}: "
        return _BAD_INPUT, f"{where}{err.strerror or err}"
    if isinstance(err, MemoryError | gb.exceptions.OutOfMemory):
        return _BAD_INPUT, "out of memory: fewer inputs need less"
    traceback.print_exception(err)
    return _OWN_FAULT, f"a fault of gbdnn {gbdnn.__version__}: {type(err).__name__}: {err}"


def _say(message: str) -> None:
    """Write one line to standard error, if it is open."""
    tell(" ".join(message.split()))
