"""Plots of a run: inputs alive, density and time by layer, and the balance of workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from gbdnn.arrays.checks import as_array, as_records, as_word
from gbdnn.distributed.stats import BatchStats, balance
from gbdnn.engine.stats import LayerStats, per_layer
from gbdnn.errors import ArgumentError, ArgumentTypeError
from gbdnn.runtime.first_use import shown
from gbdnn.viz.figures import (
    area_styles,
    axes_or_new,
    curve_styles,
    label_steps,
    legend_above,
    stacked,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LABELS = {
    "seconds": "busy time (s)",
    "inputs": "inputs",
    "alive": "inputs alive after the last layer",
    "bytes": "bytes moved",
}


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
    >>> net, X = gbdnn.radixnet(1024, 12), features_from_images(digits()[:200], 1024)
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
    >>> net, X = gbdnn.radixnet(1024, 12), features_from_images(digits()[:200], 1024)
    >>> Y = gbdnn.infer(net, X, callback=records.append)
    >>> ax = gbdnn.viz.plot_layer_times(records)
    >>> ax.get_ylabel()
    'total time of all blocks (ms)'
    """
    records = _records(stats)
    count = len(per_layer(records, layers))
    ax = axes_or_new(ax)
    edges, bottom = np.arange(count + 1) - 0.5, np.zeros(count)
    kernels = sorted({each.kernel for each in records})
    for kernel, style in zip(kernels, area_styles(), strict=False):
        own = [each for each in records if each.kernel == kernel]
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
    >>> net, X = gbdnn.radixnet(1024, 12), features_from_images(digits()[:200], 1024)
    >>> Y = gbdnn.infer(net, X, callback=records.append)
    >>> figure = gbdnn.viz.run_figure(records, neurons=1024, title="12 layers")
    >>> len(figure.axes)
    3
    """
    records = _records(stats)
    figure, (upper, lower) = stacked(2, title)
    plot_activity(records, upper, neurons=neurons, layers=layers)
    plot_layer_times(records, lower, layers=layers)
    upper.set_xlabel("")
    return figure


def plot_balance(
    stats: Iterable[BatchStats],
    ax: Axes | None = None,
    *,
    of: Literal["seconds", "inputs", "alive", "bytes"] = "seconds",
    workers: int | None = None,
) -> Axes:
    """Plot the work of each worker by batch, and the mean.

    Parameters
    ----------
    stats : iterable of BatchStats
        Records of one call with ``executor=``, in order.
    ax : Axes, optional
        Axes to draw into (default: those of a new figure).
    of : {"seconds", "inputs", "alive", "bytes"}, default "seconds"
        Quantity to plot.
    workers : int, optional
        Number of workers (default: those that computed a batch).

    Returns
    -------
    Axes
        One bar per worker in descending order, one segment per batch. The line is the mean,
        labelled with the imbalance (maximum divided by mean, as KK-SpDNN reports per rank).

    Raises
    ------
    ArgumentError
        There are no records, or `of` is unknown.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> import numpy as np, gbdnn
    >>> records = []
    >>> with ThreadPoolExecutor(2) as pool:
    ...     workers = gbdnn.distributed.Workers(pool, batch=1, stats=records.append)
    ...     Y = gbdnn.infer([np.eye(3)], np.eye(3), executor=workers)
    >>> ax = gbdnn.viz.plot_balance(records, of="inputs", workers=2)
    """
    as_word(of, "of", _LABELS)
    records = as_records(stats, BatchStats, "stats")
    load = balance(records, workers)
    spread = getattr(load, of)
    table = load.workers[np.argsort(-load.workers[of], kind="stable")]
    at = {name: x for x, name in enumerate(table["worker"].tolist()) if name}
    tops = np.zeros(len(table))
    ax = axes_or_new(ax)
    style: dict[str, Any] = {"edgecolor": "white", "linewidth": 0.5}
    for record in records:
        x, height = at[record.worker], getattr(record, of)
        shade = "#0077aa" if tops[x] == 0 else "#7fb2cc"
        ax.bar(x, height, 0.8, bottom=tops[x], facecolor=shade, **style)
        tops[x] += height
    ax.axhline(spread.mean, color="black", linestyle="--", linewidth=1, label="mean")
    ax.set_xticks(range(len(table)) if len(table) <= 24 else [])
    ax.set_xlabel(f"worker ({len(table)}, the largest first)")
    ax.set_ylabel(_LABELS[of])
    ax.annotate(
        f"imbalance {spread.imbalance:.2f}", (0.99, 0.97), xycoords="axes fraction", ha="right",
        va="top",
    )  # fmt: skip
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
