"""What a run takes at most, against what `memory=` and `memory_needed` promise.

    python tests/support/memory_grid.py FORM COMPRESS LAZY RULE KIND FEATURES MIB FOLDER

prints one case: the peak of this process, beside what it held before the run. Pages of files, a
store's or a library's, are not counted: the system has them back when it needs them. FEATURES are
"matrix" or "array" in FP32, "fp64": a matrix in FP64, or "csr", "csc" and "coo": SciPy's. Behind
KIND, "-fp64" ("lives-fp64") makes the network FP64, "-wide" has half the inputs and layers of twice
the neurons. "cold" in place of a kind: as "lives", at the first call of the process; "compiles":
that call has to compile machine code, which takes `COMPILING` bytes beside `memory=`.

    python tests/support/memory_grid.py [FORM ...]

runs the cases of all forms, or of these, each in a process of its own, and prints a summary line.
"""

import ctypes
import gc
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from itertools import product

import numpy as np

NEURONS, LAYERS = 1024, 12
FORMS, KINDS = ("auto", "sparse", "full", "fused"), ("lives", "half", "dies")
BIAS = {"lives": 0.02, "half": -0.1, "dies": -0.3, "cold": 0.02, "compiles": 0.02}
COMPILING = 64 << 20
PEAK = pathlib.Path("/proc/self/clear_refs")


def status(name):
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))


def case(form, compress, lazy, rule, kind, features, mib, folder=None, inputs=8_000):
    """Return what a run took beyond what the process held, and what was promised."""
    import graphblas as gb
    import scipy.sparse

    import gbdnn

    kind, _, other = kind.partition("-")
    dtype = "FP64" if other == "fp64" else "FP32"
    if other == "wide":
        inputs, weights = (
            inputs // 2,
            gbdnn.gallery.radix_layers([[32, 64]] * (LAYERS // 2), weight=1 / 16),
        )
    else:
        weights = [each.W for each in gbdnn.radixnet(NEURONS, LAYERS)]
    neurons = weights[0].nrows
    if kind == "compiles":
        os.environ["GBDNN_CACHE_DIR"] = f"{folder}/code"
    options = {"bias_rule": rule, "clip": 32, "dtype": dtype}
    net = gbdnn.Network([gbdnn.Layer(W, BIAS[kind], **options) for W in weights])
    if lazy:
        gbdnn.save(net, f"{folder}/net")
        net = gbdnn.load(f"{folder}/net", lazy=True)
    del weights
    X = scipy.sparse.random_array(
        (inputs, neurons), density=0.1, format="csr", rng=np.random.default_rng(0), dtype="f4"
    )
    X.data[:] = 1
    if features == "array":
        X = X.toarray()
    elif features in ("csc", "coo"):
        X = X.asformat(features)
    elif features != "csr":
        if features == "fp64":
            X = X.astype("f8")
        X = gb.Matrix.from_csr(X.indptr, X.indices, X.data, ncols=neurons)
        X.wait()
    memory = mib << 20
    options = {"engine": form, "compress": compress, "memory": memory, "nthreads": 2}
    if kind not in ("cold", "compiles"):
        some = (
            np.eye(200, neurons)
            if isinstance(X, np.ndarray)
            else gb.Matrix.from_coo(range(200), range(200), np.float32(1), nrows=200, ncols=neurons)
        )
        gbdnn.infer(net, some, **options)
    needed = gbdnn.memory_needed(net, inputs, density=0.1, living=1.0, memory=memory)
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what is free is not to hide what is taken
    PEAK.write_text("5")
    before, files = status("VmRSS"), status("RssFile")
    try:
        Y = gbdnn.infer(net, X, **options)
    except gbdnn.ArgumentError as error:
        return {"refused": str(error)}
    taken = status("VmHWM") - before - (status("RssFile") - files)
    is_dense = Y.ss.format.startswith(("full", "bitmap"))
    each = (1 if is_dense else 8) + Y.dtype.np_type.itemsize
    entries = Y.nrows * Y.ncols if is_dense else Y.nvals
    answer = entries * each + 8 * inputs
    weights = 0 if lazy else needed.weights
    return {
        "beyond": taken - answer - weights - (COMPILING if kind == "compiles" else 0),
        "memory": memory,
        "taken": taken,
        "needed": needed.total - needed.features + (COMPILING if kind == "compiles" else 0),
        "entries": int(Y.nvals),
    }


def run(*arguments, folder):
    """Return what a case gives in a process of its own."""
    command = [sys.executable, __file__, *map(str, arguments), str(folder)]
    found = subprocess.run(command, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout.splitlines()[-1])


def grid(form):
    """Return the cases of a form, but for the memory."""
    found = list(
        product([form], ("0", "auto"), (0, 1), ("all", "entries"), ("lives", "dies"), ("matrix",))
    )
    return [
        *found,
        (form, "0", 0, "all", "lives", "array"),
        (form, "auto", 0, "all", "half", "array"),
        *product(
            [form], ["auto"], (0, 1), ["all"], ("lives", "dies"), ("csr", "csc", "coo", "fp64")
        ),
        *product([form], ["auto"], (0, 1), ["all"], ["lives-fp64"], ("matrix", "csr", "array")),
        *product([form], ["auto"], (0, 1), ["all"], ("lives-wide", "cold-wide"), ["matrix"]),
    ]


def faults(found):
    """Return what a case did not keep to."""
    if "refused" in found:
        return [] if re.search(r"memory=\d+ at least", found["refused"]) else ["refused"]
    kept = {
        "memory": found["beyond"] <= 1.1 * found["memory"],
        "memory_needed": found["taken"] <= found["needed"],
    }
    return [name for name, is_kept in kept.items() if not is_kept]


def main(forms):
    """Run the cases of some forms: a line for each that is wrong, and a summary line."""
    count = wrong = refused = 0
    for form, mib in product(forms, (4, 16, 32, 64, 512)):
        for given in grid(form):
            with tempfile.TemporaryDirectory() as folder:
                found = run(*given, mib, folder=folder)
            count, refused = count + 1, refused + ("refused" in found)
            if faults(found):
                wrong += 1
                sys.stdout.write(f"{given} {mib} MiB: {faults(found)} {found}\n")
                sys.stdout.flush()
    sys.stdout.write(f"{count} cases, {refused} refused with the number, {wrong} wrong\n")


if __name__ == "__main__":
    if set(sys.argv[1:]) <= set(FORMS):
        main(sys.argv[1:] or FORMS)
    else:
        form, compress, lazy, rule, kind, features, mib, *folder = sys.argv[1:]
        compress = {"0": False, "1": True, "auto": "auto"}[compress]
        found = case(form, compress, lazy == "1", rule, kind, features, int(mib), *folder)
        sys.stdout.write(json.dumps(found) + "\n")
