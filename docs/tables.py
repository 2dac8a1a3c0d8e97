"""Tables of ``results.toml``, and lines for that file from a benchmark's JSON.

    python docs/tables.py larger-4096.json          # prints the line to add to `runs`
    python docs/tables.py side-by-side.json         # prints the lines to add to `beside`

Runs that compute every input and runs that compute equal inputs once never share a column: the
rates of the latter are effective rates.
"""

from __future__ import annotations

import json
import sys
import tomllib
from datetime import date
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from published_figure import SHOWN

from gbdnn.challenge.published import PUBLISHED, Rate

NEURONS = (1024, 4096, 16384, 65536)
LAYERS = (120, 480, 1920)
THREADS, INPUTS = 2, 60_000  # of all runs that are shown
DEGREE = 32  # edges into every neuron
SETUP = "zen4"  # the machine of the results page


def make(source: Path, folder: Path) -> None:
    """Write every table into a folder, as Markdown to include."""
    found = tomllib.loads(source.read_text(encoding="utf-8"))
    require_sound(found)
    pages = {
        "runs.md": runs(found),
        "setups.md": setups(found),
        "commands.md": commands(found),
        "beside-engines.md": beside(found, "engines"),
        "beside-larger.md": larger(found),
        "published.md": published(),
        "published-sources.md": sources(),
    }
    for name, text in pages.items():
        file = folder / name
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")


def require_sound(found: dict[str, Any]) -> None:
    """Raise ValueError unless every run has all fields and known references."""
    for run in found["runs"]:
        where = f"{run.get('neurons')} x {run.get('layers')}"
        keys = {"neurons", "layers", "inputs", "weights", "threads", "seconds", "of", "deduplicate"}
        if missing := (keys | {"setup", "date", "command"}) - run.keys():
            raise ValueError(f"results.toml, run {where}: {', '.join(sorted(missing))} missing")
        if run["neurons"] not in NEURONS or run["layers"] not in LAYERS:
            raise ValueError(f"results.toml, run {where}: not a network of the challenge")
        if run["setup"] not in found["setups"] or run["command"] not in found["commands"]:
            raise ValueError(f"results.toml, run {where}: unknown setup or command")
        if (run["threads"], run["inputs"]) != (THREADS, INPUTS):
            raise ValueError(f"results.toml, run {where}: not {THREADS} threads, {INPUTS} inputs")
        if not isinstance(run["deduplicate"], bool) or not run["seconds"] > 0:
            raise ValueError(f"results.toml, run {where}: invalid deduplicate or seconds")


def edge_rate(run: dict[str, Any]) -> float:
    """Return the challenge's edges per second: inputs x edges / seconds."""
    return run["inputs"] * DEGREE * run["neurons"] * run["layers"] / run["seconds"]


def runs(found: dict[str, Any]) -> str:
    """Return the runs by network: every input computed, and equal inputs once."""
    head = ["neurons", "layers", "every input, s", "edges/s", "GiB"]
    head += ["equal inputs once, s", "**effective** edges/s", "GiB", "which run"]
    here = _of_page(found)
    rows = []
    for neurons, layers in product(NEURONS, LAYERS):
        of = [run for run in here if (run["neurons"], run["layers"]) == (neurons, layers)]
        rows += [
            [
                str(neurons),
                str(layers),
                *(
                    cell
                    for deduplicate in (False, True)
                    for cell in _measured(of, which, deduplicate)
                ),
                which,
            ]
            for which in dict.fromkeys(run["of"] for run in of)
        ] or [[str(neurons), str(layers), "not measured", *[""] * 6]]
    return table(head, rows, right=tuple(range(8)))


