"""The figures of "How inference works", from runs of a generated network.

    python docs/figures.py          # draws them into _static; takes about a minute

A network of 1024 neurons and 120 layers on scikit-learn's digits. Counts are the same on every
machine; the figure of times says on which machine it was measured.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from result_figures import STYLE

import gbdnn
from gbdnn.gallery import digits, features_from_images
from gbdnn.kernels.reorder import orders, reordered
from gbdnn.runtime.topology import described

FOLDER = Path(__file__).parent / "_static"
NEURONS, LAYERS, INPUTS = 1024, 120, 6000


def life() -> Figure:
    """Draw inputs alive and computed, and the density of inputs alive, after each layer."""
    kept, merged = _totals(deduplicate=False), _totals(deduplicate=True)
    figure = Figure(figsize=(7.2, 2.7), layout="constrained")
    left, right = figure.subplots(1, 2)
    after = np.arange(1, LAYERS + 1)
    left.plot(after, kept["alive"], "k-", label="alive")
    left.plot(after, merged["distinct"], "--", color="0.45", label="alive and different")
    left.set(yscale="log", title=f"number of {INPUTS:,} inputs")
    left.yaxis.set_major_formatter("{x:,.0f}")
    left.legend(loc="upper right")
    share = kept["entries"] / np.maximum(kept["alive"] * NEURONS, 1)
    right.plot(after, share, "k-")
    right.set(ylim=(0, 1.05), title="density of the inputs alive")
    for axes in (left, right):
        axes.set(xscale="log")
        axes.set_xlabel("number of layers computed")
        axes.xaxis.set_major_formatter("{x:.0f}")
        axes.set_xticks([1, 2, 5, 10, 20, 50, 120], minor=False)
        axes.xaxis.set_minor_formatter(NullFormatter())
    return figure


def compaction() -> Figure:
    """Draw inputs computed and inputs alive: blocks keep dead inputs until compaction pays."""
    kept, first = _totals(deduplicate=False), 24
    layers = np.arange(first)
    figure = Figure(figsize=(7.2, 2.7), layout="constrained")
    axes = figure.subplots()
    axes.step(layers, kept["inputs"][:first], "k-", where="mid", label="computed in the layer")
    before = np.concatenate(([INPUTS], kept["alive"][: first - 1]))
    axes.step(layers, before, ":", color="0.35", where="mid", label="alive before the layer")
    axes.set(ylabel="inputs", yscale="log")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.legend()
    axes.set_xlabel("layer")
    return figure


def order() -> Figure:
    """Draw which neurons the first hundred of a layer read, before and after reordering."""
    net = gbdnn.gallery.radixnet(NEURONS, 12)
    before, (columns, _) = net[3].weights, reordered(net[3], *orders(net)[3:5])
    after = columns.matrix(transposed=True)
    figure = Figure(figsize=(7.2, 2.7), layout="constrained")
    for axes, W, title in zip(
        figure.subplots(1, 2, sharey=True), (before, after), ("as it is", "reordered"), strict=True
    ):
        rows, columns, _ = W.to_coo()
        some = columns < 100
        axes.plot(columns[some], rows[some], "ks", markersize=0.9, rasterized=True)
        axes.set(title=title, xlabel="neuron of layer 3", ylim=(NEURONS, -1))
        axes.grid(visible=False)
    figure.axes[0].set_ylabel("input neuron")
    return figure


def kernels() -> Figure:
    """Draw the time of one layer in each kernel, by how many activations are nonzero."""
    layer, inputs = gbdnn.gallery.radixnet(NEURONS, 1), 960
    shares = np.geomspace(0.001, 1, 7)
    rng = np.random.default_rng(0)
    figure = Figure(figsize=(5.6, 3.2), layout="constrained")
    axes = figure.subplots()
    features = []
    for share in shares:
        X = np.where(rng.random((inputs, NEURONS)) < share, rng.random((inputs, NEURONS)), 0)
        features.append(X.astype(np.float32))
    for kernel, look in (("sparse", "o-"), ("full", "s--"), ("fused", "D-.")):
        seconds = [min(_seconds(layer, X, kernel) for _ in range(15)) for X in features]
        axes.plot(shares, 1e6 * np.array(seconds) / inputs, look, label=kernel)
    axes.set(xscale="log", yscale="log", xlabel="density of activations")
    on = described()
    axes.set_title(f"µs per input, 1 thread, {on['processor']}", loc="left", fontsize=8)
    axes.set_yticks([0.5, 1, 2, 5, 10, 20, 50, 100])
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter("{x:g}")
    axes.legend(title="kernel")
    return figure


def _seconds(net: gbdnn.Network, X: np.ndarray, kernel: str) -> float:
    """Return the seconds of the layer alone, from its records."""
    records: list[gbdnn.LayerStats] = []
    gbdnn.infer(net, X, engine=kernel, deduplicate=False, nthreads=1, callback=records.append)
    return sum(record.seconds for record in records)


def _totals(*, deduplicate: bool) -> dict[str, np.ndarray]:
    """Return inputs computed, alive, distinct and entries per layer, over all blocks."""
    names = ("inputs", "alive", "distinct", "entries")
    sums = {name: np.zeros(LAYERS) for name in names}

    def add(record: gbdnn.LayerStats) -> None:
        for name in names:
            sums[name][record.layer] += getattr(record, name)

    X = features_from_images(digits(), NEURONS, inputs=INPUTS)
    net = gbdnn.gallery.radixnet(NEURONS, LAYERS)
    gbdnn.infer(net, X, engine="full", deduplicate=deduplicate, callback=add)
    return sums


if __name__ == "__main__":
    with mpl.rc_context(STYLE | {"lines.linewidth": 1.4}):
        for draw in (life, compaction, order, kernels):
            file = FOLDER / f"{draw.__name__}.svg"
            draw().savefig(file, dpi=200, metadata={"Date": None}, bbox_inches="tight")
