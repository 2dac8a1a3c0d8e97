"""Plots of what `thread_scaling.py` and `profile_parts.py` write, read from JSON."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from gbdnn.errors import ArgumentError
from gbdnn.viz.figures import axes_or_new, curve_styles, new_figure
from gbdnn.viz.layers import stack_times

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_profile", "plot_thread_scaling", "thread_scaling_figure"]

Quantity = Literal["seconds", "speed-up", "efficiency"]

_FIELD = {"seconds": "seconds_median", "speed-up": "speed_up", "efficiency": "efficiency"}
_IDEAL = {"seconds": -1, "speed-up": 1, "efficiency": 0}  # power of the number of threads
_IDEAL_STYLE = {"color": "0.5", "linestyle": (0, (1, 1.5)), "linewidth": 1.2}
_PARTS = 6  # areas of a profile by default; the smaller parts are added up as "other"


def plot_profile(
    profile: Mapping[str, Any],
    ax: Axes | None = None,
    *,
    parts: Sequence[str] | None = None,
    layers: int | None = None,
) -> Axes:
    """Plot the seconds of each layer, stacked by part.

    Parameters
    ----------
    profile : dict
        What ``profile_parts.py`` writes.
    ax : Axes, optional
        Where to draw. Default: a new figure's.
    parts : sequence of str, optional
        The areas, from the bottom up; the rest is drawn as ``"other"``. Plots with equal `parts`
        have equal styles. Default: the six largest.
    layers : int, optional
        Number of layers of the network. Default: the layers of the profile.

    Returns
    -------
    Axes
        In milliseconds, summed over threads.

    Raises
    ------
    ArgumentError
        The dict is no profile, or it has more layers than `layers`.
    """
    rows = profile.get("per_layer")
    if not isinstance(rows, Mapping) or not any(rows.values()):
        raise ArgumentError("there are no parts per layer: not what profile_parts.py writes")
    count = max(map(int, rows)) + 1
    seconds: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(count))
    for k, row in rows.items():
        for part, time in row.items():
            seconds[part][int(k)] += time
    largest = sorted(seconds, key=lambda part: -seconds[part].sum())
    return stack_times(seconds, ax, largest[:_PARTS] if parts is None else parts, layers)


def plot_thread_scaling(
    report: Mapping[str, Any] | Iterable[Mapping[str, Any]],
    ax: Axes | None = None,
    *,
    quantity: Quantity = "speed-up",
) -> Axes:
    """Plot seconds, speed-up or efficiency over the number of threads, beside the ideal.

    Parameters
    ----------
    report : dict, or several
        What ``thread_scaling.py`` writes; several may be of several machines or problems.
    ax : Axes, optional
        Where to draw. Default: a new figure's.
    quantity : {"speed-up", "seconds", "efficiency"}
        Speed-ups are over the fewest threads of the same report; an efficiency of 1 is ideal.

    Returns
    -------
    Axes
        A curve per report, and the ideal that begins at the same point.

    Raises
    ------
    ArgumentError
        There is no report, one has no summary, or `quantity` is none of the three.
    """
    if quantity not in get_args(Quantity):
        raise ArgumentError(f"quantity is one of {', '.join(_FIELD)}, not {quantity!r}")
    reports = _reports(report)
    summaries = [_summary(each) for each in reports]
    ax = axes_or_new(ax)
    drawn: set[tuple[tuple[int, float], ...]] = set()
    for label, rows, style in zip(_labels(reports), summaries, curve_styles(), strict=False):
        threads = [row["nthreads"] for row in rows]
        values = [row[_FIELD[quantity]] for row in rows]
        best = [values[0] * (n / threads[0]) ** _IDEAL[quantity] for n in threads]
        if (line := tuple(zip(threads, best, strict=True))) not in drawn:
            ax.plot(threads, best, label=None if drawn else "ideal", **_IDEAL_STYLE)
            drawn.add(line)
        ax.plot(threads, values, label=label, **style)
    _label_axes(ax, quantity, sorted({row["nthreads"] for rows in summaries for row in rows}))
    return ax


def thread_scaling_figure(report: Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> Figure:
    """Return a figure with seconds, speed-up and efficiency side by side.

    Parameters
    ----------
    report : dict, or several
        As for `plot_thread_scaling`.

    Returns
    -------
    Figure
    """
    reports = _reports(report)
    figure = new_figure(columns=3)
    for ax, quantity in zip(figure.subplots(1, 3), get_args(Quantity), strict=True):
        plot_thread_scaling(reports, ax, quantity=quantity)
        ax.get_legend().remove()
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.set_figheight(figure.get_figheight() + 0.2 * len(labels))
    figure.legend(handles, labels, loc="outside lower center", fontsize="small")
    return figure


def _label_axes(ax: Axes, quantity: Quantity, threads: list[int]) -> None:
    """Give the axes labels, ticks and limits."""
    from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

    wide = threads[-1] >= 8 * threads[0]
    if wide:
        ax.set_xscale("log", base=2)
        ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_locator(FixedLocator([float(n) for n in threads]))
    ax.xaxis.set_major_formatter(ScalarFormatter())
    ax.set_xlabel("threads (number)")
    ax.set_ylabel(
        {
            "seconds": "median time (s)",
            "speed-up": "speed-up (ratio)",
            "efficiency": "efficiency (share of ideal)",
        }[quantity]
    )
    if wide and quantity != "efficiency":  # the ideal is a straight line
        ax.set_yscale("log")
    else:
        ax.set_ylim(0, 1.05 * max(1 if quantity == "efficiency" else 0, ax.get_ylim()[1]))
    ax.legend(fontsize="small")


def _reports(report: Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    reports = [report] if isinstance(report, Mapping) else list(report)
    if not reports:
        raise ArgumentError("there is no report of thread_scaling.py to plot")
    return reports


def _summary(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return a report's row per number of threads, in order."""
    rows = report.get("summary")
    if not rows or not all({"nthreads", *_FIELD.values()} <= row.keys() for row in rows):
        raise ArgumentError("there is no row per number of threads: not a thread_scaling.py report")
    return sorted(rows, key=lambda row: row["nthreads"])


def _labels(reports: list[Mapping[str, Any]]) -> list[str]:
    """Return what to call each report: its machine, and its problem where they differ."""

    def machine(report: Mapping[str, Any]) -> str:
        on = report.get("machine", {})
        return f"{on.get('processor', 'unknown machine')}, {on.get('cores', '?')} cores"

    def problem(report: Mapping[str, Any]) -> str:
        of = report.get("problem", {})
        return f"{of.get('neurons')} x {of.get('layers')}, {of.get('inputs')} inputs"

    if len({problem(report) for report in reports}) == 1:
        return [machine(report) for report in reports]
    return [f"{machine(report)}: {problem(report)}" for report in reports]
