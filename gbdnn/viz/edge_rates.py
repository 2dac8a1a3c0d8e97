"""Bar plots of edge rates with published ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.checks import as_list, as_records
from gbdnn.challenge.published import PUBLISHED, Rate
from gbdnn.errors import ArgumentError
from gbdnn.viz.figures import area_styles, axes_or_new

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from matplotlib.axes import Axes

_DARKEST, _LIGHTEST = 0.25, 0.95  # grey levels of published rates
_ENTRY = 0.045  # height of an entry of the legend, in rows of a figure


def plot_edge_rates(
    rates: Iterable[Rate | Mapping[str, Any]],
    ax: Axes | None = None,
    *,
    published: Iterable[Rate] | None = None,
) -> Axes:
    """Plot edge rates as bars, grouped by problem, together with published ones.

    Parameters
    ----------
    rates : iterable of dict or Rate
        A dict is the output of ``gbdnn challenge --json`` or `Outcome.as_json`.
    ax : Axes, optional
        Axes to draw into (default: those of a new figure).
    published : iterable of Rate, optional
        Published rates, drawn in grey in the order of the legend, restricted to the problems in
        `rates` (all, if `rates` is empty). Pass ``()`` for none. Default:
        `gbdnn.challenge.PUBLISHED`.

    Returns
    -------
    Axes
        Edges per second on a logarithmic scale. Effective rates (equal inputs computed once) are
        hatched and marked EFFECTIVE in the legend. Outcomes with the same label are numbered.

    Raises
    ------
    ArgumentError
        There is nothing to plot, or a dict is not an outcome.

    Notes
    -----
    Published rates are from other machines and do not compare programs. The legend names the
    machines; see `gbdnn.challenge.PUBLISHED` for the sources. ``*`` marks numbers that were not
    compared with their original source.

    Examples
    --------
    >>> import gbdnn
    >>> from gbdnn import challenge
    >>> outcome = challenge.run(challenge.generated(1024, 12, inputs=100), check=False)
    >>> ax = gbdnn.viz.plot_edge_rates([outcome.as_json()])
    >>> ax.get_yscale()
    'log'
    """
    given = as_list(rates, "rates must be a list of Rates or outcomes")
    own = [rate if isinstance(rate, Rate) else _rate(rate) for rate in given]
    asked = {(rate.neurons, rate.layers) for rate in own}
    others = [
        rate
        for rate in as_records(PUBLISHED if published is None else published, Rate, "published")
        if not own or (rate.neurons, rate.layers) in asked
    ]
    every = own + others
    if not every:
        raise ArgumentError("there are no edge rates to plot; pass rates or published rates")
    problems = sorted({(rate.neurons, rate.layers) for rate in every})
    series: dict[str, dict[tuple[int, int], Rate]] = {}  # by label, then by problem
    for rate in every:
        problem, name, n = (rate.neurons, rate.layers), _label(rate), 1
        while problem in series.get(name, {}):
            n += 1
            name = f"{_label(rate)}, no. {n}"
        series.setdefault(name, {})[problem] = rate
    # labels[p]: series with a bar at problem p, from left to right
    labels = [[name for name, of in series.items() if problem in of] for problem in problems]
    width = 0.84 / max(map(len, labels))
    ax = axes_or_new(ax, rows=1 + _ENTRY * len(series))
    greys = iter(np.linspace(_DARKEST, _LIGHTEST, len(series)).astype(str))
    colours = area_styles()
    for name, of in series.items():
        at, members = [problems.index(problem) for problem in of], list(of.values())
        x = [p + width * (labels[p].index(name) + 0.5 - len(labels[p]) / 2) for p in at]
        colour = next(colours)["facecolor"] if members[0] in own else next(greys)
        style: dict[str, Any] = {"facecolor": colour, "edgecolor": "black", "linewidth": 0.5}
        if members[0].effective:
            style = {"facecolor": "white", "edgecolor": colour, "hatch": "////", "linewidth": 1}
        ax.bar(x, [rate.edges_per_second for rate in members], width, label=name, **style)
    lowest = min(rate.edges_per_second for rate in every)
    ax.set_yscale("log")
    ax.set_ylim(bottom=10 ** np.floor(np.log10(lowest / 2)))
    ax.set_xticks(range(len(problems)), [f"{n:,} x {k:,}" for n, k in problems])
    ax.set_xlabel("problem (neurons x layers)")
    ax.set_ylabel("edge rate (edges/s)")
    ax.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, 0),
        borderaxespad=6,
        fontsize="x-small",
        frameon=False,
    )
    return ax


def _label(rate: Rate) -> str:
    """Return the legend entry of a rate."""
    words = [rate.system, "" if rate.checked else "*", f" ({rate.machine})"]
    if rate.inputs != 60_000:
        words.append(f", {rate.inputs:,} inputs")
    if rate.effective:
        words.append(": EFFECTIVE, equal inputs once")
    return "".join(words)


def _rate(outcome: Mapping[str, Any]) -> Rate:
    """Return the rate of an outcome's JSON."""
    try:
        problem, machine = outcome["problem"], outcome["machine"]
        counts = ("worker", outcome["workers"]), ("thread", outcome["nthreads"])
        words = " x ".join(f"{n} {what}{'s' if n > 1 else ''}" for what, n in counts if n)
        return Rate(
            system=f"gbdnn {outcome['versions']['gbdnn']}, engine {outcome['engine']}",
            machine=f"{machine['processor']}, {words}",
            source="own run",
            neurons=problem["neurons"],
            layers=problem["layers"],
            inputs=problem["inputs"],
            edges=problem["edges"],
            seconds=outcome["seconds_median"],
            effective=outcome["deduplicate"],
        )
    except (KeyError, TypeError) as err:
        raise ArgumentError(f"rates: not the output of gbdnn challenge --json: {err!r}") from err
