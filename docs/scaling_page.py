"""Tables and figure of the page on threads, from the JSON of the scripts that measure them.

    python docs/scaling_page.py threads.json threads.svg    # the page's figure, of another machine

``benchmarks/papers/threads.py`` writes ``scaling/threads*.json``, and
``benchmarks/scale/wait_policy.py`` writes ``scaling/wait-policy.json``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator
from tables import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

SOURCE = Path(__file__).parent / "scaling"
STYLES = [("o", "-"), ("s", "--"), ("D", "-."), ("^", ":")]  # markers and lines tell curves apart
POLICIES = ("unset", "active", "passive")


def files() -> list[Path]:
    """Return the reports of ``threads.py``."""
    return sorted(SOURCE.glob("threads*.json"))


def read(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Return reports."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def wait_policy() -> dict[str, Any]:
    """Return the report of ``wait_policy.py``."""
    return read([SOURCE / "wait-policy.json"])[0]


def machine(report: dict[str, Any]) -> str:
    """Return the machine, its load average before the first run, and the date."""
    on = report["machine"]
    return (
        f"{on['processor']}, {on['cores']} cores, load average {report['load']}, {report['date']}"
    )


def programs(reports: Sequence[dict[str, Any]]) -> str:
    """Return the table of LAGraph's loop and the kernels."""
    head = ["network", "inputs", "program", "threads", "seconds", "speed-up (lowest, highest)"]
    head += ["edges/s", "machine"]
    lines = []
    for report in reports:
        for network in report["networks"]:
            for at, row in enumerate(network["rows"]):
                lines.append(
                    [
                        "" if at else _name(network),
                        "" if at else f"{network['inputs']:,}",
                        row["program"],
                        str(row["threads"]),
                        f"{row['seconds_median']:.2f}",
                        _speed_up(row),
                        f"{row['edges_per_second']:.3g}".replace("e+0", "e").replace("e+", "e"),
                        "" if at else machine(report),
                    ]
                )
    return table(head, lines, right=(1, 3, 4, 5, 6))


def operations(reports: Sequence[dict[str, Any]]) -> str:
    """Return the table of the sparse kernel's operations."""
    head = ["network", "operation", "threads", "seconds", "share of the time"]
    head += ["speed-up (lowest, highest)", "machine"]
    lines = []
    for report in reports:
        for network in report["networks"]:
            rows = network["operations"]
            for at, row in enumerate(rows):
                all_of_them = sum(
                    each["seconds_median"] for each in rows if each["threads"] == row["threads"]
                )
                lines.append(
                    [
                        "" if at else _name(network),
                        row["operation"],
                        str(row["threads"]),
                        _seconds(row["seconds_median"]),
                        f"{row['seconds_median'] / all_of_them:.0%}",
                        _speed_up(row),
                        "" if at else machine(report),
                    ]
                )
    return table(head, lines, right=(2, 3, 4, 5))


def policies(report: dict[str, Any]) -> str:
    """Return the table of the wait policies: seconds by program, machine and policy."""
    head = ["program", "next to", *POLICIES, "passive / unset"]
    lines = []
    for condition, beside in (("quiet", "nothing"), ("busy", "a busy process")):
        rows = {
            (row["program"], row["policy"]): row
            for row in report["rows"]
            if row["condition"] == condition
        }
        for program in dict.fromkeys(name for name, _ in rows):
            cells = [_seconds(rows[program, policy]["seconds_median"]) for policy in POLICIES]
            ratio = f"{rows[program, 'passive']['to_unset']:.2f}"
            lines.append([program, beside, *cells, ratio])
    return table(head, lines, right=(2, 3, 4, 5))


def draw(reports: Sequence[dict[str, Any]]) -> Figure:
    """Return the figure: a row per network; speed-ups of programs, and of operations."""
    shown = [(report, network) for report in reports for network in report["networks"]]
    figure = Figure(figsize=(8, 3.2 * len(shown)), layout="constrained")
    axes = figure.subplots(len(shown), 2, squeeze=False)
    for (left, right), (report, network) in zip(axes, shown, strict=True):
        _curves(left, network["rows"], "program")
        _curves(right, network["operations"], "operation")
        processor = report["machine"]["processor"]
        left.set_title(f"{_name(network)}, {network['inputs']:,} inputs, {processor}", fontsize=9)
        right.set_title("operations of the sparse kernel", fontsize=9)
    return figure


def _curves(ax: Axes, rows: Sequence[dict[str, Any]], key: str) -> None:
    threads = sorted({row["threads"] for row in rows})
    few = threads[0]
    ax.plot(threads, [n / few for n in threads], color="0.6", linewidth=0.8, label="ideal")
    for name, (marker, line) in zip(dict.fromkeys(row[key] for row in rows), STYLES, strict=False):
        mine = [row for row in rows if row[key] == name]
        middle = [row["speed_up"] for row in mine]
        below = [row["speed_up"] - row["speed_up_min"] for row in mine]
        above = [row["speed_up_max"] - row["speed_up"] for row in mine]
        at = [row["threads"] for row in mine]
        ax.errorbar(
            at, middle, [below, above], marker=marker, linestyle=line, capsize=3, label=name
        )
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    ax.xaxis.set_major_locator(FixedLocator([float(n) for n in threads]))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter("{x:g}")
    ax.set_xlabel("threads")
    ax.set_ylabel(f"speed-up over {few} thread{'s' if few > 1 else ''}")
    ax.legend(fontsize=8)


def _name(network: dict[str, Any]) -> str:
    return f"{network['neurons']} x {network['layers']}"


def _seconds(seconds: float) -> str:
    return f"{seconds:#.3g}".rstrip(".")


def _speed_up(row: dict[str, Any]) -> str:
    """Return the median speed-up, and the lowest and highest on more than the first threads."""
    spread = f" ({row['speed_up_min']:.2f}, {row['speed_up_max']:.2f})"
    return f"{row['speed_up']:.2f}" + (spread if row["speed_up"] != 1 else "")


if __name__ == "__main__":
    *found, picture = map(Path, sys.argv[1:])
    draw(read(found)).savefig(picture)
