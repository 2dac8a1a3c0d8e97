"""What commands write to: nothing that is there already is replaced without ``--force``."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Annotated

from typer import Option

from gbdnn.errors import OutputError
from gbdnn.io.datasets import TSV
from gbdnn.io.files import is_own_output, output_errors, require_writable
from gbdnn.io.formats import FORMATS, require_no_ending
from gbdnn.io.store import require_storable
from gbdnn.io.store.folder import INDEX

if TYPE_CHECKING:
    from pathlib import Path

    from gbdnn.io.formats import FormatName

Force = Annotated[bool, Option("--force", help="Replace the store or the file that is there.")]


def features_format(path: Path, to: str | None = None) -> str:
    """Return the format of features, activations or categories to write: a store, or tsv.

    That is `to`, or what the name's ending tells, else a store. A file, a FIFO or a device that is
    there is written to as lines.
    """
    if to is not None:
        return to
    is_store = os.path.isdir(path) and (path / INDEX).is_file()  # noqa: PTH112 -- no name too long
    if not is_store and (path.name.lower().endswith(TSV) or _is_no_folder(path)):
        return "tsv"
    require_no_ending(path, ", ".join(TSV))
    return "store"


def _is_no_folder(path: Path) -> bool:
    return os.path.exists(path) and not os.path.isdir(path)  # noqa: PTH110, PTH112


def require_free(path: Path, *, stored: bool, force: bool, resumes: bool = False) -> None:
    """Raise OutputError if a store or a file cannot be written, or would replace one.

    A command that `resumes` compares the store with its own run later. An empty file may be
    replaced. What is not a regular file (``/dev/null``, a FIFO) and this process's own output are
    written directly.
    """
    if stored:
        require_storable(path, resumes=resumes)
    else:
        require_writable(path)
    if not force and not resumes:
        require_new(path)


def require_free_network(path: Path, form: FormatName, *, force: bool) -> None:
    """Raise OutputError if a network cannot be written, or would replace a store or a file."""
    if form == "store":
        require_free(path, stored=True, force=force)
    elif FORMATS[form].mark is None:
        require_free(path, stored=False, force=force)


def require_new(path: Path) -> None:
    """Raise the OutputError that says what would be replaced."""
    if found := _found(path):
        raise OutputError(f"{path}: exists already, {found}; --force replaces it")


def _found(path: Path) -> str:
    """Return what would be replaced, nothing if that is nothing."""
    if (path / INDEX).is_file():
        return "a store"
    with output_errors(path, "read"):
        try:
            there = path.stat()
        except FileNotFoundError:
            return ""
    if not stat.S_ISREG(there.st_mode) or not there.st_size or is_own_output(there):
        return ""
    return f"a file of {there.st_size:,} bytes"
