"""Figures of results in ``_static``, which code hosts show, too.

    python docs/result_figures.py          # after a change of the files of results

Each file says from which numbers it was drawn, and a test compares them.
"""

from __future__ import annotations

import tomllib
from hashlib import sha256
from pathlib import Path
from statistics import geometric_mean
from typing import TYPE_CHECKING, Any

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator
from published import PUBLISHED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HERE = Path(__file__).parent
FOLDER = HERE / "_static"
SOURCES = {
    "beside.svg": ["side-by-side.toml"],
    "density.svg": ["real-networks.toml"],
    "published.svg": ["challenge.toml", "../benchmarks/published.toml"],
}
STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "0.9",
    "legend.frameon": False,
    "svg.hashsalt": "gbdnn",
    "hatch.linewidth": 0.6,
}
OURS, THEIRS = "#0b5fa5", "0.62"
# Published systems in the figure, with their labels: on CPUs, and on GPUs.
CPUS = {
    "Serial reference": "serial reference",
    "MATLAB": "MATLAB",
    "LAGraph 3.0.0": "LAGraph, 20 to 40 threads",
    "KK-SpDNN, one node": "KK-SpDNN, 32 threads",
    "KK-SpDNN, best of 2 to 24 nodes": "KK-SpDNN, 20 or 24 nodes",
    "DistSparseDNN": "DistSparseDNN, 896 cores",
}
GPUS = {
    "TensorFlow 1.14, two K20x": "TensorFlow, two K20x",
    "cuSPARSE with filter, V100": "cuSPARSE, V100",
    "BF-2019, run by SNICIT's authors": "BF-2019, A6000",
    "Hidayetoglu 2020, run again on an A100": "Hidayetoglu 2020, A100",
    "XY-2021, run by SNICIT's authors": "XY-2021, A6000",
    "SNICIT": "SNICIT, A6000, effective",
}
SHOWN = CPUS | GPUS
COLORS = ("#7f7f7f", "#b8860b", "#c0392b", "#2e8b57", "#8e44ad", "#e67e22")
MARKERS = "xsD^vP"


def drawn_from(name: str) -> str:
    """Return a digest of the files that a figure is drawn from."""
    files = [(HERE / file).resolve().read_bytes() for file in SOURCES[name]]
    return sha256(b"".join(files)).hexdigest()


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((HERE / name).read_text(encoding="utf-8"))


def beside() -> Figure:
    """Return the bars of the README: seconds of gbdnn and of other programs on two threads."""
    found = sorted(_read("side-by-side.toml")["cells"], key=lambda each: each["two"])
    figure = Figure(figsize=(5.2, 0.5 * len(found) + 0.6), layout="constrained")
    axes = figure.subplots()
    for at, each in enumerate(found):
        ours, once = each["program"].startswith("`gbdnn"), "equal inputs once" in each["program"]
        color = OURS if ours else THEIRS
        look = {"facecolor": "white" if once else color, "edgecolor": color}
        axes.barh(at, each["two"], height=0.36, hatch="////" if once else None, **look)
        low, high = each["two_range"]
        axes.errorbar(
            each["two"], at, xerr=[[each["two"] - low], [high - each["two"]]], color="k", capsize=2,
            linewidth=0.8,
        )  # fmt: skip
        weight = "bold" if ours else "normal"
        name = each["program"].replace("`", "")
        axes.text(0, at - 0.24, name, weight=weight, va="bottom", size=9)
        axes.text(high, at, f" {each['two']:#.3g} s", va="center", weight=weight, size=9)
    axes.set(xlim=(0, 1.15 * max(each["two"] for each in found)), ylim=(len(found) - 0.6, -0.75))
    axes.set_xlabel("seconds on two threads (less is better)", loc="left")
    axes.set_yticks([])
    axes.grid(visible=False)
    axes.spines["left"].set_visible(False)
    return figure


