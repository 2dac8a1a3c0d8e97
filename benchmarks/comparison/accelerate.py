"""Compare `gbdnn.torch.accelerate` on pruned modules with PyTorch, ONNX Runtime and OpenVINO.

    python benchmarks/comparison/accelerate.py --zeros 0.9 --tokens 1,128 --nthreads 2

The modules are a transformer's feed-forward block (768-3072-768, GELU), an encoder of six such
layers with attention, and a classifier (784-512-512-10), with random weights set to 0. Each program
runs in its own process, interleaved, with the same number of threads. ``times`` is the median ratio
of the fastest other program in FP32 to gbdnn within a round; p99 covers all timed calls. OpenVINO
computes in FP32 and, where the processor supports it, in bfloat16, its default.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import typer

SUPPORT = Path(__file__).parents[1] / "support"
sys.path.insert(0, str(SUPPORT))
import problems
import report
from module_programs import MODELS, PRECISIONS, PROGRAMS, TITLES, TOLERANCES
from processes import Process, prepared
from turns import in_turn

_PAUSE = 0.2  # until idle threads of the previous program sleep


def main(
    zeros: Annotated[list[float] | None, typer.Option(help="Fraction of zeros.")] = None,
    tokens: Annotated[
        list[str] | None,
        typer.Option(metavar="N", help="Inputs per call; several by comma or repetition."),
    ] = None,
    nthreads: Annotated[int, typer.Option(min=1)] = 2,
    rounds: Annotated[int, typer.Option(min=1, help="Timed rounds.")] = 9,
    at_least: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Time per round.")
    ] = 0.2,
    model: Annotated[str, typer.Option(help="Part of the model's name.")] = "",
    json_file: problems.Json = None,
) -> None:
    """Compare accelerated modules with other programs."""
    sizes = problems.numbers(tokens, "--tokens", [1, 32, 128])
    found: dict[str, Any] = {"problem": {"name": "pruned modules, FP32"}}
    found |= report.circumstances() | {"nthreads": nthreads, "cells": []}
    report.heading(found)
    script = SUPPORT / "module_programs.py"
    with prepared([Process(each, script, each) for each in PROGRAMS], found) as able:
        for share in zeros or [0.8, 0.9, 0.95]:
            for name in (each for each in MODELS if model in each):
                for size in sizes:
                    asked = {"name": name, "zeros": share, "tokens": size, "nthreads": nthreads}
                    asked["at_least"] = at_least
                    calls = {each: partial(able[each].ask, **asked) for each in able}
                    turns = in_turn(calls, rounds, pause=_PAUSE)
                    found["cells"].append({**asked, **_cell(turns)})
    _show(found["cells"])
    report.write(json_file, found)
    if any(x > TOLERANCES[name] for cell in found["cells"] for name, x in cell["error"].items()):
        raise typer.Exit(1)


def _cell(turns: Any) -> dict[str, Any]:
    """Return medians, percentiles, and the ratio of the fastest other program to gbdnn."""
    p99 = {
        name: float(np.percentile(np.concatenate([run["calls"] for run in runs]), 99))
        for name, runs in turns.runs.items()
    }
    others = [name for name in turns.runs if name not in ("gbdnn", *PRECISIONS)]
    ratios = [turns.ratios(name, "gbdnn") for name in others]
    return {
        "median": {name: turns.median(name) for name in turns.runs},
        "p99": p99,
        "times": median(map(min, zip(*ratios, strict=True))),
        "error": {name: max(run["error"] for run in runs) for name, runs in turns.runs.items()},
    }


def _show(cells: list[dict[str, Any]]) -> None:
    names = [name for name in TITLES if name in cells[0]["median"]]
    report.table(
        [
            "model", "zeros", "inputs",
            *(f"{TITLES[name]} ms{also}" for name in names for also in ("", ", p99")),
            "times", "largest difference",
        ],
        [
            (
                cell["name"], cell["zeros"], cell["tokens"],
                *(f"{1e3 * cell[key][name]:.3g}" for name in names for key in ("median", "p99")),
                f"x {cell['times']:.2f}", f"{max(cell['error'].values()):.1e}",
            )
            for cell in cells
        ],
    )  # fmt: skip


if __name__ == "__main__":
    typer.run(main)
