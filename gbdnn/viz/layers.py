"""Plots over layers: live inputs, density, time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.checks import as_array, as_records, whole_number
from gbdnn.engine.stats import LayerStats, per_layer
from gbdnn.errors import ArgumentError, ArgumentTypeError, require_kind
from gbdnn.runtime.first_use import complete, shown
from gbdnn.viz.figures import (
    area_styles,
    axes_or_new,
    curve_styles,
    label_layers,
    legend_above,
    new_figure,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plot_activity(
    stats: Iterable[LayerStats],
    ax: Axes | None = None,
    *,
    neurons: int | Sequence[int] | None = None,
    layers: int | None = None,
) -> Axes:
    """Plot the live inputs after each layer, the distinct ones among them, and their density.

    Parameters
    ----------
    stats : iterable of LayerStats
        One run's records, as a callback of `infer` collects them.
    ax : Axes, optional
        Where to draw. Default: a new figure's.
    neurons : int, or one int per layer, optional
        Output neurons of each layer. If given, the density of the computed activations is drawn
        over a second axis on the right.
    layers : int, optional
        Number of layers of the network. Default: the layers that have records.

    Returns
    -------
    Axes
        Those of the inputs; logarithmic above 1, linear down to 0.

    Raises
    ------
    ArgumentError
        There are no records, or `neurons` and the layers differ in number.

    Examples
    --------
    >>> import gbdnn
    >>> from gbdnn.gallery import digits, features_from_images
    >>> records = []
    >>> net, X = gbdnn.radixnet(1024, 12), features_from_images(digits(), 1024)
    >>> Y = gbdnn.infer(net, X, callback=records.append)
    >>> ax = gbdnn.viz.plot_activity(records, neurons=1024)
    >>> ax.get_ylabel()  # ax.figure.savefig("activity.png") writes it
    'inputs (number)'
    """
    table = per_layer(_records(stats), layers)
    density = None if neurons is None else _density(table, neurons)
    ax = axes_or_new(ax)
    styles = curve_styles()
    few = max(1, len(table) // 12)
    for name, label in (("live", "living inputs"), ("distinct", "distinct ones, computed")):
        style = next(styles) | {"markevery": (len(ax.lines) * few // 2, few)}
        ax.plot(table["layer"], table[name], label=label, **style)
    ax.set_yscale("symlog", linthresh=1)
    ax.set_ylim(0, 2 * max(1, table["live"].max()))
    label_layers(ax)
    ax.set_ylabel("inputs (number)")
    handles = list(ax.lines)
    if density is not None:
        right = ax.twinx()
        style = next(styles) | {"markevery": (few // 3, few), "linestyle": ":"}
        handles += right.plot(table["layer"], density, label="density (right)", **style)
        right.set_ylim(0, 1.05)
        right.set_ylabel("activations not 0 (share)")
    legend_above(ax, handles)
    return ax


def plot_layer_times(
    stats: Iterable[LayerStats],
    ax: Axes | None = None,
    *,
    parts: Sequence[str] | None = None,
    layers: int | None = None,
) -> Axes:
    """Plot the seconds of each layer, stacked by form.

    Parameters
    ----------
    stats : iterable of LayerStats
        One run's records. A record has the time of the layer itself, without that of gathering
        inputs between layers.
    ax : Axes, optional
        Where to draw. Default: a new figure's.
    parts : sequence of str, optional
        The areas, from the bottom up, such as ``"full form"``; the rest is drawn as ``"other"``.
        Plots with equal `parts` have equal styles. Default: every form of the records.
    layers : int, optional
        As for `plot_activity`.

    Returns
    -------
    Axes
        In milliseconds, summed over threads.

    Raises
    ------
    ArgumentError
        There are no records, or they have more layers than ``layers``.

    Examples
    --------
    >>> import gbdnn
    >>> from gbdnn.gallery import digits, features_from_images
    >>> records = []
    >>> net, X = gbdnn.radixnet(1024, 12), features_from_images(digits(), 1024)
    >>> Y = gbdnn.infer(net, X, callback=records.append)
    >>> ax = gbdnn.viz.plot_layer_times(records)
    >>> ax.get_ylabel()
    'time, all blocks (ms)'
    """
    records = _records(stats)
    if layers is not None:
        layers = whole_number(layers, "layers", least=1)
    count = max(record.layer for record in records) + 1
    forms = {f"{form} form": np.zeros(count) for form in sorted({each.form for each in records})}
    for record in records:
        forms[f"{record.form} form"][record.layer] += record.seconds
    return stack_times(forms, ax, forms if parts is None else _parts(parts), layers)


def stack_times(
    seconds: Mapping[str, np.ndarray],
    ax: Axes | None,
    parts: Iterable[str],
    layers: int | None = None,
) -> Axes:
    """Draw the seconds of each layer, by part, as stacked areas.

    From the bottom up: `parts`, of which one that is not in `seconds` is 0, then the sum of others.
    """
    reached = len(next(iter(seconds.values())))
    count = reached if layers is None else layers
    if reached > count:
        raise ArgumentError(f"times of {reached} layers, but the network is said to have {count}")
    stacked = {part: seconds.get(part, np.zeros(reached)) for part in parts}
    if others := [each for part, each in seconds.items() if part not in stacked]:
        stacked["other"] = np.sum(others, axis=0)
    ax = axes_or_new(ax)
    edges, bottom = np.arange(count + 1) - 0.5, np.zeros(count)
    for (part, each), style in zip(stacked.items(), area_styles(), strict=False):
        top = bottom + 1e3 * np.pad(each, (0, count - reached))
        ax.stairs(top, edges, baseline=bottom, fill=True, label=part, **style)
        bottom = top
    ax.set_xlim(edges[0], edges[-1])
    ax.set_ylim(0, 1.05 * max(bottom.max(), 1e-6))
    label_layers(ax)
    ax.set_ylabel("time, all blocks (ms)")
    legend_above(ax)
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
        Default: none.

    Returns
    -------
    Figure

    Examples
    --------
    >>> import gbdnn
    >>> from gbdnn.gallery import digits, features_from_images
    >>> records = []
    >>> net, X = gbdnn.radixnet(1024, 12), features_from_images(digits(), 1024)
    >>> Y = gbdnn.infer(net, X, callback=records.append)
    >>> figure = gbdnn.viz.run_figure(records, neurons=1024, title="12 layers")
    >>> len(figure.axes)
    3
    """
    records = _records(stats)
    if title is not None:
        require_kind(title, str, "title is a str")
    figure = new_figure(rows=2)
    upper, lower = figure.subplots(2, sharex=True)
    plot_activity(records, upper, neurons=neurons, layers=layers)
    plot_layer_times(records, lower, layers=layers)
    upper.set_xlabel("")
    if title is not None:
        figure.suptitle(title, fontsize="medium", wrap=True)
    return figure


def _records(stats: Iterable[LayerStats]) -> list[LayerStats]:
    records = as_records(stats, LayerStats, "stats")
    if not records:
        raise ArgumentError("there are no records to plot: was infer given callback=stats.append?")
    return records


def _parts(parts: Any) -> list[str]:
    complete(parts)
    if isinstance(parts, str) or not isinstance(parts, Iterable):
        raise ArgumentTypeError(f"parts is a list of names, not {shown(parts)}")
    return [str(part) for part in parts]


def _density(table: np.ndarray, neurons: int | Sequence[int]) -> np.ndarray:
    """Return the share of activations that are not 0; NaN where no input is alive."""
    as_array(neurons, "neurons")
    given = np.asarray(neurons)
    if given.dtype.kind not in "iu" or given.ndim > 1 or (given < 0).any():
        raise ArgumentTypeError(
            f"neurons is a whole number, or one per layer, not {shown(neurons)}"
        )
    if given.ndim and len(given) != len(table):
        raise ArgumentError(f"neurons of {len(given)} layers, but the records are of {len(table)}")
    places = table["distinct"] * given
    return np.divide(table["entries"], places, out=np.full(len(table), np.nan), where=places > 0)
