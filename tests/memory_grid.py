"""What a run takes at most, against what `memory=` and `memory_needed` promise.

    python tests/memory_grid.py FORM COMPRESS LAZY RULE KIND FEATURES MIB FOLDER

prints one case: the peak of this process, beside what it held before the run.

    python tests/memory_grid.py [FORM ...]

runs the cases of all forms, or of these, each in a process of its own, and prints a summary line.
"""

import ctypes
import gc
import json
import pathlib
import re
import subprocess
import sys
import tempfile
from itertools import product

import numpy as np

NEURONS, LAYERS = 1024, 12
FORMS, KINDS = ("auto", "sparse", "full", "fused"), ("lives", "half", "dies")
BIAS = {"lives": 0.02, "half": -0.1, "dies": -0.3}
PEAK = pathlib.Path("/proc/self/clear_refs")


def status(name):
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))


def case(form, compress, lazy, rule, kind, features, mib, folder=None, inputs=8_000):
    """Return what a run took beyond what the process held, and what was promised."""
    import graphblas as gb
    import scipy.sparse

    import gbdnn

    base = gbdnn.radixnet(NEURONS, LAYERS)
    layers = [gbdnn.Layer(each.W, BIAS[kind], bias_rule=rule, clip=32) for each in base]
    net = gbdnn.Network(layers)
    if lazy:
        gbdnn.save(net, f"{folder}/net")
        net = gbdnn.load(f"{folder}/net")
    del base, layers
    X = scipy.sparse.random_array(
        (inputs, NEURONS), density=0.1, format="csr", rng=np.random.default_rng(0), dtype="f4"
    )
    X.data[:] = 1
    if features == "array":
        X = X.toarray()
    else:
        X = gb.Matrix.from_csr(X.indptr, X.indices, X.data, ncols=NEURONS)
        X.wait()
    memory = mib << 20
    options = {"engine": form, "compress": compress, "memory": memory, "nthreads": 2}
    some = X[:200] if features == "array" else X[:200, :].new()
    gbdnn.infer(net, some, **options)
    needed = gbdnn.memory_needed(net, inputs, density=0.1, living=1.0, memory=memory)
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what is free is not to hide what is taken
    PEAK.write_text("5")
    before = status("VmRSS")
    try:
        Y = gbdnn.infer(net, X, **options)
    except gbdnn.ArgumentError as error:
        return {"refused": str(error)}
    taken = status("VmHWM") - before
    each = 5 if Y.ss.format.startswith(("full", "bitmap")) else 12
    entries = Y.nrows * Y.ncols if each == 5 else Y.nvals
    answer = entries * each + 8 * inputs
    weights = 0 if lazy else needed.weights
    return {
        "beyond": taken - answer - weights,
        "memory": memory,
        "taken": taken,
        "needed": needed.total - needed.features,
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
