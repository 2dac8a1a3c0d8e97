"""Measure the challenge's twelve networks with and without deduplication; can be resumed.

    python benchmarks/scale/twelve.py RESULTS --images $GBDNN_DATA/mnist --nthreads 2

Each case runs ``larger.py`` in its own process and writes a file to RESULTS; cases with a file are
skipped. Networks that need more than a quarter of the machine's memory are streamed from a store,
which is resumed if it is incomplete, and removed after both cases of the network. Features stay in
a store until all networks with the same number of neurons are done. The last lines of the output
belong into ``docs/results.toml``.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import problems  # noqa: TC002 -- typer reads the annotations
import report

HERE = Path(__file__).parent
NETWORKS = [(n, layers) for n in (1024, 4096, 16384, 65536) for layers in (120, 480, 1920)]
DEGREE = 32
ENTRY = 24  # bytes of an edge in memory, with its prepared copy


def main(
    results: Annotated[Path, typer.Argument(metavar="RESULTS", help="Folder for the results.")],
    networks: Annotated[
        list[str] | None,
        typer.Option("--network", metavar="NxL", help="By comma or repetition; default: all."),
    ] = None,
    inputs: problems.Inputs = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Official weights of 1024 neurons x 120 layers."),
    ] = None,
    images: problems.Images = None,
    nthreads: Annotated[int | None, typer.Option(min=1, help="Threads.")] = None,
    stores: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for stores, up to 16 GB.")
    ] = None,
    keep: Annotated[bool, typer.Option(help="Keep the stores.")] = False,
) -> None:
    """Measure the missing cases, the smallest networks first."""
    asked = [name for item in networks or [] for name in item.split(",")]
    known = {f"{n}x{layers}": (n, layers) for n, layers in NETWORKS}
    if unknown := [name for name in asked if name not in known]:
        raise typer.BadParameter(f"{unknown[0]!r} is none of {', '.join(known)}")
    results.mkdir(parents=True, exist_ok=True)
    stores = stores or results / "stores"
    chosen = [known[name] for name in asked or known]
    left = Counter(neurons for neurons, _ in chosen)
    for neurons, layers in sorted(chosen, key=lambda each: each[0] * each[1]):
        options = ["--neurons", neurons, "--layers", layers]
        for name, value in (("inputs", inputs), ("images", images), ("nthreads", nthreads)):
            options += [] if value is None else [f"--{name}", value]
        store, features = stores / f"{neurons}x{layers}", stores / f"features-{neurons}"
        edges = DEGREE * neurons * layers
        if is_official := data is not None and (neurons, layers) == (1024, 120):
            options += ["--data", data]
        else:
            stores.mkdir(parents=True, exist_ok=True)
            options += ["--features", features]
        if not is_official and ENTRY * edges > memory() / 4:
            options += ["--store", store, "--memory", 4]
        options += ["--rounds", 3 if edges < 1 << 26 else 1 if edges < 1 << 28 else 0]
        for kind in ("no-deduplicate", "deduplicate"):
            measure(results / f"{neurons}x{layers}-{kind}.json", [*options, f"--{kind}"])
        left[neurons] -= 1
        if not keep:
            shutil.rmtree(store, ignore_errors=True)
            if not left[neurons]:
                shutil.rmtree(features, ignore_errors=True)
    show(results)


def memory() -> float:
    """Return the machine's memory in bytes."""
    return report.circumstances()["machine"]["memory_gib"] * 2**30


def measure(file: Path, options: list[object]) -> None:
    """Run a case if it has no file; report a failure and continue."""
    if file.exists():
        print(f"{file.stem}: already measured", flush=True)
        return
    print(f"\n{file.stem}", flush=True)
    unfinished = file.with_suffix(".unfinished")
    command = [sys.executable, HERE / "larger.py", *options, "--json", unfinished]
    if subprocess.run(list(map(str, command))).returncode == 0:
        unfinished.replace(file)
    else:
        print(f"{file.stem}: FAILED; continuing with the next case", flush=True)


def show(results: Path) -> None:
    """Print a table of all cases, and the lines for the results page."""
    sys.path.insert(0, str(HERE.parents[1] / "docs"))
    import measured

    rows: list[list[str]] = []
    lines: list[str] = []
    for neurons, layers in NETWORKS:
        for kind in ("no-deduplicate", "deduplicate"):
            file = results / f"{neurons}x{layers}-{kind}.json"
            if file.exists():
                found = json.loads(file.read_text(encoding="utf-8"))
                lines.append(measured.run_line(found, "twelve"))
                rows.append(measured.run_row(found))
    report.table(["network", "inputs", "seconds", "edges/s", "peak GiB", "categories"], rows)
    print("\n" + "\n".join(lines))


if __name__ == "__main__":
    typer.run(main)
