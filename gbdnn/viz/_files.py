"""Figures as files, of a kind that the suffix tells."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from gbdnn.errors import ArgumentError
from gbdnn.io import require_writable, whole_file
from gbdnn.viz._axes import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["require_plottable", "save_figure"]

_FORMATS = ("png", "svg", "pdf")


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write a figure, whole or not at all.

    Parameters
    ----------
    figure : matplotlib Figure
        For instance ``ax.figure``.
    path : path-like
        Ends in ``.png``, ``.svg`` or ``.pdf``. What stood there is replaced.

    Raises
    ------
    ArgumentError
        The suffix is another one.
    OutputError
        The file cannot be written.
    """
    kind = _kind(path)
    from matplotlib import rc_context

    # Without the time of writing, and random names, equal figures are equal files.
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    with rc_context({"svg.hashsalt": "gbdnn"}), whole_file(path) as file:
        figure.savefig(file, format=kind, dpi=200, metadata=metadata)


def require_plottable(path: str | os.PathLike[str]) -> None:
    """Raise what `save_figure` would, before the work; also without matplotlib.

    Parameters
    ----------
    path : path-like
        Where the figure is to go.

    Raises
    ------
    ArgumentError, MissingPackageError, OutputError
        As `save_figure`.
    """
    _kind(path)
    new_figure()
    require_writable(path)


def _kind(path: str | os.PathLike[str]) -> str:
    kind = Path(os.fspath(path)).suffix.lower().removeprefix(".")
    if kind not in _FORMATS:
        raise ArgumentError(f"{os.fspath(path)}: a plot is a .png, .svg or .pdf file")
    return kind
