"""A commit beside the one before, on four small cases: has it become slower?

    python benchmarks/comparison/commits.py               # HEAD beside HEAD~1
    python benchmarks/comparison/commits.py . --before HEAD --case dense

What is compared is a commit, or a folder with gbdnn in it. Each runs in processes of its own, on
one thread, in turn, and counts by processor time: programs beside it on the machine disturb that
less than the wall's clock. The one before runs beside itself, too: the quartiles of these ratios
are the noise. A case is slower if the median ratio is `--slower` percent or more beyond the noise,
and in new processes, whose memory lies elsewhere, is so again; the exit code is 1 then.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import problems
import report
from processes import Process, prepared
from small_cases import CASES
from turns import in_turn, quartiles

_CASES = Path(__file__).parents[1] / "support" / "small_cases.py"
_REPOSITORY = Path(__file__).parents[2]


def main(
    commit: Annotated[str, typer.Argument(help="Or a folder with gbdnn in it.")] = "HEAD",
    before: Annotated[
        str | None, typer.Option(help="Likewise (default: the commit's predecessor).")
    ] = None,
    case: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help=f"{', '.join(CASES)}; several by comma or repetition."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=2, help="Pairs of runs.")] = 15,
    slower: Annotated[float, typer.Option(help="Percent beyond the noise that are told.")] = 10.0,
    json_file: problems.Json = None,
) -> None:
    """Time a commit and the one before in turn, and tell which cases have become slower."""
    chosen = problems.names(case, CASES, CASES)
    found = {**report.circumstances(), "rounds": rounds, "cases": {}}
    rows = []
    with tempfile.TemporaryDirectory(prefix="commits-") as folder:
        now = _tree(commit, Path(folder) / "now")
        old = _tree(before or f"{commit}~1", Path(folder) / "before")
        for name in chosen:
            found["cases"][name] = each = _compared(name, now, old, folder, rounds, slower)
            if each["slower"]:
                again = _compared(name, now, old, folder, rounds, slower)
                found["cases"][name] = each = again | {"first": each}
            percent, word = f"{100 * each['noise']:.1f} %", "SLOWER" if each["slower"] else ""
            rows.append([CASES[name], percent, f"x {each['median']:.3f}", word])
    report.table(["processor time", "noise", "to before", ""], rows)
    report.write(json_file, found)
    if any(each["slower"] for each in found["cases"].values()):
        raise typer.Exit(1)


def _tree(what: str, folder: Path) -> Path:
    """Return a folder with gbdnn: the one that is named, or the commit's, which is unpacked."""
    if (Path(what) / "gbdnn").is_dir():
        return Path(what).resolve()
    done = subprocess.run(
        ["git", "archive", what, "gbdnn"],  # noqa: S607 -- the user's git
        cwd=_REPOSITORY, capture_output=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise typer.BadParameter(f"{what} is no commit, nor a folder: {done.stderr.decode()}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder.resolve()


def _compared(
    case: str, now: Path, before: Path, cache: str, rounds: int, slower: float
) -> dict[str, Any]:
    """Return how many times as much processor time one takes as the other, and what is noise."""
    trees = {"before": before, "same": before, "now": now}
    started = [
        Process(
            f"{case}, {name}", _CASES, case,
            PYTHONPATH=str(tree), GBDNN_CACHE_DIR=str(Path(cache) / "cache"),
        )
        for name, tree in trees.items()
    ]  # fmt: skip
    with prepared(started, {}) as able:
        if len(able) < len(trees):
            raise typer.Exit(2)
        for process, tree in zip(started, trees.values(), strict=True):
            ran = Path(process.prepared["facts"]["gbdnn"])
            if not ran.is_relative_to(tree):
                raise SystemExit(f"{ran} runs, not the gbdnn in {tree}")
        asked = {name: each.ask for name, each in zip(trees, started, strict=True)}
        turns = in_turn(asked, rounds, warm=2)
    same, ratios = (turns.ratios(name, "before", "cpu") for name in ("same", "now"))
    low, _, high = quartiles(same)
    noise, middle = max(high - 1, 1 - low), median(ratios)
    return {
        "same": same, "ratios": ratios, "noise": noise, "median": middle,
        "seconds": turns.median("before"), "slower": middle - 1 > noise + slower / 100,
    }  # fmt: skip


if __name__ == "__main__":
    typer.run(main)
