"""Compare the peak memory of runs with what `memory=` allows: at most 1.5 times as much.

    python tests/stress/memory.py               # the whole grid; Linux only
    python tests/stress/memory.py fused full    # these engines only

Every case runs in its own process. A line is printed for each case that exceeds its limits.
"""

import ctypes
import gc
import json
import os
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path

import numpy as np

import gbdnn

NEURONS, LAYERS, INPUTS = 1024, 12, 8000


def status(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))


def peak(call):
    """Return the answer of a call, and its peak memory beyond what the process held before."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before, files = status("VmRSS"), status("RssFile")
    answer = call()
    return answer, status("VmHWM") - before - (status("RssFile") - files)


def inference(folder, engine, mib, features, bias, lazy, dtype):
    """Return what one run of `infer` took beyond its answer, and its limit."""
    import graphblas as gb
    import scipy.sparse as sp

    options = {"clip": 32, "dtype": dtype}
    layers = gbdnn.gallery.radixnet(NEURONS, LAYERS)
    net = gbdnn.Network([gbdnn.Layer(each.W, bias, **options) for each in layers])
    if lazy:
        gbdnn.save(net, folder)
        net = gbdnn.load(folder, lazy=True)
    X = sp.random_array((INPUTS, NEURONS), density=0.1, format="csr", rng=0, dtype=np.float32)
    if features == "matrix":
        X = gb.io.from_scipy_sparse(X)
        X.wait()
    elif features == "array":
        X = X.toarray()
    run = {"engine": engine, "memory": mib << 20, "nthreads": 2}
    gbdnn.infer(net, np.eye(200, NEURONS), **run)  # prepares the weights
    Y, taken = peak(lambda: gbdnn.infer(net, X, **run))
    full = Y.ss.format.startswith(("full", "bitmap"))
    entries, each = (Y.nrows * Y.ncols, 1) if full else (Y.nvals, 8)
    answer = entries * (each + Y.dtype.np_type.itemsize) + 8 * INPUTS
    return taken - answer, 1.5 * (mib << 20)


def grid(name):
    kinds = [*product(["matrix", "array", "scipy"], [0.02, -0.3], [0, 1], ["FP32"])]
    kinds.append(("matrix", 0.02, 0, "FP64"))
    return [(name, mib, *kind) for mib, kind in product([32, 64, 512], kinds)]


def main(names):
    count = wrong = 0
    for name in names:
        for case in grid(name):
            done = subprocess.run(
                [sys.executable, __file__, "case", json.dumps(case)], text=True,
                env={**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}, stdout=subprocess.PIPE,
            )  # fmt: skip
            taken, limit = json.loads(done.stdout) if done.returncode == 0 else (1, 0)
            count, wrong = count + 1, wrong + (taken > limit)
            if taken > limit:
                print(*case, "failed" if done.returncode else f"{taken} bytes", flush=True)
    print(f"{count} cases, {wrong} beyond their limits")


if __name__ == "__main__":
    if sys.argv[1:2] == ["case"]:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(inference(folder, *json.loads(sys.argv[2]))))
    else:
        main(sys.argv[1:] or ["auto", "sparse", "full", "fused"])
