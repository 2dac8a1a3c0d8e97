"""How fast the product alone is: the full form's kernel, over block sizes and numberings."""

from __future__ import annotations

import threading
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

import graphblas as gb
import numpy as np

from gbdnn.kernels import full
from gbdnn.kernels.blocks import Block, padded
from gbdnn.kernels.reorder import orders

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gbdnn.kernels.full import FullWeights
    from gbdnn.model.network import Network

WIDTHS = (16, 48, 80, 112, 144, 176, 208, 240, 304, 400)

# A block beyond this many bytes is not tried: it is far beyond every cache.
_LARGEST = 24 << 20


def numberings(net: Network) -> dict[str, list[FullWeights]]:
    """Return each layer's weights, with the neurons as given and reordered."""
    order = net.prepared(orders)
    return {
        "reordered": [full.FULL.prepare(W, *order[k : k + 2]) for k, W in enumerate(net)],
        "as given": [full.FULL.prepare(layer, None, None) for layer in net],
    }


def sampled(layers: int, count: int) -> list[int]:
    """Return `count` layers spread evenly over a network, the first and the last among them."""
    return sorted({round(at) for at in np.linspace(0, layers - 1, min(count, layers))})


def rate(
    net: Network, ks: Sequence[int], repeat: int, nthreads: int, numbering: str, width: int
) -> float:
    """Return multiply-adds per second for one numbering and width, all threads together."""
    weights = numberings(net)[numbering]
    chosen = [(weights[k], *net[k].shape) for k in ks]
    seconds = _side_by_side(chosen, width, net[0].dtype, repeat, nthreads)
    work = float(width * sum(each.W.nvals for each, *_ in chosen))
    return sum(work / one.sum() for one in seconds)


def sweep(
    net: Network, ks: Sequence[int], repeat: int, nthreads: int, widths: Sequence[int] = WIDTHS
) -> list[dict[str, Any]]:
    """Return multiply-adds per second for each numbering and width, all threads together.

    Each of `nthreads` threads has its own blocks and takes the layers `ks` in turn, `repeat` times,
    GraphBLAS on one thread in each. A layer's time is its median, its rate the sum over threads;
    ``rate`` is that of all layers together, ``rates`` are the layers' own.
    """
    rows = []
    neurons = max(max(layer.shape) for layer in net)
    for name, weights in numberings(net).items():
        for width in dict.fromkeys(map(padded, widths)):
            if width > 16 and width * neurons * net[0].dtype.itemsize > _LARGEST:
                continue
            chosen = [(weights[k], *net[k].shape) for k in ks]
            seconds = _side_by_side(chosen, width, net[0].dtype, repeat, nthreads)
            work = np.array([width * each.W.nvals for each, *_ in chosen], float)
            rows.append(
                {
                    "numbering": name,
                    "width": width,
                    "rate": float(sum(work.sum() / one.sum() for one in seconds)),
                    "rates": sum(work / one for one in seconds).tolist(),
                }
            )
    return rows


def _side_by_side(
    chosen: list[tuple[FullWeights, int, int]],
    width: int,
    dtype: np.dtype,
    repeat: int,
    nthreads: int,
) -> list[np.ndarray]:
    """Return for each thread the median seconds of each product, all threads at work."""
    start = threading.Barrier(nthreads)
    seconds: list[np.ndarray] = []

    def work() -> None:
        blocks = {
            (neurons, role): Block(neurons, width, dtype)
            for _, *shape in chosen
            for role, neurons in enumerate(shape)
        }
        for block in blocks.values():
            block.array.fill(1)
        taken = np.empty((repeat, len(chosen)))
        with gb.ss.Context(engage=False, nthreads=1):
            _round(chosen, blocks)
            start.wait()
            for each in taken:
                each[:] = _round(chosen, blocks)
        seconds.append(np.array([median(column) for column in taken.T]))

    threads = [threading.Thread(target=work) for _ in range(nthreads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(seconds) < nthreads:
        raise SystemExit("a thread failed")
    return seconds


def _round(
    chosen: list[tuple[FullWeights, int, int]], blocks: dict[tuple[int, int], Block]
) -> list[float]:
    """Return the seconds of each product."""
    taken = []
    for weights, nrows, ncols in chosen:
        Y, Z = blocks[nrows, 0], blocks[ncols, 1]
        began = perf_counter()
        full.multiply(Y, Z, weights.W)
        taken.append(perf_counter() - began)
        Z.array.fill(1)  # out of the timed part: sums that grow for ever would overflow
    return taken
