"""List the files of results that are older than the code that they measure.

    python docs/outdated.py

For each file: the commit at which it was measured, and the number of later commits that changed
its benchmark, or the package's code that its benchmark runs.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tables import read, reports

ROOT = Path(__file__).parents[1]
EVERY = "arrays engine kernels model runtime inference.py answers.py"
MORE = {
    "accelerate": "torch serving.py",
    "graph": "graph",
    "real-networks": "serving.py",
    "sparse-linear": "torch training",
    "training": "training",
}


def later(name: str, facts: dict[str, str]) -> list[str]:
    """Return the later commits that changed what a file measures."""
    words = EVERY + " ".join(["", *(more for kind, more in MORE.items() if name.startswith(kind))])
    code = [f"gbdnn/{word}" for word in words.split()]
    code += [word for word in facts.get("command", "").split() if word.startswith("benchmarks/")]
    commit = facts["commit"].split(", ")[0].removesuffix("-dirty")
    command = ["git", "-C", ROOT, "log", "--format=%h", f"{commit}..HEAD", "--", *code]
    done = subprocess.run(  # noqa: S603
        list(map(str, command)), capture_output=True, text=True, check=True
    )
    return done.stdout.split()


if __name__ == "__main__":
    measured = {file.stem: read(file.stem) for file in sorted(Path(__file__).parent.glob("*.toml"))}
    processors = sorted(ROOT.glob("benchmarks/limits/processors/*.json"))
    measured |= {file.name: json.loads(file.read_text()) for file in processors}
    for name, facts in {**measured, **reports()}.items():
        if commits := later(name, facts):
            print(
                f"{name}: {facts['date']}, commit {facts['commit']}, {len(commits)} later commits"
            )
