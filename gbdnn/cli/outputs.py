"""Outputs of commands: their formats, and protection of existing files without ``--force``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Option

from gbdnn.errors import ArgumentError, OutputError
from gbdnn.io.datasets import FEATURES, LABELS, TSV, write_matrix
from gbdnn.io.files import is_standard_output, output_errors, require_writable
from gbdnn.io.formats import require_no_ending
from gbdnn.io.store import require_storable, save

if TYPE_CHECKING:
    import graphblas as gb

Force = Annotated[bool, Option("--force", help="Replace an existing store or file.")]
To = Annotated[
    Literal["store", "tsv"] | None,
    Option("--to", help="Format of OUT (default: that of its suffix, else store)."),
]


def named(path: Path | None) -> Path | None:
    """Return the path of an output; ``-`` is standard output."""
    return Path("/dev/stdout") if path == Path("-") else path


def is_store(path: Path, to: str | None, files: tuple[str, ...] = FEATURES) -> bool:
    """Return whether output is written as a store instead of a file with one of the suffixes."""
    name = path.name.lower()
    if to is not None:
        if to == "tsv" and name.endswith(FEATURES) and not name.endswith(TSV):
            raise ArgumentError(f"{path}: --to tsv writes text; choose a name without this suffix")
        return to == "store"
    with output_errors(path):
        is_file = path.exists() and not path.is_dir()
    if name.endswith(files) or (is_file and not name.endswith((*FEATURES, *LABELS))):
        return False
    require_no_ending(path, f"one of {', '.join(files)}")
    return True


def write_features(X: gb.Matrix, path: Path, *, stored: bool, force: bool) -> None:
    """Write features or activations."""
    (save if stored else write_matrix)(X, path, replace=force)


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
