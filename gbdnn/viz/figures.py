"""Create and save figures; styles that can be distinguished in greyscale."""

from __future__ import annotations

import os
from itertools import cycle
from typing import TYPE_CHECKING, Any

from gbdnn.arrays.checks import as_path
from gbdnn.errors import ArgumentError, require_kind
from gbdnn.io.writing import require_writable, whole_file
from gbdnn.runtime.optional import require

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH, _HEIGHT = 6.4, 3.4  # inches; 10-point text stays legible at half a page's width
_FORMATS = ("png", "svg", "pdf")

# From dark to light, to be distinguishable in greyscale (after Okabe and Ito).
_COLOURS = ("#00395f", "#b34700", "#0077aa", "#cc79a7", "#e69f00", "#7fc8a9", "#c9c9c9")


def new_figure(rows: float = 1) -> Figure:
    """Return an empty figure for plots in `rows` rows, not registered with pyplot."""
    figures = require("matplotlib.figure", "plots", "plots need matplotlib")
    return figures.Figure(figsize=(_WIDTH, _HEIGHT * rows), layout="constrained")


def stacked(title: str, *plots: Callable[[Axes], object]) -> Figure:
    """Return a figure with plots below each other, over one horizontal axis."""
    figure = new_figure(len(plots))
    figure.suptitle(title, fontsize="medium", wrap=True)
    axes = figure.subplots(len(plots), sharex=True, squeeze=False)[:, 0]
    for ax, plot in zip(axes, plots, strict=True):
        plot(ax)
        ax.label_outer()
    return figure


def axes_or_new(ax: Axes | None, rows: float = 1) -> Axes:
    """Return the given axes, or those of a new figure."""
    if ax is None:
        return new_figure(rows).subplots()
    axes = require("matplotlib.axes", "plots", "plots need matplotlib")
    require_kind(ax, axes.Axes, "ax must be a matplotlib Axes")
    return ax


def curve_styles() -> Iterator[dict[str, Any]]:
    """Yield the styles of a plot's curves."""
    looks = zip(cycle(_COLOURS[:6]), cycle("os^Dv"), cycle(["-", "--", "-.", ":"]), strict=False)
    for colour, marker, line in looks:
        yield {"color": colour, "marker": marker, "linestyle": line, "markersize": 4}


def area_styles() -> Iterator[dict[str, Any]]:
    """Yield the styles of a plot's bars or areas."""
    hatches = cycle(["", "///", "...", "\\\\\\", "xxx", "---", "+++"])
    for colour, hatch in zip(cycle(_COLOURS), hatches, strict=False):
        # Hatches have the edge's colour.
        yield {"facecolor": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0.3}


def legend_above(ax: Axes, handles: Sequence[Artist] | None = None) -> None:
    """Place the legend above a plot, in rows of at most four entries."""
    handles = ax.get_legend_handles_labels()[0] if handles is None else handles
    ax.legend(
        handles=handles,
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        ncols=min(4, len(handles)),
        fontsize="small",
        frameon=False,
    )


def label_steps(ax: Axes, what: str) -> None:
    """Label the horizontal axis with numbers of layers or epochs."""
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    ax.set_xlabel(f"{what} (from 0)")


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Save a figure atomically as a ``.png``, ``.svg`` or ``.pdf`` file, or replace one.

    Raise ArgumentError for other suffixes, and OutputError if the file cannot be written.
    """
    kind = _kind(path)
    from matplotlib import rc_context

    # Without creation time and random names, equal figures give equal files.
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    with rc_context({"svg.hashsalt": "gbdnn"}), whole_file(path) as file:
        figure.savefig(file, format=kind, dpi=200, metadata=metadata)


def require_plottable(path: str | os.PathLike[str], *, replace: bool) -> None:
    """Raise the errors of `save_figure`, or for missing matplotlib, before anything is computed.

    Raise OutputError if the file exists, unless `replace`.
    """
    _kind(path)
    new_figure()
    require_writable(path, replace=replace)


def _kind(path: str | os.PathLike[str]) -> str:
    kind = as_path(path).suffix.lower().removeprefix(".")
    if kind not in _FORMATS:
        raise ArgumentError(f"{os.fspath(path)}: unsupported suffix; use .png, .svg or .pdf")
    return kind
