"""Measure what a new process needs for its first answer, after ``import numpy``.

    python benchmarks/overheads/first_answer.py --json first_answer.json

Two tasks: read a pruned MLP, 784-1024-1024-10 with 5 % of the weights, and compute one input on one
thread, with `gbdnn.compile` and with ONNX Runtime; and ten products of a graph of 20,000 nodes and
15 edges each with 32 features, with `gbdnn.graph.spmm` and with SciPy. Processes are interleaved.
Their home is empty in the first round, which the table shows apart.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import gbdnn
from gbdnn.training import erdos_renyi

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import options
import report

MEASURED = """
import json, sys
from time import perf_counter, process_time
import numpy as np

folder, began, used = sys.argv[1], perf_counter(), process_time()
{code}
cpu, seconds = process_time() - used, perf_counter() - began
# `ru_maxrss` would be at least that of the parent process.
peak = int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
print(json.dumps({{"cpu": cpu, "seconds": seconds, "MiB": peak / 1024}}))
"""
COMPILE = """
import gbdnn
gbdnn.compile(gbdnn.load(folder + "/net"), nthreads=1)(np.ones(784, np.float32))
"""
ONNX = """
import onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(folder + "/net.onnx", options)
session.run(None, {session.get_inputs()[0].name: np.ones((1, 784), np.float32)})
"""
GRAPH = """
import scipy.sparse as sp
A, Y = sp.load_npz(folder + "/A.npz"), np.ones((20_000, 32), np.float32)
"""
SPMM = "import gbdnn\nfor _ in range(10):\n    gbdnn.graph.spmm(A, Y)\n"
SCIPY = "for _ in range(10):\n    A @ Y\n"


def main(rounds: options.Rounds = 5, json_file: options.Json = None) -> None:
    """Compare the first answers of programs."""
    programs = {
        ("one input", "gbdnn"): COMPILE,
        ("one input", "ONNX Runtime"): ONNX,
        ("10 graph products", "gbdnn"): GRAPH + SPMM,
        ("10 graph products", "SciPy"): GRAPH + SCIPY,
    }
    runs: dict[tuple[str, str], list[dict[str, float]]] = {each: [] for each in programs}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write(folder)
        for _ in range(rounds + 1):
            for number, (each, code) in enumerate(programs.items()):
                home = folder / f"home{number}"
                home.mkdir(exist_ok=True)
                where = {"HOME": str(home), "PYTHONPATH": str(Path(gbdnn.__file__).parents[1])}
                done = subprocess.run(
                    [sys.executable, "-P", "-c", MEASURED.format(code=code), name], cwd=folder,
                    env={**os.environ, **where}, stdout=subprocess.PIPE, check=True,
                )  # fmt: skip
                runs[each].append(json.loads(done.stdout))
    cells: list[dict[str, Any]] = []
    for (task, program), found in runs.items():
        cell: dict[str, Any] = {"task": task, "program": program, "first cpu": found[0]["cpu"]}
        cell |= {"first MiB": found[0]["MiB"]}
        cells.append(cell | {key: median(each[key] for each in found[1:]) for key in found[0]})
    report.table(cells)
    report.write(json_file, report.started("first answers", rounds=rounds) | {"cells": cells})


def _write(folder: Path) -> None:
    """Write the network for both programs, and the graph."""
    import scipy.sparse as sp

    net = erdos_renyi([784, 1024, 1024, 10], 0.05, seed=0)
    gbdnn.save(net, folder / "net")
    gbdnn.io.write_onnx(net, folder / "net.onnx")
    random = np.random.default_rng(0)
    A = sp.random_array((20_000, 20_000), density=15 / 20_000, dtype="f4", rng=random, format="csr")
    sp.save_npz(folder / "A.npz", sp.csr_matrix(A), compressed=False)


if __name__ == "__main__":
    options.run(main)
