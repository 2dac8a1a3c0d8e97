"""Compare `gbdnn.torch.accelerate` on pruned modules with PyTorch, ONNX Runtime and OpenVINO.

    python benchmarks/comparison/accelerate.py --zeros 0.9 --tokens 1,128 --nthreads 2

The modules are a transformer's feed-forward block (768-3072-768, GELU), an encoder of six such
layers with attention, and a classifier (784-512-512-10), with random weights set to 0. Each program
runs in its own process, interleaved, with the same number of threads. ``times`` is the median ratio
of the fastest other program in FP32 to gbdnn within a round. OpenVINO computes in FP32 and, where
the processor supports it, in bfloat16, its default.
"""

from __future__ import annotations

import sys
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import options
import report
from module_programs import MODELS, PROGRAMS
from turns import checked, in_turn

TOLERANCE = 1e-4  # relative to the largest value
LOOSE = 0.03  # in bfloat16
_PAUSE = 0.2  # until idle threads of the previous program sleep


def main(
    zeros: options.Several = None,
    tokens: options.Several = None,
    nthreads: options.Count = 2,
    rounds: options.Rounds = 9,
    at_least: options.AtLeast = 0.2,
    model: Annotated[str, typer.Option(help="Part of the model's name.")] = "",
    json_file: options.Json = None,
) -> None:
    """Compare accelerated modules with other programs."""
    found = report.started("pruned modules, FP32", nthreads=nthreads, cells=[])
    sizes = options.numbers(tokens, [1, 32, 128])
    shares = options.numbers(zeros, [0.8, 0.9, 0.95], float, 0)
    names = [name for name in MODELS if model in name]
    with PROGRAMS.started(PROGRAMS, found) as able:
        for share, name, size in product(shares, names, sizes):
            asked = {"name": name, "zeros": share, "tokens": size, "nthreads": nthreads}
            asked["at_least"] = at_least
            calls = {each: partial(able[each].ask, **asked) for each in able}
            found["cells"].append({**asked, **_cell(in_turn(calls, rounds, pause=_PAUSE))})
            report.write(json_file, found)
    report.table(
        [
            {
                "model": cell["name"],
                "zeros": cell["zeros"],
                "inputs": cell["tokens"],
                **{f"{PROGRAMS[name].title} ms": 1e3 * s for name, s in cell["median"].items()},
                "times": cell["times"],
                "largest difference": max(cell["error"].values()),
            }
            for cell in found["cells"]
        ]
    )
    report.finish(json_file, found, found["cells"])


def _cell(turns: Any) -> dict[str, Any]:
    """Return medians, and the ratio of the fastest other program to gbdnn."""
    loose = PROGRAMS.having("bfloat16")
    ratios = [turns.ratios(name, "gbdnn") for name in turns.runs if name not in ("gbdnn", *loose)]
    error = {name: max(run["error"] for run in runs) for name, runs in turns.runs.items()}
    return {
        "median": {name: turns.median(name) for name in turns.runs},
        "times": median(map(min, zip(*ratios, strict=True))),
        "error": error,
        "check": checked(all(x <= (LOOSE if n in loose else TOLERANCE) for n, x in error.items())),
    }


if __name__ == "__main__":
    options.run(main)
