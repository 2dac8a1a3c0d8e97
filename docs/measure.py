"""Measure again what the pages show: all files of results, the most quoted first.

    python docs/measure.py                    # those that were not measured at this commit
    python docs/measure.py accelerate graph   # these
    MNIST=DIR python docs/measure.py          # for commands that read MNIST's images

Each file says by which command it was measured. Files are written one by one, so that the same
command goes on after a stop. Nothing else may run on the machine. ``results.toml`` and
``scaling/*.json`` are of several machines, and are changed by hand.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import measured
import tables

HERE = Path(__file__).parent
ORDER = (
    "accelerate", "real-networks", "training-steps", "graph", "sparse-linear", "single-layers",
    "training-estimators", "training-wide", "training-structure", "training-accuracy",
    "after-torch",
)  # fmt: skip
BUSY = 0.5  # load average from which times are not reliable
PATIENCE = 300  # seconds until the load of the last benchmark is gone


def require_quiet() -> None:
    """Wait until the machine is quiet, and exit if it does not become so."""
    for _ in range(PATIENCE // 10):
        if os.getloadavg()[0] < BUSY:
            return
        time.sleep(10)
    sys.exit(f"load average {os.getloadavg()[0]:.2f}: something else is running")


def output(*command: str) -> str:
    """Return what a program prints."""
    return subprocess.run(  # noqa: S603
        command, capture_output=True, text=True, check=True, cwd=HERE.parent
    ).stdout.strip()


def measure(name: str) -> None:
    """Run the command of a file of results, and write the file."""
    command: str = tables.read(name)["command"]
    words = [os.environ["MNIST"] if word == "DIR" else word for word in shlex.split(command)]
    at = words.index("python")
    settings = dict(word.split("=", 1) for word in words[:at])
    script = words[at + 1 :]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "found.json")
        subprocess.run(  # noqa: S603
            [sys.executable, *script, "--json", str(file)],
            check=True, cwd=HERE.parent, env=os.environ | settings,
        )  # fmt: skip
        found: dict[str, Any] = tables.json.loads(file.read_text())
    text = measured.toml(name, [found | {"command": command}])
    (HERE / f"{name}.toml").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    commit = output("git", "rev-parse", "--short=8", "HEAD")
    wanted = sys.argv[1:] or [each for each in ORDER if tables.read(each)["commit"] != commit]
    for each in wanted:
        if "DIR" in tables.read(each)["command"] and "MNIST" not in os.environ:
            print(f"{each}: skipped, MNIST is not set")
            continue
        require_quiet()
        print(f"{each}: {tables.read(each)['command']}", flush=True)
        measure(each)
        subprocess.run([sys.executable, HERE / "tables.py"], check=True)  # noqa: S603