def density() -> Figure:
    """Return speed relative to the best other program, by density; a point is a network."""
    from tables import ours_and_best

    looks = {1: ("o", ":", "0.5"), 32: ("s", "-.", "#c0392b"), 1000: ("^", "--", OURS)}
    figure = Figure(figsize=(8.4, 3.6), layout="constrained")
    cells = [
        cell
        for cell in _read("real-networks.toml")["cells"]
        if not cell["right"] and not cell["cold"]
        if not cell["network"].startswith("features alone")
    ]
    for axes, threads in zip(figure.subplots(1, 2, sharey=True), (1, 2), strict=True):
        for inputs, (marker, line, color) in looks.items():
            ratios: dict[int, list[float]] = {}
            for cell in cells:
                if (cell["threads"], cell["inputs"]) == (threads, inputs):
                    own, best, _ = ours_and_best(cell)
                    ratios.setdefault(round(100 * cell["density"]), []).append(best / own)
            mean = {density: geometric_mean(of) for density, of in sorted(ratios.items())}
            name = f"{inputs:,} input{'s' if inputs > 1 else ''}"
            style = {"color": color, "markersize": 4}
            axes.plot(list(mean), list(mean.values()), line, label=name, marker=marker, **style)
            for at, of in ratios.items():
                axes.plot([at] * len(of), of, marker, alpha=0.45, linewidth=0, **style)
        axes.axhline(1, color="0.2", linewidth=1)
        axes.axhspan(0.3, 1, color="0.95", zorder=0)
        axes.set(xscale="log", yscale="log", ylim=(0.3, 10), xlim=(0.85, 75))
        axes.set_title(f"{threads} thread{'s' if threads > 1 else ''}", loc="left", weight="bold")
        axes.set_xlabel("density (% of weights that are nonzero)")
        _ticks(axes, (1, 2, 5, 10, 20, 30, 60), (0.5, 1, 2, 4, 8))
        axes.text(0.9, 0.32, "another program is faster", size=8, color="0.35")
    figure.axes[0].set_ylabel("speed relative to the best other program")
    handles, _ = figure.axes[0].get_legend_handles_labels()
    faint = {"color": "0.5", "marker": "o", "markersize": 4, "alpha": 0.45, "linewidth": 0}
    handles += [Line2D([], [], label="a network; lines: geometric means", **faint)]
    figure.axes[0].legend(handles=handles, fontsize=8, loc="upper right")
    return figure


def times() -> Figure:
    """Return published times and gbdnn's: a row for CPUs and one for GPUs, a panel per depth."""
    runs = _read("challenge.toml")["cells"]
    figure = Figure(figsize=(9.6, 7), layout="constrained")
    rows = figure.subplots(2, 3, sharex=True, sharey="row")
    for panels, systems, kind in zip(rows, (CPUS, GPUS), ("CPUs", "GPUs"), strict=True):
        for axes, layers in zip(panels, (120, 480, 1920), strict=True):
            for system, color, marker in zip(systems, COLORS, MARKERS, strict=True):
                of = [each for each in PUBLISHED if each.system == system]
                seconds = {e.neurons: e.seconds for e in of if e.layers == layers}
                fill = "white" if of[0].effective else color
                look = {"color": color, "marker": marker, "markerfacecolor": fill}
                axes.plot(list(seconds), list(seconds.values()), linewidth=1, markersize=5, **look)
            for once, line, fill in ((False, "-", OURS), (True, "--", "white")):
                own = {
                    run["neurons"]: run["seconds"]
                    for run in runs
                    if (run["layers"], run["deduplicate"]) == (layers, once)
                }
                look = {"linewidth": 2.4, "marker": "o", "markerfacecolor": fill, "color": OURS}
                axes.plot(list(own), list(own.values()), line, zorder=3, **look)
            axes.set(xscale="log", yscale="log")
            axes.set_title(f"{kind}, {layers} layers", loc="left", weight="bold")
            axes.xaxis.set_major_locator(FixedLocator([1024, 4096, 16384, 65536]))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter("{x:.0f}")
            axes.yaxis.set_major_formatter("{x:,g}")
            axes.yaxis.set_minor_formatter(NullFormatter())
        panels[0].set_ylabel("seconds for 60,000 inputs")
        lines = [
            Line2D([], [], color=OURS, marker="o", linewidth=2.4, label="gbdnn, 2 cores"),
            Line2D([], [], color=OURS, marker="o", linewidth=2.4, linestyle="--",
                   markerfacecolor="white", label="gbdnn, 2 cores, effective"),
            *(
                Line2D([], [], color=c, marker=m, linewidth=1, label=name,
                       markerfacecolor="white" if "effective" in name else c)
                for c, m, name in zip(COLORS, MARKERS, systems.values(), strict=True)
            ),
        ]  # fmt: skip
        panels[2].legend(handles=lines, loc="center left", bbox_to_anchor=(1.02, 0.5), fontsize=8)
    for axes in rows[1]:
        axes.set_xlabel("neurons per layer")
    return figure


def _ticks(axes: Axes, *places: tuple[float, ...]) -> None:
    for axis, at in zip((axes.xaxis, axes.yaxis), places, strict=True):
        axis.set_major_locator(FixedLocator(at))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter("{x:g}")


if __name__ == "__main__":
    drawings = {"beside.svg": beside, "density.svg": density, "published.svg": times}
    with rc_context(STYLE):
        for name, draw in drawings.items():
            facts = {"Date": None, "Description": drawn_from(name)}
            where = FOLDER / name
            draw().savefig(where, facecolor="white", metadata=facts, bbox_inches="tight")
