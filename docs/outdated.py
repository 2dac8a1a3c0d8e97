"""List the files of results that are older than the code that they measure.

    python docs/outdated.py

For each file: the commit at which it was measured, and the number of later commits that changed
its benchmark, or the package's code that its benchmark runs. If only some times can change, the
commit's message ends with a line of the names of their files, or "none":
``Times: accelerate graph``. Files of other processors are records.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import measured
import tables

ROOT = Path(__file__).parents[1]
ORDER = (  # the most quoted first
    "side-by-side", "real-networks", "accelerate", "training-steps", "sparse-linear", "graph",
    "spmm", "threads", "floor", "predicted", "after-torch", "single-layers", "larger",
    "wait-policy", "training-estimators", "challenge", "training-wide", "training-structure",
    "training-accuracy",
)  # fmt: skip
EVERY = "arrays engine kernels model runtime inference.py answers.py"
MORE = {
    "accelerate": "torch serving.py",
    "graph": "graph",
    "real-networks": "serving.py",
    "sparse-linear": "torch training",
    "spmm": "graph",
    "training": "training",
}


def recorded(name: str) -> dict[str, Any]:
    """Return a file of results, with its commands."""
    return tables.read(name) if name in measured.KINDS else tables.reports()[name]


def later(name: str) -> list[str]:
    """Return the later commits that changed what a file measures."""
    facts = recorded(name)
    words = EVERY + " ".join(["", *(more for kind, more in MORE.items() if name.startswith(kind))])
    code = [f"gbdnn/{word}" for word in words.split()]
    code += [word for word in facts["command"].split() if word.startswith("benchmarks/")]
    commit = facts["commit"].split(", ")[0].removesuffix("-dirty")
    shown = "--format=%h %(trailers:key=Times,valueonly,separator=%x20)"
    command = ["git", "-C", ROOT, "log", shown, f"{commit}..HEAD", "--", *code]
    done = subprocess.run(  # noqa: S603
        list(map(str, command)), capture_output=True, text=True, check=True
    )
    commits = [line.split() for line in done.stdout.splitlines()]
    return [each for each, *only in commits if not only or name in only]


if __name__ == "__main__":
    for name in ORDER:
        if commits := later(name):
            facts = recorded(name)
            print(
                f"{name}: {facts['date']}, commit {facts['commit']}, {len(commits)} later commits"
            )
