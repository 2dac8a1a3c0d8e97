"""Output of the benchmarks: aligned tables, and JSON with machine and versions."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from datetime import date
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gbdnn.challenge import Problem

_ENVIRONMENT = [
    "OMP_NUM_THREADS", "OMP_PROC_BIND", "OMP_PLACES", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT",
    "KMP_BLOCKTIME", "MKL_NUM_THREADS",
]  # fmt: skip


def started(problem: Problem | str, **more: Any) -> dict[str, Any]:
    """Return problem, machine, versions and environment of a measurement, and print them."""
    facts = {"name": problem} if isinstance(problem, str) else problem_facts(problem)
    found = {"problem": facts, **circumstances(), **more}
    print(facts["name"])
    say_load(found)
    print(", ".join(f"{name} {version}" for name, version in found["versions"].items()))
    return found


def problem_facts(problem: Problem) -> dict[str, Any]:
    """Return the problem's name, sizes and seed."""
    net = problem.network
    return {
        "name": problem.name,
        "neurons": net.shape[0],
        "layers": len(net),
        "edges": net.edges,
        "inputs": problem.inputs,
        "seed": problem.seed,
    }


def circumstances() -> dict[str, Any]:
    """Return machine, versions, environment, load, date, commit and command."""
    from gbdnn.challenge.machine import versions
    from gbdnn.runtime.topology import described

    return {
        "machine": described() | _processor(),
        "versions": versions(),
        "environment": {name: os.environ.get(name) for name in _ENVIRONMENT},
        "load": busy_cores(),
        "date": date.today().isoformat(),
        # A copy of the files, without the folder .git, has its commit in a variable.
        "commit": os.environ.get("GBDNN_COMMIT")
        or _output(
            "git", "-C", Path(__file__).parent, "describe", "--always", "--dirty", "--exclude=*"
        ),
        "command": _command(),
    }


def _command() -> str:
    """Return the command to type elsewhere, without --json; other paths become DIR or FILE."""
    settings = (f"{name}={os.environ[name]}" for name in _ENVIRONMENT if name in os.environ)
    typed = re.sub(r" --json[ =]\S+", "", " ".join([*settings, "python", *sys.argv]))
    return re.sub(r"(?<=[ =])/\S+", lambda path: "DIR" if Path(path[0]).is_dir() else "FILE", typed)


def _output(*command: object) -> str:
    """Return what a command prints, or nothing if it is missing or fails."""
    if shutil.which(str(command[0])) is None:
        return ""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def busy_cores(seconds: float = 1.0) -> float:
    """Return how many cores were busy during this time; the load average where Linux is not.

    A load average contains the minutes before, and with them the last benchmark.
    """
    from gbdnn.thread_scaling.measure import _others

    busy = _others(0)
    sleep(seconds)
    return round(busy(), 2)


def _processor() -> dict[str, str]:
    """Return family, model and vector instructions, since virtual machines may hide the name."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text().partition("\n\n")[0].splitlines() if file.exists() else []
    pairs = (line.partition(":") for line in lines)
    found = {key.strip(): value.strip() for key, _, value in pairs}
    flags = found.get("flags", "").split()
    known = {"avx512_bf16": "bfloat16", "amx_tile": "AMX", "avx512f": "AVX-512", "avx2": "AVX2"}
    return {
        "model": f"family {found.get('cpu family')}, model {found.get('model')}",
        "instructions": ", ".join(name for flag, name in known.items() if flag in flags),
    }


def say_load(found: dict[str, Any]) -> None:
    """Print the machine, and a warning if it is busy."""
    on = found["machine"]
    print(f"{on['processor']}, {on['cores']} cores, {on['memory_gib']} GiB, {on['system']}")
    # Other processes use half a core, or a tenth of all.
    if found["load"] > max(0.5, on["cores"] / 10):
        print(f"load {found['load']}: the machine is busy; these times are not reliable")


def table(rows: Sequence[dict[str, Any]], *left_out: str) -> None:
    """Print rows as a table: the first column left-aligned and the others right-aligned.

    The columns are the keys of all rows, without those left out; missing values are empty.
    """
    if not rows:
        return
    head = dict.fromkeys(key for row in rows for key in row if key not in left_out)
    lines = [[key.replace("_", " ") for key in head]]
    lines += [[cell(row.get(key)) for key in head] for row in rows]
    wide = [max(map(len, column)) for column in zip(*lines, strict=True)]
    print()
    for first, *others in lines:
        cells = (text.rjust(width) for text, width in zip(others, wide[1:], strict=True))
        print("  ".join([first.ljust(wide[0]), *cells]).rstrip(), flush=True)


def cell(value: Any) -> str:
    """Return a cell's text: numbers with three digits, empty for missing values."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 or abs(value) >= 1e6 else f"{value:,.0f}"
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def write(file: Path | None, found: dict[str, Any]) -> None:
    """Write the results as JSON if a file is given."""
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(found, indent=1) + "\n")


def finish(file: Path | None, found: dict[str, Any], checks: Iterable[dict[str, Any]]) -> None:
    """Write the results; exit with status 1 if the ``check`` of a row is FAILED."""
    write(file, found)
    if any(row["check"] == "FAILED" for row in checks):
        raise SystemExit(1)
