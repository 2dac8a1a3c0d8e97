"""The figure of the results page: published times and gbdnn's own.

Seconds over neurons, a panel for each depth. A program has the same line and marker in every panel
and its name at the end of its line; the names are moved apart where lines end close together.
Hollow markers are effective rates.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, LogLocator, NullLocator

from gbdnn.challenge.published import PUBLISHED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NEURONS = (1024, 4096, 16384, 65536)
LAYERS = (120, 480, 1920)
RESULTS = Path(__file__).parent / "results.toml"
OURS, THEIRS = "#0b5fa5", "0.45"
BOTTOM, TOP = 6e-3, 5e5
LEFT, RIGHT, NAMES = 640, 95_000, 120_000  # on the axis of neurons
NAME: dict[str, Any] = {"color": "0.2", "size": 8, "va": "center"}


class Look(NamedTuple):
    """How a program is drawn, and called."""

    name: str
    marker: str
    line: str = "-"


class End(NamedTuple):
    """Where a line ends, and the name that belongs there."""

    neurons: int
    seconds: float
    name: str
    color: str


# In PUBLISHED; what is not named here is in the table alone.
SHOWN = {
    "Serial reference": Look("serial reference", "x", ":"),
    "MATLAB": Look("MATLAB", "+", ":"),
    "TensorFlow 1.14, two K20x": Look("TensorFlow, 2 K20x", "v", "-."),
    "cuSPARSE with filter, V100": Look("cuSPARSE, V100", ">", "--"),
    "KK-SpDNN, one node": Look("KK-SpDNN, 32 threads", "s"),
    "LAGraph 3.0.0": Look("LAGraph, 20–40 threads", "^"),
    "DistSparseDNN": Look("DistSparseDNN, 896 cores", "P"),
    "KK-SpDNN, best of 2 to 24 nodes": Look("KK-SpDNN, 20–24 nodes", "D"),
    "BF-2019, run by SNICIT's authors": Look("BF-2019, A6000", "<", "--"),
    "Hidayetoglu 2020, run again on an A100": Look("Hidayetoglu 2020, A100", "d", "--"),
    "XY-2021, run by SNICIT's authors": Look("XY-2021, A6000", "X", "--"),
    "SNICIT": Look("SNICIT, A6000, effective", "h", "--"),
}


def draw() -> Figure:
    """Return the figure."""
    own = tomllib.loads(RESULTS.read_text(encoding="utf-8"))["runs"]
    figure = Figure(figsize=(10.6, 6), layout="constrained")
    panels = figure.subplots(1, len(LAYERS), sharey=True)
    for axes, layers in zip(panels, LAYERS, strict=True):
        _names(axes, _theirs(axes, layers) + _ours(axes, own, layers))
        axes.set(xscale="log", yscale="log", ylim=(BOTTOM, TOP))
        axes.set_title(f"{layers} layers", loc="left", weight="bold")
        axes.set_xlim(LEFT, NAMES * 16)
        axes.xaxis.set_major_locator(FixedLocator(NEURONS))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter("{x:.0f}")
        axes.tick_params(axis="x", labelsize=7)
        axes.yaxis.set_major_locator(LogLocator(numticks=9))
        axes.yaxis.set_major_formatter("{x:,g}")
        axes.yaxis.set_minor_locator(NullLocator())
        axes.spines["bottom"].set_bounds(LEFT, RIGHT)
        axes.grid(visible=False)
        axes.hlines(10.0 ** np.arange(-2, 6), LEFT, RIGHT, color="0.92", linewidth=0.8, zorder=0)
    panels[0].set_ylabel("seconds for 60,000 inputs")
    for axes in panels:
        axes.set_xlabel("neurons per layer", loc="left")
    return figure


def _theirs(axes: Axes, layers: int) -> list[End]:
    """Draw the published lines and return their ends."""
    ends = []
    for system, look in SHOWN.items():
        of = [each for each in PUBLISHED if (each.system, each.layers) == (system, layers)]
        seconds = {each.neurons: each.seconds for each in of}
        fill = "white" if any(each.effective for each in of) else THEIRS
        style = {"color": THEIRS, "markerfacecolor": fill, "linewidth": 1, "markersize": 4}
        ends += _line(axes, seconds, look, zorder=2, **style)
    return ends


def _ours(axes: Axes, runs: list[dict[str, Any]], layers: int) -> list[End]:
    """Draw our own lines and return their ends."""
    strong = {"color": OURS, "linewidth": 2, "markersize": 6, "zorder": 3}
    every, once = Look("gbdnn, 2 cores", "o"), Look("gbdnn, 2 cores, effective", "o", "--")
    return [
        *_line(
            axes, _best(runs, layers, deduplicate=True), once, markerfacecolor="white", **strong
        ),
        *_line(axes, _best(runs, layers, deduplicate=False), every, **strong),
    ]


def _best(runs: list[dict[str, Any]], layers: int, *, deduplicate: bool) -> dict[int, float]:
    """Return our least seconds by neurons."""
    found: dict[int, float] = {}
    for run in runs:
        if (run["layers"], run["deduplicate"], run["inputs"]) == (layers, deduplicate, 60_000):
            neurons = run["neurons"]
            found[neurons] = min(run["seconds"], found.get(neurons, run["seconds"]))
    return dict(sorted(found.items()))


def _line(axes: Axes, seconds: dict[int, float], look: Look, **style: Any) -> list[End]:
    """Draw a program's line and return where it ends, if there is one."""
    if not seconds:
        return []
    axes.plot(list(seconds), list(seconds.values()), look.line, marker=look.marker, **style)
    return [End(*list(seconds.items())[-1], look.name, style["color"])]


def _names(axes: Axes, ends: list[End]) -> None:
    """Write the names right of the lines, as near to their ends as room is left."""
    ends = sorted(ends, key=lambda end: end.seconds)
    heights = _apart([float(np.log10(end.seconds)) for end in ends], 0.29)
    for height, end in zip(heights, ends, strict=True):
        lead = [end.neurons * 1.15, NAMES * 0.95], [end.seconds, 10**height]
        axes.plot(*lead, color="0.82", linewidth=0.6, zorder=1)
        own = {"color": OURS, "weight": "bold"} if end.color == OURS else {}
        axes.text(NAMES, 10**height, end.name, **NAME | own)


def _apart(wanted: list[float], least: float) -> list[float]:
    """Return the increasing positions nearest to the wanted ones that are `least` apart.

    Positions less k * least need only not decrease: the isotonic regression, in which neighbours
    that would overlap are pooled and lie around the mean of what they want.
    """
    pools: list[list[float]] = []
    for k, position in enumerate(wanted):
        pools.append([position - k * least])
        while len(pools) > 1 and np.mean(pools[-2]) > np.mean(pools[-1]):
            pools[-2:] = [pools[-2] + pools[-1]]
    level = [float(np.mean(pool)) for pool in pools for _ in pool]
    return [each + k * least for k, each in enumerate(level)]
