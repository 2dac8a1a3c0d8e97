"""Table and picture of the page on threads, from files of ``benchmarks/scale/thread_scaling.py``.

The serial share is that of Amdahl's law, fitted to the measured speed-ups. Nothing is drawn beyond
what was measured.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter
from tables import table

if TYPE_CHECKING:
    from collections.abc import Sequence

SOURCE = Path(__file__).parent / "scaling"
MARKERS = "osD^vP*X"


def read(folder: Path) -> list[dict[str, Any]]:
    """Return the reports of a folder, in the order of their names."""
    return [json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))]


def serial_share(summary: Sequence[dict[str, Any]], field: str = "speed_up") -> float:
    """Return the share s that fits ``speed-up = 1 / (s + (1 - s) / n)`` best, in least squares.

    Each number of threads n > 1 gives an equation that is linear in s.
    """
    few = summary[0]["nthreads"]
    above = below = 0.0
    for row in summary[1:]:
        n = row["nthreads"] / few
        x, y = 1 - 1 / n, 1 / row[field] - 1 / n
        above, below = above + x * y, below + x * x
    return min(1.0, max(0.0, above / below)) if below else 0.0


def rows(reports: Sequence[dict[str, Any]]) -> str:
    """Return the table: measured seconds and speed-ups, and the fitted share."""
    head = ["problem", "form", "inputs", "threads", "seconds (from, to)", "speed-up (from, to)"]
    head += ["serial share", "machine"]
    lines = []
    for each in reports:
        share = serial_share(each["summary"])
        for at, row in enumerate(each["summary"]):
            seconds = (row[f"seconds_{name}"] for name in ("median", "min", "max"))
            ratios = (row[f"speed_up{name}"] for name in ("", "_min", "_max"))
            lines.append(
                [
                    "" if at else _problem(each),
                    "" if at else _form(each),
                    f"{row['inputs']:,}",
                    str(row["nthreads"]),
                    "{:.2f} ({:.2f}, {:.2f})".format(*seconds),
                    "{:.2f} ({:.2f}, {:.2f})".format(*ratios),
                    "" if at else f"{share:.0%}",
                    ""
                    if at
                    else f"{each['machine']['processor']}, {each['machine']['cores']} cores",
                ]
            )
    return table(head, lines, right=(2, 3, 4, 5, 6))


def draw(reports: Sequence[dict[str, Any]]) -> Figure:
    """Return the picture: speed-ups over threads, with their spread."""
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    ax = figure.add_subplot()
    most = max(row["nthreads"] for each in reports for row in each["summary"])
    threads = [2**k for k in range(most.bit_length() + 1) if 2**k < 2 * most]
    ax.plot(threads, threads, color="0.6", linestyle=(0, (1, 1.5)), label="ideal")
    for each, marker in zip(reports, MARKERS, strict=False):
        summary = each["summary"]
        shown = [row["nthreads"] / summary[0]["nthreads"] for row in summary]
        middle = [row["speed_up"] for row in summary]
        below = [row["speed_up"] - row["speed_up_min"] for row in summary]
        above = [row["speed_up_max"] - row["speed_up"] for row in summary]
        name = f"{_problem(each)}, {_form(each)}"
        ax.errorbar(shown, middle, [below, above], marker=marker, capsize=3, label=name)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(FixedLocator([float(n) for n in threads]))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(ScalarFormatter())
    ax.set_xlabel("threads (number)")
    ax.set_ylabel("speed-up over one thread (ratio)")
    ax.legend(fontsize=8, loc="upper left")
    return figure


def _problem(report: dict[str, Any]) -> str:
    return f"{report['problem']['neurons']} x {report['problem']['layers']}"


def _form(report: dict[str, Any]) -> str:
    words = [report["engine"]]
    words += [] if report["deduplicate"] else ["every input"]
    return ", ".join([*words, *(["weak"] if report["weak"] else [])])
