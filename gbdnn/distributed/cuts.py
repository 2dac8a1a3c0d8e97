"""Which layers a rank of a pipeline holds: the slowest rank decides, so all are to be as fast."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["balanced_cuts"]


def balanced_cuts(seconds: Sequence[float], moving: Sequence[float], ranks: int) -> tuple[int, ...]:
    """Return the cuts by which the slowest rank takes as little time as possible.

    Parameters
    ----------
    seconds : sequence of float, shape (layers,)
        Of each layer.
    moving : sequence of float, shape (layers + 1,)
        To make rows of the activations before layer k, or behind the last one, and to take them:
        both ranks at a cut spend it.
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
    layers = len(seconds)
    total = np.concatenate(([0.0], np.cumsum(seconds)))
    moved = np.array(moving, np.float64)
    moved[[0, -1]] = 0.0  # all splits read the features and write the answer
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
