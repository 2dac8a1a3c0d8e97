"""Plots of a training run: loss, accuracy and edges by epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from gbdnn.arrays.checks import as_records, as_word
from gbdnn.errors import ArgumentError
from gbdnn.training.run import EpochRecord
from gbdnn.viz.figures import axes_or_new, curve_styles, label_steps, legend_above

if TYPE_CHECKING:
    from collections.abc import Iterable

    from matplotlib.axes import Axes

    from gbdnn.training.run import TrainingRun

_CURVES = {
    "loss": (("loss", "training"), ("validation_loss", "validation")),
    "accuracy": (("accuracy", "training"), ("validation_accuracy", "validation")),
    "edges": (("edges", "edges"),),
}


def plot_history(
    run: TrainingRun | Iterable[EpochRecord],
    ax: Axes | None = None,
    *,
    of: Literal["loss", "accuracy", "edges"] = "loss",
) -> Axes:
    """Plot loss, accuracy or edges of a training run by epoch.

    Parameters
    ----------
    run : TrainingRun or iterable of EpochRecord
        Result of `train`, or its history.
    ax : Axes, optional
        Axes to draw into (default: those of a new figure).
    of : {"loss", "accuracy", "edges"}, default "loss"
        Loss and accuracy are drawn for training and validation data. A vertical line marks the
        epoch of the returned network if `train` had a patience.

    Returns
    -------
    Axes
        Losses are on a logarithmic scale; edges start at 0.

    Raises
    ------
    ArgumentError
        There are no epochs, `of` is unknown, or the records have no accuracy.

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> X = np.random.default_rng(0).random((200, 8))
    >>> y = (X[:, 0] > X[:, 1]).astype(int)
    >>> net = gbdnn.training.erdos_renyi([8, 16, 2], density=0.5)
    >>> run = gbdnn.train(net, X, y, epochs=3, validation=0.2)
    >>> ax = gbdnn.viz.plot_history(run, of="accuracy")
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['training', 'validation']
    """
    as_word(of, "of", _CURVES)
    records = _records(run)
    epochs = [record.epoch for record in records]
    curves = {
        label: np.array([getattr(record, name) for record in records], float)
        for name, label in _CURVES[of]
    }
    curves = {label: values for label, values in curves.items() if not np.isnan(values).all()}
    if not curves:
        raise ArgumentError(f"of={of!r}: the records have no {of}; it needs labels as targets")
    ax = axes_or_new(ax)
    few = max(1, len(records) // 12)
    for (label, values), style in zip(curves.items(), curve_styles(), strict=False):
        ax.plot(epochs, values, label=label, markevery=few, **style)
    best = getattr(run, "best", None)
    if best is not None:
        ax.axvline(best.epoch, color="0.5", linestyle=":", linewidth=1, label="best epoch")
    if of == "loss" and all((values[~np.isnan(values)] > 0).all() for values in curves.values()):
        ax.set_yscale("log")
    if of == "edges":
        ax.set_ylim(0, 1.05 * max(1, *curves["edges"]))
    label_steps(ax, "epoch")
    ax.set_ylabel(of)
    if len(ax.get_legend_handles_labels()[0]) > 1:
        legend_above(ax)
    return ax


def _records(run: TrainingRun | Iterable[EpochRecord]) -> list[EpochRecord]:
    records = as_records(getattr(run, "history", run), EpochRecord, "run")
    if not records:
        raise ArgumentError("there are no epochs to plot; train for at least one epoch")
    return records