def _of_page(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [run for run in found["runs"] if run["setup"] == SETUP]


def _measured(runs: list[dict[str, Any]], which: str, deduplicate: bool) -> list[str]:
    """Return seconds, edge rate and memory of a run, or three empty cells."""
    for run in runs:
        if (run["of"], run["deduplicate"]) == (which, deduplicate):
            memory = f"{run['gib']:.1f}" if "gib" in run else ""
            rate = f"{edge_rate(run):.3g}".replace("e+", "e")
            return [f"{run['seconds']:.3f}", rate, memory]
    return [""] * 3


def beside(found: dict[str, Any], group: str) -> str:
    """Return the programs that were measured together on one problem, in seconds."""
    programs = _together(found, group)
    rows = [
        [each["program"], *(_with_range(each, key, programs) for key in ("two", "one"))]
        for each in programs
    ]
    return table(["program (FP32)", "2 threads, s", "1 thread, s"], rows, right=(1, 2))


def larger(found: dict[str, Any]) -> str:
    """Return the programs that were measured together on other networks, on two threads."""
    head = ["network", "inputs", "program (FP32)", "2 threads, s", "times gbdnn's"]
    rows = []
    for group, problem in found["larger"].items():
        every, *_ = programs = _together(found, group)
        rows += [
            [
                f"{problem['neurons']} x {problem['layers']}",
                f"{problem['inputs']:,}",
                each["program"],
                _with_range(each, "two", programs),
                f"{each['two'] / every['two']:.1f}",
            ]
            for each in programs
        ]
    return table(head, rows, right=(1, 3, 4))


def _together(found: dict[str, Any], group: str) -> list[dict[str, Any]]:
    return [each for each in found["beside"] if each["group"] == group]


def _with_range(each: dict[str, Any], key: str, programs: list[dict[str, Any]]) -> str:
    """Return a time and its range if known; bold where gbdnn is faster than all others."""
    if key not in each:
        return ""
    least_and_most = each.get(f"{key}_range")
    spread = f" ({' to '.join(map(_shown, least_and_most))})" if least_and_most else ""
    ours = [other for other in programs if other["program"].startswith("gbdnn")]
    others = [other[key] for other in programs if other not in ours and key in other]
    text = _shown(each[key])
    return (f"**{text}**" if each in ours and each[key] < min(others) else text) + spread


def setups(found: dict[str, Any]) -> str:
    """Return the machine of the results page, its versions and its inputs."""
    return "".join(
        f"{setup['short']}\n: {setup['machine']}. {setup['versions']}."
        f" Inputs: {setup['images']}.\n\n"
        for name, setup in found["setups"].items()
        if name == SETUP
    )


def commands(found: dict[str, Any]) -> str:
    """Return the command of every measured run."""
    lines: dict[str, None] = {}
    for run in _of_page(found):
        lines[found["commands"][run["command"]].format(**run)] = None
    return "```sh\n" + "\n".join(lines) + "\n```\n"


def _by_system() -> dict[str, list[Rate]]:
    """Return others' times, each program's together."""
    systems: dict[str, list[Rate]] = {}
    for rate in PUBLISHED:
        systems.setdefault(rate.system, []).append(rate)
    return systems


def _numbered() -> dict[str, int]:
    """Return a number for each source, in the order in which they are used."""
    used = dict.fromkeys(each.source for each in PUBLISHED if each.system in SHOWN)
    return {source: number for number, source in enumerate(used, 1)}


def _shown(seconds: float) -> str:
    return f"{seconds:,.0f}" if seconds >= 1000 else f"{seconds:#.3g}".rstrip(".")


def _marked(rate: Rate) -> str:
    return f"{rate.system}, **effective**" if rate.effective else rate.system


def _machine(rate: Rate) -> str:
    return rate.machine if rate.precision == "not stated" else f"{rate.machine}, {rate.precision}"


def published() -> str:
    """Return the times in the figure with their machines; a cell has 120, 480 and 1920 layers."""
    depths = " / ".join(map(str, LAYERS))
    head = ["program", "machine", *(f"{n} neurons x {depths}, s" for n in NEURONS)]
    number, rows = _numbered(), []
    for system, rates in _by_system().items():
        if system not in SHOWN:
            continue
        seconds = {(rate.neurons, rate.layers): _shown(rate.seconds) for rate in rates}
        cells = []
        for n in NEURONS:
            cell = [seconds.get((n, layers), "-") for layers in LAYERS]
            cells.append(" / ".join(cell) if set(cell) != {"-"} else "")
        name = f"{_marked(rates[0])} [{number[rates[0].source]}]"
        rows.append([name, _machine(rates[0]), *cells])
    return table(head, rows, right=())


def sources() -> str:
    """Return the sources of others' times, with table numbers."""
    lines = []
    for source, number in _numbered().items():
        here = [each for each in PUBLISHED if each.source == source and each.system in SHOWN]
        where = "; ".join(dict.fromkeys(each.where for each in here))
        lines.append(f"{number}. {source}. {where[0].upper()}{where[1:]}.\n")
    return "".join(lines)


def line_of(found: dict[str, Any], command: str | None = None) -> str:
    """Return the line of ``results.toml`` for the JSON of `larger.py` or ``gbdnn challenge``.

    The command is the one of `commands` that made it, if it was not one of these.
    """
    problem, seconds = found["problem"], seconds_of(found)
    larger = "memory_peak" in found
    first = not found["rounds"] if larger else len(seconds) == 1
    streamed = ", streamed" if found.get("streamed") else ""
    beside = {"gib": round(found["memory_peak"] / 2**30, 2)} if larger else {}
    run = {
        "neurons": problem["neurons"],
        "layers": problem["layers"],
        "inputs": problem["inputs"],
        "weights": "official" if problem["seed"] is None else "generated",
        "threads": found["nthreads"],
        "seconds": round(median(seconds), 3),
        "of": ("first run" if first else _of(len(seconds))) + streamed,
        **beside,
        "deduplicate": found["deduplicate"],
        "setup": "NAME",
        "date": date.today().isoformat(),
        "command": command
        or ("challenge" if not larger else "stream" if found["streamed"] else "larger"),
    }
    return "  { " + ", ".join(f"{key} = {json.dumps(value)}" for key, value in run.items()) + " },"


_TITLES = {
    "gbdnn-distinct": "gbdnn, every input computed",
    "gbdnn": "gbdnn, default: with deduplication",
    "gbdnn-fused": 'gbdnn, `engine="fused"`: every input computed',
    "gbdnn-graphblas": 'gbdnn, `engine="graphblas"`: sparse or full kernel',
    "gbdnn-full": 'gbdnn, `engine="full"`: full matrices in GraphBLAS',
    "gbdnn-sparse": 'gbdnn, `engine="sparse"`: sparse matrices in GraphBLAS',
    "torch+drop": "PyTorch {torch}, CSR x dense, dead inputs dropped",
    "mkl-dense+drop": "MKL (sparse_dot_mkl), CSR x dense, dead inputs dropped",
    "scipy-dense+drop": "SciPy, CSR x dense, dead inputs dropped",
    "lagraph": "LAGraph's loop (ours) on SuiteSparse:GraphBLAS {SuiteSparse:GraphBLAS}",
}


def lines_beside(found: dict[str, Any]) -> str:
    """Return the lines of ``results.toml`` for the JSON of `side_by_side.py`."""
    versions = {name: version.partition("+")[0] for name, version in found["versions"].items()}
    programs: dict[str, dict[str, Any]] = {}
    for row in found["summary"]:
        name, key = row["program"], {1: "one", 2: "two"}[row["nthreads"]]
        title = _TITLES.get(name, row["title"])
        for package, version in versions.items():
            title = title.replace(f"{{{package}}}", version)
        runs = [
            run["seconds"]
            for run in found["runs"]
            if (run["program"], run["nthreads"]) == (name, row["nthreads"]) and run["round"] > 0
        ]
        program = programs.setdefault(name, {"group": "NAME", "program": title})
        program[key] = _three(row["seconds_median"])
        program[f"{key}_range"] = [_three(min(runs)), _three(max(runs))]
    return "\n".join(
        "  { " + ", ".join(f"{key} = {json.dumps(value)}" for key, value in each.items()) + " },"
        for each in programs.values()
    )


def _three(seconds: float) -> float:
    return float(f"{seconds:.3g}")


def _of(runs: int) -> str:
    return "second run" if runs == 1 else f"median of {runs}"


def seconds_of(found: dict[str, Any]) -> list[float]:
    """Return the seconds of a benchmark's runs, those of its first engine if it has several."""
    seconds = found["seconds"]
    return seconds[found["engine"]] if isinstance(seconds, dict) else seconds


def row_of(found: dict[str, Any]) -> list[str]:
    """Return what `larger.py` found as a row of a table."""
    problem, seconds = found["problem"], seconds_of(found)
    return [
        f"{problem['neurons']} x {problem['layers']}",
        "equal once" if found["deduplicate"] else "every",
        f"{median(seconds):.3f} ({min(seconds):.3f} to {max(seconds):.3f})",
        f"{found['edges_per_second']:.3g}",
        f"{found['memory_peak'] / 2**30:.2f}",
        str(found["categories"]),
    ]


def table(head: list[str], rows: list[list[str]], *, right: tuple[int, ...]) -> str:
    """Return a table in Markdown; the columns `right` are aligned to the right."""
    rule = ["---:" if at in right else "---" for at in range(len(head))]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in (head, rule, *rows))


if __name__ == "__main__":
    for name in sys.argv[1:]:
        found = json.loads(Path(name).read_text(encoding="utf-8"))
        print(lines_beside(found) if "summary" in found else line_of(found))
