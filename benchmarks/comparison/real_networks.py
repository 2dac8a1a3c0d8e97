"""Compare programs on networks of a few layers with 1 to 60 % of all edges and dense features.

    python benchmarks/comparison/real_networks.py --nthreads 1 --nthreads 2 --json real.json
    python benchmarks/comparison/real_networks.py --network 1024x7@5 --inputs 1,2,4,8,16,32
    python benchmarks/comparison/real_networks.py --after-torch 2 --programs infer,torch,torch_csr
    python benchmarks/comparison/real_networks.py --model model.onnx --programs infer,onnxruntime

gbdnn is compared with PyTorch (dense and CSR weights), ONNX Runtime, OpenVINO (FP32, and bfloat16
if the processor supports it), DeepSparse, LIBXSMM, MKL and Sparse Register Tiling. Each program
runs in its own process, interleaved with the others. LIBXSMM and Sparse Register Tiling need the
path of their library in the variables LIBXSMM and SRT. DeepSparse needs an environment of its own
(Python 3.11, ``deepsparse==1.8.0``, ``numpy<2``, ``scipy``), whose Python is the variable
PYTHON_DEEPSPARSE. ``--network dlmc-transformer`` has the shapes of DLMC.

In each round a program is called repeatedly for at least `--at-least` seconds, and its time is the
median of the calls; ratios compare runs of the same round. All programs except OpenVINO in bfloat16
compute in FP32, and ratios refer to these. Results are compared with NumPy in FP64. The file is
written after each network.

With ``--model`` your own ONNX model is measured: ONNX Runtime and OpenVINO run the file itself,
PyTorch the layers that gbdnn reads from it.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import dense_problems
import options
import report
from dense_programs import PROGRAMS
from turns import checked, in_turn, ratios

if TYPE_CHECKING:
    from turns import Turns

NETWORKS = (
    "784-512x2-10@2",
    "784-300-100-10@5",
    "1024x7@1",
    "1024x7@5",
    "1024x7@10",
    "1024x7@20",
    "2048-4096-2048@5",
    "768-3072-768@10",
    "768-3072-768@20",
    "784-1024x3-10@5,100",
    "512x2-10@20",
    "1024x4@30",
    "784-128x18-10@60",
)
OWN, BFLOAT16 = PROGRAMS.having("own"), PROGRAMS.having("bfloat16")
FEATURES = "1024-1@1"  # about ten edges, so reading the features dominates
INPUTS = (1, 32, 1000, 10_000)

TOLERANCE = 1e-5  # relative to the largest value
LOOSE = 0.05  # in bfloat16, which has 8 significant bits
_PAUSE = 0.2  # until idle threads of the previous program sleep


def main(
    network: options.Specs = None,
    mnist: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="MNIST, to run a trained network too."),
    ] = None,
    model: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Your model in ONNX, in FP32, alone.")
    ] = None,
    inputs: options.Several = None,
    nthreads: options.Several = None,
    programs: options.Several = None,
    rounds: options.Rounds = 5,
    at_least: options.AtLeast = 0.1,
    after_torch: Annotated[
        int, typer.Option(min=0, help="Threads of an operation of PyTorch before each call.")
    ] = 0,
    cold: Annotated[
        bool, typer.Option(help="Time one input after other work, too: a sum over 32 MB.")
    ] = False,
    seed: options.Seed = 0,
    quick: options.Quick = False,
    json_file: options.Json = None,
) -> None:
    """Compare gbdnn with other programs on networks with dense features."""
    if quick:
        network, inputs, rounds, at_least = ["64x3@20"], ["1,32"], 1, 0.001
    sizes, counts = options.numbers(inputs, INPUTS), options.numbers(nthreads, [2])
    names = options.words(programs, PROGRAMS, PROGRAMS)
    found = report.started(
        "networks with dense features, FP32", rounds=rounds, seed=seed, skipped={}, cells=[]
    )
    found["precision"] = {name: "bfloat16" if name in BFLOAT16 else "FP32" for name in names}

    def run(
        problem: dense_problems.DenseProblem, sizes: list[int], features_alone: bool = False
    ) -> None:
        """Add the results for each number of threads and inputs."""
        print(f"{problem.name} ...", flush=True)
        facts = {"network": problem.name, "density": problem.density, "edges": problem.edges}
        facts["features_alone"] = features_alone
        with tempfile.TemporaryDirectory() as folder:
            _save(problem, model, sizes, Path(folder))
            with PROGRAMS.started(names, found, folder) as able:
                for size, is_cold in [
                    *product(sizes, [False]),
                    *[(1, True)] * (cold and 1 in sizes),
                ]:
                    asked = {"inputs": size, "at_least": at_least, "torch": after_torch}
                    asked["cold"] = is_cold
                    keys = product(counts, able)
                    calls = {
                        (name, n): partial(able[name].ask, nthreads=n, **asked) for n, name in keys
                    }
                    turns = in_turn(calls, rounds, pause=_PAUSE)
                    found["cells"] += [facts | asked | _cell(turns, list(able), n) for n in counts]
        report.write(json_file, found)

    if model is not None:
        run(_given(model, max(sizes), seed), sizes)
    for spec in network or (NETWORKS if model is None else ()):
        run(dense_problems.random_problem(spec, max(sizes), seed), sizes)
    if not network and model is None:
        run(dense_problems.random_problem(FEATURES, max(sizes), seed), [max(sizes)], True)
    if mnist is not None:
        problem = dense_problems.trained_problem(mnist)
        run(problem, [size for size in sizes if size <= len(problem.features)])
    show(found, counts)
    report.finish(json_file, found, found["cells"])


def _save(
    problem: dense_problems.DenseProblem, model: Path | None, sizes: list[int], folder: Path
) -> None:
    """Write the problem, its model in ONNX if that is possible, and its answers."""
    import gbdnn
    from gbdnn.errors import MissingPackageError

    problem.save(folder)
    if model is not None:
        shutil.copy(model, folder / "net.onnx")
    else:
        with suppress(MissingPackageError):
            gbdnn.save(problem.network(), folder / "net.onnx", "onnx")
    for size in sizes:
        np.save(folder / f"answer-{size}.npy", problem.answer(size))


def _given(model: Path, inputs: int, seed: int) -> dense_problems.DenseProblem:
    """Return the layers that gbdnn reads from a model, and inputs for them."""
    import gbdnn
    from gbdnn.errors import GbdnnError

    try:
        net = gbdnn.load(model, "onnx")
    except (GbdnnError, OSError) as err:
        raise SystemExit(str(err)) from err
    if net[0].dtype != np.float32:
        raise SystemExit(f"{model}: weights in {net[0].dtype}; programs are compared in FP32")
    X = np.random.default_rng(seed).normal(0.3, 1, (inputs, net.shape[0])).astype(np.float32)
    return dense_problems.of_network(model.name, net, X)


def _cell(turns: Turns, names: list[str], nthreads: int) -> dict[str, Any]:
    """Return the times of the programs on a number of threads, without the warm-up round."""
    first, runs = (
        {name: kept[name, nthreads] for name in names} for kept in (turns.first, turns.runs)
    )
    seconds = {name: [run["seconds"] for run in mine] for name, mine in runs.items()}
    errors = {name: max(run["error"] for run in (*first[name], *runs[name])) for name in runs}
    wrong = [
        name
        for name, error in errors.items()
        if not error <= (LOOSE if name in BFLOAT16 else TOLERANCE)
    ]
    apart = (*OWN, *wrong, *BFLOAT16)
    others = [runs[name] for name in names if name not in apart]
    best = [min(of, key=lambda run: run["seconds"]) for of in zip(*others, strict=True)]
    return {
        "nthreads": nthreads,
        "seconds": seconds,
        "median": {name: median(taken) for name, taken in seconds.items()},
        # Ratio to the fastest other program in FP32 with correct results.
        "times": {name: median(ratios(best, runs[name])) for name in OWN if best and name in names},
        "error": errors,
        "right": {name: mine[-1]["right"] for name, mine in runs.items()},
        "wrong": wrong,
        "check": checked(not set(OWN) & set(wrong)),
    }


def show(found: dict[str, Any], counts: list[int]) -> None:
    """Print a table for each number of threads."""
    titles = {name: program.title for name, program in PROGRAMS.items()}
    for nthreads in counts:
        report.table(
            [
                {
                    f"network, {nthreads} threads": cell["network"],
                    "inputs": f"{cell['inputs']:,}{', cold' * cell['cold']}",
                    **{f"{titles[name]} ms": 1e3 * s for name, s in cell["median"].items()},
                    **{f"times {titles[name]}": times for name, times in cell["times"].items()},
                    "answers": ", ".join(f"{titles[n]} WRONG" for n in cell["wrong"]) or "right",
                }
                for cell in found["cells"]
                if cell["nthreads"] == nthreads
            ]
        )


if __name__ == "__main__":
    options.run(main)
