"""The inner loop of the fused kernel: a few output neurons for a few cache lines of inputs.

    z[j] = min(max(b[j] + sum over edges e of w[e] Y[rows[e]], low), high)

    s = b[j]                                    in every lane, one lane per input
    for every edge e of neuron j:
        s = w[e] Y[rows[e]] + s                 rounded once
    Z[places[j]] = min(max(s, low), high)

The result of an input depends neither on the width of a tile nor on its position. An edge costs a
load and a multiply-add per register. A multiply-add takes four cycles, and two begin per cycle, so
about eight independent sums hide its latency. A tile computes several neurons for some cache lines
of inputs to have as many. Which rows its neurons read makes three variants:

======  ========================================  ================================================
reads   rows of a tile's neurons                  speed relative to one neuron at a time
======  ========================================  ================================================
`same`  the same: loaded once for all neurons     1.3 in the challenge's networks
`own`   rows of their own, equally many           1.1 to 1.2 for tiles of one or two lines
`all`   every row, which needs no row numbers     1.3 for nearly dense layers
======  ========================================  ================================================

If a layer is computed in panels of rows, tiles of all but the first panel start from stored sums,
and only those of the last one apply the limits: 1.1 to 1.6 for layers of thousands of neurons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from numba import njit

from gbdnn.kernels.compiled.vectors import (
    INLINED,
    between,
    count_nonzero,
    fma,
    inside,
    load,
    note,
    offset,
    row,
    splat,
    store,
    take,
)

if TYPE_CHECKING:
    from gbdnn.kernels.compiled.vectors import Kinds

__all__ = ["Columns", "Strip", "make_tile"]


class Strip(NamedTuple):
    """Some cache lines of inputs at all neurons: pointers to the first input.

    ``live[q]`` counts the nonzero activations of input q, and ``overflow[q]`` becomes nonzero if a
    sum of input q is not finite. `mask` is a block, read only if the layer is masked.
    """

    Y: Any
    Z: Any
    stride: Any  # elements from one neuron to the next
    live: Any
    overflow: Any
    mask: Any


class Columns(NamedTuple):
    """Columns of a layer's weights: pointers, and numbers."""

    rows: Any
    weights: Any
    weight_step: Any  # 1, or 0 if all edges have the weight weights[0]
    bias: Any
    bias_step: Any  # 1, or 0 if all neurons have the bias bias[0]
    places: Any
    low: Any
    high: Any
    begins: Any  # whether sums start at the bias; otherwise at the values in Z
    ends: Any  # whether the limits are applied
    counted: Any  # whether to count nonzero activations
    checked: Any  # whether to look for sums that are not finite
    masked: Any  # whether, instead, sums are kept where the mask lies between the limits


def make_tile(kind: Kinds, lines: int, neurons: int, reads: str):
    """Return ``tile``, which computes some neurons for `lines` cache lines of inputs.

    `reads` is "same", "own" or "all", and fixed when numba compiles.
    """
    width, has_all = lines * kind.lanes, reads == "all"

    @njit(**INLINED)
    def tile(columns, strip, j, first, edges):
        """Compute neurons from j on; their edges, `edges` each, begin at `first`."""
        step, stride = 1 if has_all else columns.weight_step, strip.stride
        w, rows = offset(columns.weights, first * step), offset(columns.rows, first)
        places = take(offset(columns.places, j), neurons, 1)
        z = row(strip.Z, places, stride)
        if columns.begins:
            bias = offset(columns.bias, j * columns.bias_step)
            s = splat(take(bias, neurons, columns.bias_step), width)
        else:
            s = load(z, width)
        for e in range(edges):
            if reads == "own":
                place = row(strip.Y, take(rows, neurons, edges), stride)
            else:
                place = row(strip.Y, rows[0] if reads == "same" else e, stride)
            y = load(place, width)
            s = fma(take(w, neurons, edges * step), y, s)
            w, rows = offset(w, step), offset(rows, 1)
        if not columns.ends:
            store(z, s)
        elif columns.masked:
            y = load(row(strip.mask, places, stride), width)
            store(z, inside(y, columns.low, columns.high, s))
        else:
            new = between(s, columns.low, columns.high)
            store(z, new)
            if columns.counted:
                count_nonzero(strip.live, new)
            if columns.checked:
                note(strip.overflow, s)

    return tile
