"""What happens from layer to layer: inputs that live, and where the time goes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.engine.stats import per_layer
from gbdnn.errors import ArgumentError
from gbdnn.viz._axes import above, areas, axes_or_new, curves, new_figure, over_layers

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from gbdnn.engine.stats import LayerStats

__all__ = ["plot_activity", "plot_layer_times", "run_figure"]

_PARTS = 6  # that are told apart; those beyond are "other"


def plot_activity(
    stats: Iterable[LayerStats],
    ax: Axes | None = None,
    *,
    neurons: int | Sequence[int] | None = None,
    layers: int | None = None,
) -> Axes:
    """Plot how many inputs live after each layer, how many of them are distinct, and how dense.

    Parameters
    ----------
    stats : iterable of LayerStats
        Of one run, as a callback of `infer` collects them.
    ax : Axes, optional
        Where to draw; a new figure's by default.
    neurons : int, or one int per layer, optional
        Output neurons of each layer: the activations' density is drawn, too, over an axis of its
        own on the right. It is that of the living inputs that were computed.
    layers : int, optional
        How many layers the network has; by default as many as were reached.

    Returns
    -------
    Axes
        Those of the inputs; logarithmic above 1, so that 0 has a place.

    Raises
    ------
    ArgumentError
        There are no records, or another number of `neurons` than of layers.
    """
    table = per_layer(_records(stats), layers)
    density = None if neurons is None else _density(table, neurons)
    ax = axes_or_new(ax)
    styles = curves()
    few = max(1, len(table) // 12)
    for name, label in (("live", "living inputs"), ("distinct", "distinct ones, computed")):
        style = next(styles) | {"markevery": (len(ax.lines) * few // 2, few)}
        ax.plot(table["layer"], table[name], label=label, **style)
    ax.set_yscale("symlog", linthresh=1)
    ax.set_ylim(0, 2 * max(1, table["live"].max()))
    over_layers(ax)
    ax.set_ylabel("inputs (number)")
    handles = list(ax.lines)
    if density is not None:
        right = ax.twinx()
        style = next(styles) | {"markevery": (few // 3, few), "linestyle": ":"}
        handles += right.plot(table["layer"], density, label="density (right)", **style)
        right.set_ylim(0, 1.05)
        right.set_ylabel("activations not 0 (share)")
    above(ax, handles)
    return ax


def plot_layer_times(
    source: Iterable[LayerStats] | Mapping[str, Any],
    ax: Axes | None = None,
    *,
    parts: Sequence[str] | None = None,
    layers: int | None = None,
) -> Axes:
    """Plot the seconds of each layer, stacked by part or by form.

    Parameters
    ----------
    source : iterable of LayerStats, or dict
        One run's records give the time by form; what ``benchmarks/profile_parts.py`` writes, read
        from JSON, gives it by part. A record has the time of the layer itself, without that of
        gathering inputs between layers, which the profile has.
    ax : Axes, optional
        Where to draw; a new figure's by default.
    parts : sequence of str, optional
        Which to tell apart, from the bottom up: plots with equal `parts` have equal styles. By
        default the six largest. The others are drawn as one.
    layers : int, optional
        As for `plot_activity`.

    Returns
    -------
    Axes
        In milliseconds. Seconds of threads side by side are added.

    Raises
    ------
    ArgumentError
        There are no records, the dict is no profile, or there are more layers than `layers`.
    """
    found = _profiled(source) if isinstance(source, Mapping) else _forms(_records(source))
    reached = len(next(iter(found.values())))
    count = reached if layers is None else layers
    if reached > count:
        raise ArgumentError(f"times of {reached} layers, but the network is said to have {count}")
    stacked = _chosen(found, reached, parts)
    ax = axes_or_new(ax)
    edges, bottom = np.arange(count + 1) - 0.5, np.zeros(count)
    for (part, seconds), style in zip(stacked.items(), areas(), strict=False):
        top = bottom + 1e3 * np.pad(seconds, (0, count - reached))
        ax.stairs(top, edges, baseline=bottom, fill=True, label=part, **style)
        bottom = top
    ax.set_xlim(edges[0], edges[-1])
    ax.set_ylim(0, 1.05 * max(bottom.max(), 1e-6))
    over_layers(ax)
    ax.set_ylabel("time, all blocks (ms)")
    above(ax)
    return ax


def run_figure(
    stats: Iterable[LayerStats],
    *,
    neurons: int | Sequence[int] | None = None,
    layers: int | None = None,
    title: str | None = None,
) -> Figure:
    """Return a figure of one run: `plot_activity` above `plot_layer_times`.

    Parameters
    ----------
    stats, neurons, layers
        As for `plot_activity`.
    title : str, optional
        What was run.

    Returns
    -------
    Figure
    """
    records = _records(stats)
    figure = new_figure(rows=2)
    upper, lower = figure.subplots(2, sharex=True)
    plot_activity(records, upper, neurons=neurons, layers=layers)
    plot_layer_times(records, lower, layers=layers)
    upper.set_xlabel("")
    if title is not None:
        figure.suptitle(title, fontsize="medium", wrap=True)
    return figure


def _records(stats: Iterable[LayerStats]) -> list[LayerStats]:
    records = list(stats)
    if not records:
        raise ArgumentError("there are no records to plot: was infer given callback=stats.append?")
    return records


def _density(table: np.ndarray, neurons: int | Sequence[int]) -> np.ndarray:
    """Return the share of activations that are not 0; NaN where no input lives."""
    given = np.asarray(neurons)
    if given.ndim and len(given) != len(table):
        raise ArgumentError(f"neurons of {len(given)} layers, but the records are of {len(table)}")
    places = table["distinct"] * given
    return np.divide(table["entries"], places, out=np.full(len(table), np.nan), where=places > 0)


def _forms(records: list[LayerStats]) -> dict[str, np.ndarray]:
    """Return seconds per layer, by form."""
    count = max(record.layer for record in records) + 1
    forms: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(count))
    for record in records:
        forms[f"{record.form} form"][record.layer] += record.seconds
    return dict(sorted(forms.items()))


def _profiled(profile: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return seconds per layer by part, the largest part first."""
    rows = profile.get("per_layer")
    if not isinstance(rows, Mapping) or not any(rows.values()):
        raise ArgumentError("there are no parts per layer: not what profile_parts.py writes")
    count = max(map(int, rows)) + 1
    parts: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(count))
    for k, row in rows.items():
        for part, seconds in row.items():
            parts[part][int(k)] += seconds
    return {part: parts[part] for part in sorted(parts, key=lambda part: -parts[part].sum())}


def _chosen(
    found: dict[str, np.ndarray], count: int, parts: Sequence[str] | None
) -> dict[str, np.ndarray]:
    """Return the seconds of the parts to tell apart, and of all others together."""
    names = list(found)[:_PARTS] if parts is None else list(parts)
    chosen = {name: found.get(name, np.zeros(count)) for name in names}
    if others := [seconds for name, seconds in found.items() if name not in chosen]:
        chosen["other"] = np.sum(others, axis=0)
    return chosen
