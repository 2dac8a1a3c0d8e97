"""Entry point of the command line: commands, error messages, signals and exit codes."""

from __future__ import annotations

import errno
import signal
import sys
import traceback
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

import gbdnn
from gbdnn.cli.challenge import challenge
from gbdnn.cli.convert import convert
from gbdnn.cli.generate import generate
from gbdnn.cli.infer import infer
from gbdnn.cli.info import info
from gbdnn.cli.options import in_shell
from gbdnn.cli.terminal import say
from gbdnn.cli.train import train
from gbdnn.errors import GbdnnError, OutputError
from gbdnn.runtime.first_use import gb

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_BAD_INPUT, _FAULT, _INTERRUPTED, _CLOSED = 2, 3, 130, 141
_ENDING = (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM))  # not on Windows

app = typer.Typer(
    name="gbdnn",
    help="Sparse deep neural network inference and training in the language of GraphBLAS.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _as_command(function: Callable[..., int | None]) -> Callable[..., int | None]:
    """Return a function whose errors name options, and that ends as by SIGPIPE, silently."""

    @wraps(function)
    def run(**given: Any) -> int | None:
        try:
            return function(**given)
        except GbdnnError as err:
            if isinstance(err, OutputError) and err.errno == errno.EPIPE:
                return _CLOSED
            err.args = (in_shell(str(err), given), *err.args[1:])
            raise

    return run


for _command in (challenge, infer, train, generate, convert, info):
    app.command()(_as_command(_command))


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


def main() -> None:
    """Run the command line, and exit."""
    for number in _ENDING:
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores SIGHUP
            signal.signal(number, _end)
    try:
        code = app(prog_name="gbdnn", standalone_mode=False) or 0
        message = "interrupted" if code == _INTERRUPTED else ""  # typer catches KeyboardInterrupt
    except Exception as err:
        code, message = _failure(err)
    if message:
        typer.echo(f"gbdnn: {' '.join(message.split())}", err=True)
        _end_other_ranks(code)
    sys.exit(code)


def _end(number: int, _: FrameType | None) -> None:
    """Raise an exception, so that every ``finally`` block runs; a second signal ends at once."""
    for each in _ENDING:
        signal.signal(each, signal.SIG_DFL)
    raise SystemExit(128 + number)


def _end_other_ranks(code: int) -> None:
    """Abort the other ranks of a pipeline, which would wait for this one."""
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and "--pipeline" in sys.argv and mpi.COMM_WORLD.size > 1:
        mpi.COMM_WORLD.Abort(code)


def _failure(err: Exception) -> tuple[int, str]:
    """Return the exit code and message of an error; print the traceback of an internal error."""
    if isinstance(err, typer.Abort):
        return _INTERRUPTED, "interrupted"
    if isinstance(err, typer.TyperException):
        return _BAD_INPUT, err.format_message()
    if isinstance(err, MemoryError | gb.exceptions.OutOfMemory) and not isinstance(err, GbdnnError):
        return _BAD_INPUT, "out of memory; use fewer inputs, or reduce --memory"
    if isinstance(err, GbdnnError | OSError):
        return _BAD_INPUT, str(err)
    traceback.print_exception(err)
    return _FAULT, f"internal error in gbdnn {gbdnn.__version__}: {type(err).__name__}: {err}"
