"""Which layers a rank of a pipeline holds: the slowest rank decides, so all are to be as fast."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["balanced_cuts"]


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
    >>> from gbdnn.distributed.cuts import balanced_cuts
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
