"""Plots of a run: inputs alive, density and time by layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gbdnn.arrays.checks import as_array, as_records
from gbdnn.engine.stats import LayerStats, per_layer
from gbdnn.errors import ArgumentError, ArgumentTypeError
from gbdnn.runtime.first_use import shown
from gbdnn.viz.figures import area_styles, axes_or_new, curve_styles, label_steps, legend_above

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from matplotlib.axes import Axes


def plot_activity(
    stats: Iterable[LayerStats],
    ax: Axes | None = None,
    *,
    neurons: int | Sequence[int] | None = None,
    layers: int | None = None,
) -> Axes:
    """Plot the number of inputs alive and distinct after each layer, and their density.

    Parameters
    ----------
    stats : iterable of LayerStats
        Records of one run, collected by a callback of `infer`.
    ax : Axes, optional
        Axes to draw into (default: those of a new figure).
    neurons : int, or one int per layer, optional
        Output neurons of each layer. If given, the density of the computed activations is drawn on
        a second axis.
    layers : int, optional
        Number of layers of the network (default: the layers with records).

    Returns
    -------
    Axes
        Axes of the inputs; logarithmic above 1, linear down to 0.

    Raises
    ------
    ArgumentError
        There are no records, or the number of layers and the length of `neurons` differ.

    Examples
    --------
    >>> import gbdnn
    >>> from gbdnn.gallery import digits, features_from_images
    >>> records = []
    >>> net, X = gbdnn.gallery.radixnet(1024, 12), features_from_images(digits()[:200], 1024)
    >>> Y = gbdnn.infer(net, X, callback=records.append)
    >>> ax = gbdnn.viz.plot_activity(records, neurons=1024)
    >>> ax.get_ylabel()  # ax.figure.savefig("activity.png") writes it
    'number of inputs'
    """
    table = per_layer(_records(stats), layers)
    density = None if neurons is None else _density(table, neurons)
    ax = axes_or_new(ax)
    styles = curve_styles()
    few = max(1, len(table) // 12)
    for name, label in (("alive", "inputs alive"), ("distinct", "distinct inputs alive")):
        style = next(styles) | {"markevery": (len(ax.lines) * few // 2, few)}
        ax.plot(table["layer"], table[name], label=label, **style)
    ax.set_yscale("symlog", linthresh=1)
    ax.set_ylim(0, 2 * max(1, table["alive"].max()))
    label_steps(ax, "layer")
    ax.set_ylabel("number of inputs")
    handles = list(ax.lines)
    if density is not None:
        right = ax.twinx()
        style = next(styles) | {"markevery": (few // 3, few), "linestyle": ":"}
        handles += right.plot(table["layer"], density, label="density (right)", **style)
        right.set_ylim(0, 1.05)
        right.set_ylabel("fraction of nonzero activations")
    legend_above(ax, handles)
    return ax


def plot_layer_times(
    stats: Iterable[LayerStats], ax: Axes | None = None, *, layers: int | None = None
) -> Axes:
    """Plot the time of each layer, stacked by kernel.

    Parameters
    ----------
    stats : iterable of LayerStats
        Records of one run. Regrouping inputs between layers is not included.
    ax : Axes, optional
        Axes to draw into (default: those of a new figure).
    layers : int, optional
        As for `plot_activity`.

    Returns
    -------
    Axes
        Milliseconds, summed over threads. Few layers that take far longer than all others are cut
        off and labelled with their time.

    Raises
    ------
    ArgumentError
        There are no records, or they have more layers than ``layers``.

    Examples
    --------
    >>> import gbdnn
    >>> from gbdnn.gallery import digits, features_from_images
    >>> records = []
    >>> net, X = gbdnn.gallery.radixnet(1024, 12), features_from_images(digits()[:200], 1024)
    >>> Y = gbdnn.infer(net, X, callback=records.append)
    >>> ax = gbdnn.viz.plot_layer_times(records)
    >>> ax.get_ylabel()
    'total time of all blocks (ms)'
    """
    records = _records(stats)
    count = len(per_layer(records, layers))
    ax = axes_or_new(ax)
    edges, bottom = np.arange(count + 1) - 0.5, np.zeros(count)
    kernels = sorted({record.kernel for record in records})
    for kernel, style in zip(kernels, area_styles(), strict=False):
        own = [record for record in records if record.kernel == kernel]
        top = bottom + 1e3 * per_layer(own, count)["seconds"]
        ax.stairs(top, edges, baseline=bottom, fill=True, label=f"{kernel} kernel", **style)
        bottom = top
    ax.set_xlim(edges[0], edges[-1])
    # Up to one layer in fifty may be cut off, such as one in which the process had to wait.
    usual, highest = np.sort(bottom)[-1 - count // 50], bottom.max()
    top = 1.05 * max(highest if highest <= 10 * usual else 1.5 * usual, 1e-6)
    ax.set_ylim(0, top)
    for k in np.flatnonzero(bottom > top):
        ax.annotate(f"{bottom[k]:.4g} ms", (k + 1, 0.98 * top), va="top", fontsize="small")
    label_steps(ax, "layer")
    ax.set_ylabel("total time of all blocks (ms)")
    legend_above(ax)
    return ax


def _records(stats: Iterable[LayerStats]) -> list[LayerStats]:
    records = as_records(stats, LayerStats, "stats")
    if not records:
        raise ArgumentError("there are no records to plot; pass callback=stats.append to infer")
    return records


def _density(table: np.ndarray, neurons: int | Sequence[int]) -> np.ndarray:
    """Return the fraction of nonzero activations; NaN if no input is alive."""
    as_array(neurons, "neurons")
    given = np.asarray(neurons)
    if given.dtype.kind not in "iu" or given.ndim > 1 or (given < 0).any():
        raise ArgumentTypeError(
            f"neurons must be a whole number, or one per layer, not {shown(neurons)}"
        )
    if given.ndim and len(given) != len(table):
        raise ArgumentError(
            f"neurons has {len(given)} values, but the records have {len(table)} layers"
        )
    places = table["distinct"] * given
    return np.divide(table["entries"], places, out=np.full(len(table), np.nan), where=places > 0)
