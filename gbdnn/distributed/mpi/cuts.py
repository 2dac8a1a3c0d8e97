"""Which layers a rank of a pipeline holds: the slowest rank decides, so all are to be as fast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.distributed.held_layers import as_inputs, rows_between
from gbdnn.engine.run import infer_network
from gbdnn.engine.stats import LayerStats, per_layer
from gbdnn.kernels import costs

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from gbdnn.engine.sources import RowSource
    from gbdnn.model.network import Network

__all__ = ["balanced_cuts", "measured_cuts"]

_SAMPLE, _RANGES = 1024, 8  # inputs of a sample, and ranges that they are taken from


def measured_cuts(
    net: Network, X: RowSource, ranks: int, options: dict[str, Any]
) -> tuple[int, ...]:
    """Return the cuts that a sample of the features suggests, by its seconds in each layer.

    `options` are keywords of `infer_network`.
    """
    some, records = _sample(X), list[LayerStats]()
    infer_network(net, some, **options | {"callback": records.append})
    table = per_layer(records, len(net))
    seconds = table["seconds"] if X.nrows else [info.edges for info in net.infos]
    before = some.size if isinstance(some, np.ndarray) else some.nvals
    # Of equal rows one was computed; all move.
    entries = table["entries"] * table["live"] / np.maximum(table["distinct"], 1)
    moving = 2e-9 * costs.CONVERT * np.append(before, entries)
    return balanced_cuts(seconds, moving, ranks)


def balanced_cuts(seconds: ArrayLike, moving: ArrayLike, ranks: int) -> tuple[int, ...]:
    """Return the cuts by which the slowest rank takes as little time as possible.

    Parameters
    ----------
    seconds : array of float, shape (layers,)
        Of each layer.
    moving : array of float, shape (layers + 1,)
        To take rows before layer k, or to make them behind layer k - 1: both ranks at a cut spend
        it.
    ranks : int
        Parts; there may be more of them than layers.

    Returns
    -------
    tuple of int, length ``ranks - 1``
        The first layers of all ranks but rank 0, ascending. Every rank gets a layer if there are
        enough.

    Notes
    -----
    ``best[r, b] = min over a of max(best[r - 1, a], cost(a, b))``, where ranks up to r hold the
    layers before b.

    Examples
    --------
    >>> from gbdnn.distributed.mpi.cuts import balanced_cuts
    >>> balanced_cuts([4, 1, 1, 2], [0, 0, 0, 0, 0], 2)
    (1,)
    """
    total = np.concatenate(([0.0], np.cumsum(seconds)))
    layers = len(total) - 1
    moved = np.asarray(moving, np.float64)
    cost = total[None, :] - total[:, None] + moved[:, None] + moved[None, :]
    least = 1 if layers >= ranks else 0
    fits = np.arange(layers + 1)[None, :] - np.arange(layers + 1)[:, None] >= least
    cost = np.where(fits, cost, np.inf)
    best, cut_before = cost[0], []
    for _ in range(1, ranks):
        slowest = np.maximum(best[:, None], cost)
        cut_before.append(np.argmin(slowest, axis=0))
        best = np.min(slowest, axis=0)
    cuts, b = [], layers
    for before in reversed(cut_before):
        b = int(before[b])
        cuts.append(b)
    return tuple(reversed(cuts))


def _sample(X: RowSource) -> Any:
    """Return up to 1,024 features, from ranges spread over all of them."""
    each = _SAMPLE // _RANGES
    if X.nrows > _SAMPLE:
        starts = np.linspace(0, X.nrows - each, _RANGES).astype(int).tolist()
    else:
        starts, each = [0], X.nrows
    parts: list[Any] = [rows_between(X, start, start + each) for start in starts]
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    return as_inputs(SparseRows.joined(parts))
