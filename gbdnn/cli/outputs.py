"""Outputs of commands: their formats, and protection of existing files without ``--force``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from typer import Option

from gbdnn.errors import OutputError
from gbdnn.io.datasets import TSV
from gbdnn.io.files import is_standard_output, output_errors, require_writable
from gbdnn.io.formats import require_no_ending
from gbdnn.io.store import require_storable

Force = Annotated[bool, Option("--force", help="Replace an existing store or file.")]
To = Annotated[
    Literal["store", "tsv"] | None,
    Option("--to", help="Format of OUT (default: tsv if OUT ends in .tsv or .tsv.gz, else store)."),
]


def named(path: Path | None) -> Path | None:
    """Return the path of an output; ``-`` is standard output."""
    return Path("/dev/stdout") if path == Path("-") else path


def is_store(path: Path, to: str | None) -> bool:
    """Return whether features or activations are written as a store instead of text."""
    if to is not None:
        return to == "store"
    with output_errors(path):
        is_file = path.exists() and not path.is_dir()
    if is_file or path.name.lower().endswith(TSV):
        return False
    require_no_ending(path, " or ".join(TSV))
    return True


def require_free(path: Path, *, stored: bool, force: bool, resumes: bool = False) -> None:
    """Raise OutputError if `path` cannot be written, or exists and `force` is False.

    With `resumes`, the folder may contain parts of an unfinished run.
    """
    if stored and is_standard_output(path):
        raise OutputError("a store is a folder; it cannot be written to standard output")
    if stored:
        require_storable(path, replace=force, resumes=resumes)
    else:
        require_writable(path, replace=force)
