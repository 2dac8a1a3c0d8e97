"""Measure a process's first call of the fused kernel with an empty and a filled cache.

    python benchmarks/overheads/first_call.py --json first_call.json

The wheel of a release includes LLVM IR, which is compiled without numba; in a clone, numba creates
the IR.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import options
import report

CALL = """
from time import perf_counter
import numpy as np
import gbdnn

random = np.random.default_rng(0)
layers = [np.where(random.random((512, 512)) < 0.1, random.random((512, 512)), 0)] * 3
X = random.random((300, 512))
began = perf_counter()
gbdnn.infer(layers, X, bias=-1.0, engine="fused", dtype="FP32")
print(perf_counter() - began)
"""


def main(
    rounds: options.Rounds = 5,
    json_file: options.Json = None,
) -> None:
    """Time first calls."""
    from gbdnn.kernels.compiled.functions import library

    seconds: dict[str, list[float]] = {"nothing on disk": [], "machine code on disk": []}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as cache:
            for found in seconds.values():
                done = subprocess.run(
                    [sys.executable, "-c", CALL],
                    env=os.environ | {"GBDNN_CACHE_DIR": cache},
                    check=True,
                    stdout=subprocess.PIPE,
                )
                found.append(float(done.stdout))
    carried = library("float32").is_carried
    print("with the LLVM IR of a wheel" if carried else "with LLVM IR created by numba")
    report.table(
        [{"first call with": name, "seconds": median(found)} for name, found in seconds.items()]
    )
    report.write(json_file, {**report.circumstances(), "carried": carried, "seconds": seconds})


if __name__ == "__main__":
    options.run(main)
