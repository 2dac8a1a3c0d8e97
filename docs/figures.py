"""The figures of "How inference works", from runs made at the build, and of the results.

    python docs/figures.py FOLDER

A generated network of 1024 neurons and 120 layers on scikit-learn's digits. Counts are the same on
every machine but for the order in which threads meet; the one figure of times says on which machine
it was measured. Greys, markers and line styles distinguish the curves, not colours.
"""

from __future__ import annotations

import sys
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

import gbdnn
from gbdnn.challenge.machine import machine
from gbdnn.gallery import digits, features_from_images
from gbdnn.kernels.full import FULL
from gbdnn.kernels.reorder import orders

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NEURONS, LAYERS, INPUTS = 1024, 120, 6000
STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "0.88",
    "lines.linewidth": 1.4,
    "legend.frameon": False,
    "svg.hashsalt": "gbdnn",
}


def make(folder: Path) -> None:
    """Draw every figure that is not there, or is older than this file."""
    drawings = {
        "life.svg": life,
        "compaction.svg": compaction,
        "order.svg": order,
        "kernels.svg": kernels,
    }
    changed = Path(__file__).stat().st_mtime
    with mpl.rc_context(STYLE):
        for name, draw in drawings.items():
            file = folder / name
            if not file.exists() or file.stat().st_mtime < changed:
                _save(draw(), file)


def _save(figure: Figure, file: Path) -> None:
    figure.savefig(file, dpi=200, metadata={"Date": None}, bbox_inches="tight")


def life() -> Figure:
    """Inputs alive and distinct, and the density of the living inputs, after each layer."""
    kept, merged = _totals(deduplicate=False), _totals(deduplicate=True)
    figure = Figure(figsize=(7.2, 2.7), layout="constrained")
    left, right = figure.subplots(1, 2)
    after = np.arange(1, LAYERS + 1)
    left.plot(after, kept["live"], "k-", label="alive")
    left.plot(after, merged["distinct"], "--", color="0.45", label="computed")
    left.set(xscale="log", yscale="log", ylabel="inputs", title=f"of {INPUTS:,} inputs")
    left.legend(loc="lower left")
    share = kept["entries"] / np.maximum(kept["live"] * NEURONS, 1)
    right.plot(after, share, "k-")
    right.set(
        xscale="log",
        ylim=(0, 1.05),
        ylabel="density of activations",
        title="of inputs that are alive",
    )
    _by_layer(left, right)
    return figure


def compaction() -> Figure:
    """Inputs computed beside inputs alive: blocks carry their dead until compaction pays."""
    kept = _totals(deduplicate=False)
    first = 24
    after = np.arange(1, first + 1)
    figure = Figure(figsize=(7.2, 2.7), layout="constrained")
    axes = figure.subplots()
    axes.step(after, kept["inputs"][:first], "k-", where="mid", label="computed")
    before = np.concatenate(([INPUTS], kept["live"][: first - 1]))
    axes.step(after, before, ":", color="0.35", where="mid", label="alive before the layer")
    axes.set(ylabel="inputs", yscale="log")
    axes.yaxis.set_major_formatter("{x:.0f}")
    axes.legend()
    _by_layer(axes)
    return figure


def order() -> Figure:
    """Which neurons the first hundred neurons of a layer read, before and after reordering."""
    net = gbdnn.radixnet(NEURONS, 12)
    before, after = net[3].weights, FULL.prepare(net[3], *orders(net)[3:5]).W
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
    """Time of one layer in either kernel, by how many activations are not 0."""
    layer, inputs = gbdnn.radixnet(NEURONS, 1), 960
    shares = np.geomspace(0.001, 1, 7)
    rng = np.random.default_rng(0)
    seconds: dict[str, list[float]] = {"sparse": [], "full": []}
    for share in shares:
        X = np.where(rng.random((inputs, NEURONS)) < share, rng.random((inputs, NEURONS)), 0)
        X = X.astype(np.float32)
        for kernel, found in seconds.items():
            found.append(min(_seconds(layer, X, kernel) for _ in range(5)))
    figure = Figure(figsize=(4.6, 2.9), layout="constrained")
    axes = figure.subplots()
    for kernel, style, grey in (("sparse", "o-", "0"), ("full", "s--", "0.45")):
        each = 1e6 * np.array(seconds[kernel]) / inputs
        axes.plot(shares, each, style, color=grey, label=f"{kernel} kernel")
    axes.set(xscale="log", yscale="log", xlabel="density of activations")
    axes.set(ylabel="µs per input", title=f"1 thread, {machine()['processor']}")
    axes.title.set_fontsize(7)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.legend()
    return figure


def _seconds(net: gbdnn.Network, X: np.ndarray, kernel: str) -> float:
    """Return the seconds of the layer alone, as its record has them."""
    told: list[gbdnn.inference.LayerStats] = []
    began = perf_counter()
    gbdnn.infer(net, X, engine=kernel, deduplicate=False, nthreads=1, callback=told.append)
    return min(sum(record.seconds for record in told), perf_counter() - began)


_KEPT: dict[bool, dict[str, np.ndarray]] = {}


def _totals(*, deduplicate: bool) -> dict[str, np.ndarray]:
    """Return inputs computed, live, distinct and entries per layer, over all blocks of a run."""
    if deduplicate not in _KEPT:
        told: list[gbdnn.inference.LayerStats] = []
        X = features_from_images(digits(), NEURONS, inputs=INPUTS)
        net = gbdnn.radixnet(NEURONS, LAYERS)
        gbdnn.infer(net, X, engine="full", deduplicate=deduplicate, callback=told.append)
        names = ("inputs", "live", "distinct", "entries")
        sums: dict[str, Any] = {name: np.zeros(LAYERS) for name in names}
        for record in told:
            for name in names:
                sums[name][record.layer] += getattr(record, name)
        _KEPT[deduplicate] = sums
    return _KEPT[deduplicate]


def _by_layer(*several: Axes) -> None:
    for axes in several:
        axes.set_xlabel("layer, from 1")
        axes.xaxis.set_major_formatter("{x:.0f}")


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    make(target)
