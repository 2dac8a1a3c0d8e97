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
from itertools import product
from pathlib import Path
from typing import Annotated

import typer

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import options
import papers
import report

HERE = Path(__file__).parent
DEGREE = 32
ENTRY = 24  # bytes of an edge in memory, with its prepared copy


def main(
    results: Annotated[Path, typer.Argument(metavar="RESULTS", help="Folder for the results.")],
    network: options.Several = None,
    inputs: options.Inputs = None,
    data: options.Data = None,
    images: options.Images = None,
    nthreads: options.Cores = None,
    stores: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for stores, up to 16 GB.")
    ] = None,
    keep: Annotated[bool, typer.Option(help="Keep the stores.")] = False,
) -> None:
    """Measure the missing cases, the smallest networks first."""
    results.mkdir(parents=True, exist_ok=True)
    stores = stores or results / "stores"
    chosen = papers.named(network, papers.SIZES)
    left = Counter(neurons for neurons, _ in chosen)
    for neurons, layers in chosen:
        words = ["--neurons", neurons, "--layers", layers]
        for name, value in (("inputs", inputs), ("images", images), ("nthreads", nthreads)):
            words += [] if value is None else [f"--{name}", value]
        store, features = stores / f"{neurons}x{layers}", stores / f"features-{neurons}"
        edges = DEGREE * neurons * layers
        if is_official := data is not None and (neurons, layers) == (1024, 120):
            words += ["--data", data]
        else:
            stores.mkdir(parents=True, exist_ok=True)
            words += ["--features", features]
        if not is_official and ENTRY * edges > memory() / 4:
            words += ["--store", store, "--memory", 4]
        words += ["--rounds", 3 if edges < 1 << 26 else 1 if edges < 1 << 28 else 0]
        for kind in ("no-deduplicate", "deduplicate"):
            measure(results / f"{neurons}x{layers}-{kind}.json", [*words, f"--{kind}"])
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

    kinds = product(papers.SIZES, ("no-deduplicate", "deduplicate"))
    files = [results / f"{neurons}x{layers}-{kind}.json" for (neurons, layers), kind in kinds]
    runs = [json.loads(file.read_text(encoding="utf-8")) for file in files if file.exists()]
    head = ("network", "inputs", "seconds", "edges/s", "peak GiB", "categories")
    report.table([dict(zip(head, measured.run_row(each), strict=True)) for each in runs])
    print("", *(measured.run_line(each, "twelve") for each in runs), sep="\n")


if __name__ == "__main__":
    options.run(main)
