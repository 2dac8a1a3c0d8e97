"""The figure of "when to use gbdnn": speed relative to the best other program, by density.

A point is a random network of ``real-networks.toml``; the lines go through the geometric means of
each density.
"""

from __future__ import annotations

from statistics import geometric_mean

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator
from quantities import HERE, random_networks, times

RESULTS = HERE / "real-networks.toml"
LOOKS = {1: ("o", ":", "0.55"), 32: ("s", "-.", "0.4"), 1000: ("^", "--", "#4a90d0"),
         10_000: ("D", "-", "#0b5fa5")}  # fmt: skip
DENSITIES, RATIOS = (1, 2, 5, 10, 20, 30, 60), (0.5, 1, 2, 4, 8)


def draw() -> Figure:
    """Return the figure."""
    figure = Figure(figsize=(8.4, 3.6), layout="constrained")
    cells = random_networks()
    for axes, threads in zip(figure.subplots(1, 2, sharey=True), (1, 2), strict=True):
        for inputs, (marker, line, color) in LOOKS.items():
            ratios: dict[int, list[float]] = {}
            for cell in cells:
                if (cell["threads"], cell["inputs"]) == (threads, inputs):
                    ratios.setdefault(round(100 * cell["density"]), []).append(times(cell))
            mean = {density: geometric_mean(of) for density, of in sorted(ratios.items())}
            name = f"{inputs:,} input{'s' if inputs > 1 else ''}"
            style = {"color": color, "markersize": 4}
            axes.plot(list(mean), list(mean.values()), line, label=name, marker=marker, **style)
            for density, of in ratios.items():
                axes.plot([density] * len(of), of, marker, alpha=0.45, linewidth=0, **style)
        axes.axhline(1, color="0.2", linewidth=1)
        axes.axhspan(0.45, 1, color="0.95", zorder=0)
        axes.set(xscale="log", yscale="log", ylim=(0.45, 10), xlim=(0.85, 75))
        axes.set_title(f"{threads} thread{'s' if threads > 1 else ''}", loc="left", weight="bold")
        axes.set_xlabel("density (% of weights that are nonzero)")
        for axis, places in ((axes.xaxis, DENSITIES), (axes.yaxis, RATIOS)):
            axis.set_major_locator(FixedLocator(places))
            axis.set_minor_locator(NullLocator())
            axis.set_major_formatter("{x:g}")
        axes.text(0.9, 0.47, "another program is faster", size=8, color="0.35")
    figure.axes[0].set_ylabel(
        "speed relative to the best of\nPyTorch, ONNX Runtime, OpenVINO, DeepSparse"
    )
    figure.axes[0].legend(fontsize=8, loc="upper right")
    return figure
