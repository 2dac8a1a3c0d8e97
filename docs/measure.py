"""Measure again what the pages show: all files of results, the most quoted first.

    python docs/measure.py                    # those that docs/outdated.py lists
    python docs/measure.py accelerate graph   # these

Each file says by which commands it was measured; those with a variable of the environment, such as
``$GBDNN_DATA``, are skipped if it is not set. Files are written one by one, so that the same
command goes on after a stop. Nothing else may run on the machine. Files of a machine with more
cores are not measured here.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import measured
import outdated

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "benchmarks" / "support"))
import report  # noqa: E402

BUSY = 0.2  # cores that others use, from which times are not reliable
PATIENCE = 60  # seconds until the machine is quiet


def require_quiet() -> None:
    """Wait until the machine is quiet, and exit if it does not become so."""
    for _ in range(PATIENCE // 5):
        if (busy := report.busy_cores(5)) < BUSY:
            return
    sys.exit(f"{busy} cores are busy: something else is running")


def output(*command: str) -> str:
    """Return what a program prints."""
    return subprocess.run(  # noqa: S603
        command, capture_output=True, text=True, check=True, cwd=HERE.parent
    ).stdout.strip()


def missing(command: str) -> list[str]:
    """Return the variables in a command that are not set."""
    return [name for name in re.findall(r"\$(\w+)", command) if name not in os.environ]


def measure(name: str) -> None:
    """Run the commands of a file of results, and write the file."""
    command: str = outdated.recorded(name)["command"]
    found = []
    for each in command.split("; "):
        words = shlex.split(os.path.expandvars(each))
        at = words.index("python")
        settings = dict(word.split("=", 1) for word in words[:at])
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "found.json")
            subprocess.run(  # noqa: S603
                [sys.executable, *words[at + 1 :], "--json", str(file)],
                check=True, cwd=HERE.parent, env=os.environ | settings,
            )  # fmt: skip
            found.append(json.loads(file.read_text()) | {"command": command})
    if name in measured.KINDS:
        text = measured.toml(name, found)
        (HERE / f"{name}.toml").write_text(text, encoding="utf-8")
    else:
        text = json.dumps(found[0], indent=1) + "\n"
        (HERE / "scaling" / f"{name}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    commit = output("git", "rev-parse", "--short=8", "HEAD")
    os.environ["GBDNN_COMMIT"] = commit  # files that were just measured are not another state
    wanted = sys.argv[1:] or list(filter(outdated.later, outdated.ORDER))
    for each in wanted:
        if names := missing(command := outdated.recorded(each)["command"]):
            print(f"{each}: skipped, {', '.join(names)} not set")
            continue
        require_quiet()
        print(f"{each}: {command}", flush=True)
        measure(each)
        subprocess.run([sys.executable, HERE / "tables.py"], check=True)  # noqa: S603
