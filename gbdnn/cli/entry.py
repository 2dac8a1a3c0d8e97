"""The command line: its commands, its error messages and exit codes."""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import Annotated

import typer
from typer import Option

import gbdnn
from gbdnn.arrays.first_use import gb
from gbdnn.cli import ranks
from gbdnn.cli.challenge import challenge
from gbdnn.cli.convert import convert
from gbdnn.cli.examples import EXAMPLES
from gbdnn.cli.generate import generate
from gbdnn.cli.infer import infer
from gbdnn.cli.info import info
from gbdnn.cli.train import train
from gbdnn.errors import GbdnnError, NonFiniteError

_BAD_INPUT, _INTERRUPTED = 2, 130

app = typer.Typer(
    name="gbdnn",
    help="Sparse deep neural network inference in the language of GraphBLAS.",
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
        typer.echo(f"gbdnn {gbdnn.__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit


def main() -> None:
    """Run the command line and exit with its code."""
    message = None
    try:
        code = app(prog_name="gbdnn", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
        if code == _INTERRUPTED:  # typer catches the KeyboardInterrupt and returns this
            message = "interrupted"
    except (KeyboardInterrupt, typer.Abort):
        code, message = _INTERRUPTED, "interrupted"
    except typer.TyperException as err:
        code, message = _BAD_INPUT, err.format_message()
    except GbdnnError as err:
        code, message = _BAD_INPUT, str(err)
        if isinstance(err, NonFiniteError):
            message += " (layers count from 0)"
    except (MemoryError, gb.exceptions.OutOfMemory):
        code, message = _BAD_INPUT, "out of memory: fewer inputs need less"
    except OSError as err:
        code = _BAD_INPUT
        if err.filename is not None:  # of a file, not converted by its reader or writer
            message = f"{err.filename}: {err.strerror}"
        else:
            # Standard output. A reader that closed it is no error. The flush at exit must not fail.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            if isinstance(err, BrokenPipeError):
                code = 0
            else:
                message = f"standard output cannot be written: {err.strerror or err}"
    if message is not None:
        ranks.tell(partial(_say, message), code)
    sys.exit(code)


def _say(message: str) -> None:
    """Write one line to standard error, if it is open."""
    if sys.stderr is not None:
        sys.stderr.write(f"gbdnn: {' '.join(message.split())}\n")
        sys.stderr.flush()
