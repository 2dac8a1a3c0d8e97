"""What all plots share: new axes, and styles that can be told apart in grey."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any

from gbdnn.errors import MissingPackageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["above", "areas", "axes_or_new", "curves", "ideal", "new_figure", "over_layers"]

_WIDTH, _HEIGHT = 6.4, 3.4  # inches: at half a page's width, text of 10 points is still legible

# From dark to light, so that they differ as grey, too (after Okabe and Ito).
_COLOURS = ("#00395f", "#b34700", "#0077aa", "#cc79a7", "#e69f00", "#7fc8a9", "#c9c9c9")


def new_figure(rows: int = 1, columns: int = 1) -> Figure:
    """Return an empty figure with room for so many plots, unknown to pyplot."""
    try:
        from matplotlib.figure import Figure
    except ImportError as err:
        raise MissingPackageError('plots need matplotlib: pip install "gbdnn[plots]"') from err
    width = _WIDTH if columns == 1 else 4 * columns
    return Figure(figsize=(width, _HEIGHT * rows), layout="constrained")


def axes_or_new(ax: Axes | None) -> Axes:
    """Return the axes given, or those of a new figure."""
    return new_figure().subplots() if ax is None else ax


def curves() -> Iterator[dict[str, Any]]:
    """Return the styles of a plot's curves, one after the other."""
    looks = zip(cycle(_COLOURS[:6]), cycle("os^Dv"), cycle(["-", "--", "-.", ":"]), strict=False)
    for colour, marker, line in looks:
        yield {"color": colour, "marker": marker, "linestyle": line, "markersize": 4}


def areas() -> Iterator[dict[str, Any]]:
    """Return the styles of a plot's bars or areas, one after the other."""
    hatches = cycle(["", "///", "...", "\\\\\\", "xxx", "---", "+++"])
    for colour, hatch in zip(cycle(_COLOURS), hatches, strict=False):
        # Hatches have the edge's colour.
        yield {"facecolor": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0.3}


def ideal() -> dict[str, Any]:
    """Return the style of what would be ideal."""
    return {"color": "0.5", "linestyle": (0, (1, 1.5)), "linewidth": 1.2, "label": "ideal"}


def above(ax: Axes, handles: Sequence[Artist] | None = None) -> None:
    """Put the legend above a plot, where it covers nothing, in rows of four at most."""
    handles = ax.get_legend_handles_labels()[0] if handles is None else handles
    ax.legend(
        handles=handles,
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        ncols=min(4, len(handles)),
        fontsize="small",
        frameon=False,
    )


def over_layers(ax: Axes) -> None:
    """Make the horizontal axis one of layers."""
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    ax.set_xlabel("layer (from 0)")
