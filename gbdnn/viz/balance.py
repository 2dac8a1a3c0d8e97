"""How evenly work is spread over workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from gbdnn.arrays.checks import as_records, as_word
from gbdnn.distributed.stats import BatchStats, balance
from gbdnn.viz.figures import axes_or_new, legend_above

if TYPE_CHECKING:
    from collections.abc import Iterable

    from matplotlib.axes import Axes


_LABELS = {
    "seconds": "busy (s)",
    "inputs": "inputs",
    "living": "living inputs after the last layer",
    "bytes": "bytes moved",
}


def plot_balance(
    stats: Iterable[BatchStats],
    ax: Axes | None = None,
    *,
    of: Literal["seconds", "inputs", "living", "bytes"] = "seconds",
    workers: int | None = None,
) -> Axes:
    """Plot what each worker did, batch upon batch, and the mean.

    Parameters
    ----------
    stats : iterable of BatchStats
        Of one call with ``executor=``, in the order in which they came.
    ax : Axes, optional
        Where to draw. Default: a new figure's.
    of : {"seconds", "inputs", "living", "bytes"}, default "seconds"
        What to add up.
    workers : int, optional
        How many workers there are (default: those that had a batch).

    Returns
    -------
    Axes
        A bar per worker, the largest first; a segment per batch. The line is the mean; the
        imbalance is written in it: the largest over the mean, as KK-SpDNN reports it per rank.

    Raises
    ------
    ArgumentError
        There are no records, or `of` is something else.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> import numpy as np, gbdnn
    >>> records = []
    >>> with ThreadPoolExecutor(2) as pool:
    ...     Y = gbdnn.infer([np.eye(3)], np.eye(3), executor=pool, batch=1, stats=records.append)
    >>> ax = gbdnn.viz.plot_balance(records, of="inputs", workers=2)
    """
    as_word(of, "of", _LABELS)
    records = as_records(stats, BatchStats, "stats")
    found = balance(records, workers)
    spread = getattr(found, of)
    table = found.workers[np.argsort(-found.workers[of], kind="stable")]
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
