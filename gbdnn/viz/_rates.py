"""Edge rates beside those that others have published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.challenge.published import PUBLISHED, Rate
from gbdnn.errors import ArgumentError
from gbdnn.viz._axes import areas, axes_or_new

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from matplotlib.axes import Axes

__all__ = ["plot_edge_rates"]

_GREYS = ("0.25", "0.45", "0.65", "0.82", "0.92")


def plot_edge_rates(
    rates: Iterable[Rate | Mapping[str, Any]],
    ax: Axes | None = None,
    *,
    published: Iterable[Rate] = PUBLISHED,
) -> Axes:
    """Plot edge rates, a group of bars per problem, beside published ones.

    Parameters
    ----------
    rates : iterable of dict or Rate
        A dict is what ``gbdnn challenge --json`` writes, or `Outcome.as_json` returns.
    ax : Axes, optional
        Where to draw; a new figure's by default.
    published : iterable of Rate
        What to draw beside them, in grey; ``()`` for nothing.

    Returns
    -------
    Axes
        Edges per second, logarithmic. Rates of runs in which equal inputs went on as one are
        hatched, and named EFFECTIVE in the legend: they are not the rate of a machine.

    Raises
    ------
    ArgumentError
        There is nothing to plot, or a dict is no outcome.

    Notes
    -----
    Rates of other machines are a background, no comparison of programs; the machines are in the
    legend, the sources in `gbdnn.challenge.PUBLISHED`. ``*`` marks numbers that are quoted, and not
    compared with their source.
    """
    own = [each if isinstance(each, Rate) else _rate(each) for each in rates]
    others = list(published)
    if not own + others:
        raise ArgumentError("there are no edge rates to plot")
    problems = sorted({(each.neurons, each.layers) for each in own + others})
    members: dict[str, list[Rate]] = {}
    for each in own + others:
        members.setdefault(_label(each), []).append(each)
    ax = axes_or_new(ax)
    here = {problem: _series_at(problem, members) for problem in problems}
    width = 0.84 / max(map(len, here.values()))
    ours, greys = areas(), iter(_GREYS * len(members))
    for label, series in members.items():
        style = _style(series[0], ours, greys, is_own=series[0] in own)
        x = [
            at + width * (here[problem].index(label) + 0.5 - len(here[problem]) / 2)
            for each in series
            for at, problem in enumerate(problems)
            if problem == (each.neurons, each.layers)
        ]
        ax.bar(x, [each.edges_per_second for each in series], width, label=label, **style)
    lowest = min(each.edges_per_second for each in own + others)
    ax.set_yscale("log")
    ax.set_ylim(bottom=10 ** np.floor(np.log10(lowest / 2)))
    ax.set_xticks(range(len(problems)), [f"{n:,} x {k:,}" for n, k in problems])
    ax.set_xlabel("problem (neurons x layers)")
    ax.set_ylabel("edge rate (edges/s)")
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), fontsize="x-small", frameon=False)
    return ax


def _series_at(problem: tuple[int, int], members: dict[str, list[Rate]]) -> list[str]:
    """Return the series that have a bar at a problem, in order."""
    return [
        label
        for label, series in members.items()
        if problem in {(each.neurons, each.layers) for each in series}
    ]


def _style(first: Rate, ours: Any, greys: Any, *, is_own: bool) -> dict[str, Any]:
    """Return a series' style; only effective rates are hatched."""
    plain = next(ours)["facecolor"] if is_own else next(greys)
    if first.effective:
        return {"facecolor": "white", "edgecolor": plain, "hatch": "////", "linewidth": 1}
    return {"facecolor": plain, "edgecolor": "black", "linewidth": 0.5}


def _label(rate: Rate) -> str:
    """Return what to call a rate in the legend."""
    words = [rate.system, "" if rate.checked else "*", f" ({rate.machine})"]
    if rate.inputs != 60_000:
        words.append(f", {rate.inputs:,} inputs")
    if rate.effective:
        words.append(": EFFECTIVE, equal inputs once")
    return "".join(words)


def _rate(outcome: Mapping[str, Any]) -> Rate:
    """Return what `Outcome.as_json` tells."""
    try:
        problem, machine = outcome["problem"], outcome["machine"]
        threads = outcome["nthreads"]
        return Rate(
            system=f"gbdnn {outcome['versions']['gbdnn']}",
            machine=f"{machine['processor']}, {threads} thread{'s' if threads > 1 else ''}",
            source="own run",
            neurons=problem["neurons"],
            layers=problem["layers"],
            inputs=problem["inputs"],
            edges=problem["edges"],
            seconds=outcome["seconds_median"],
            effective=outcome["compress"],
        )
    except (KeyError, TypeError) as err:
        raise ArgumentError(f"not what gbdnn challenge --json writes: no {err}") from err
