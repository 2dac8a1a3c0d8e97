"""The figure of the README and the landing page: seconds of gbdnn and of other programs.

    python docs/beside_figure.py          # after a change of the numbers in results.toml

The file is in the repository, because code hosts show it. It contains the numbers it was drawn
from, and a test compares them with ``results.toml``.
"""

from __future__ import annotations

import json
import tomllib
from html import unescape
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

HERE = Path(__file__).parent
PICTURE = HERE / "_static" / "beside.svg"
GROUP = "engines"
OURS, THEIRS = "#0b5fa5", "0.62"


def shown() -> list[dict[str, Any]]:
    """Return the programs in the figure: those measured together on two threads."""
    found = tomllib.loads((HERE / "results.toml").read_text(encoding="utf-8"))["beside"]
    return [
        {"program": each["program"].replace("`", ""), "seconds": each["two"]}
        for each in found
        if each["group"] == GROUP and "two" in each
    ]


def drawn_from() -> list[dict[str, Any]]:
    """Return the numbers that the figure in the repository was drawn from."""
    text = PICTURE.read_text(encoding="utf-8")
    inside = text.partition("<dc:description>")[2].partition("</dc:description>")[0]
    return json.loads(unescape(inside))


def draw() -> Figure:
    """Return the figure."""
    programs = shown()
    figure = Figure(figsize=(8.4, 0.42 * len(programs) + 0.8), layout="constrained")
    axes = figure.subplots()
    for at, each in enumerate(programs):
        ours, once = each["program"].startswith("gbdnn"), "deduplication" in each["program"]
        color = OURS if ours else THEIRS
        look = {"facecolor": "white" if once else color, "edgecolor": color}
        axes.barh(at, each["seconds"], height=0.62, hatch="////" if once else None, **look)
        weight = "bold" if ours else "normal"
        axes.annotate(
            f"{each['seconds']:#.3g} s", (each["seconds"], at), (4, 0),
            textcoords="offset points", va="center", weight=weight,
        )  # fmt: skip
    axes.set_yticks(range(len(programs)), [each["program"] for each in programs])
    axes.invert_yaxis()
    axes.set(xlim=(0, 1.1 * max(each["seconds"] for each in programs)))
    title = "Seconds (less is better), 60,000 inputs, 1024 neurons x 120 layers, FP32, 2 threads"
    figure.suptitle(title, x=0.01, ha="left", size=10)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    return figure


if __name__ == "__main__":
    PICTURE.parent.mkdir(exist_ok=True)
    with rc_context({"font.size": 9, "svg.hashsalt": "gbdnn", "hatch.linewidth": 0.6}):
        numbers = json.dumps(shown(), ensure_ascii=False)
        draw().savefig(PICTURE, facecolor="white", metadata={"Date": None, "Description": numbers})
