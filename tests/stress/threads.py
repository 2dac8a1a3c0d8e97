"""Let eight threads meet at one object at once: races end in crashes or wrong answers.

    python tests/stress/threads.py 200     # processes; the scenes take turns
    python tests/stress/threads.py SCENE SEED

The scenes: `first`, the first call of a process, which loads the kernels; `matrix`, infer on
matrices with pending work; `compiled`, calls of one compiled network; `store`, a store that is
replaced while it is read.
"""

import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import gbdnn

THREADS = 8


def together(work):
    """Call ``work(number)`` on all threads at the same moment; return the answers."""
    start = threading.Barrier(THREADS)

    def begin(number):
        start.wait()
        return work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(begin, range(THREADS)))


def network(rng):
    return [(rng.random((300, 300)) < 0.1) * rng.integers(-4, 5, (300, 300)) for _ in range(3)]


def oracle(layers, X):
    for W in layers:
        X = np.clip(X @ W, 0, 4)
    return X


def first(rng, folder):
    layers, X = network(rng), rng.integers(0, 3, (20, 300)).astype("f4")
    found = together(lambda _: gbdnn.infer(layers, X, clip=4, dtype="FP32", engine="fused"))
    return all(np.array_equal(Y.to_dense(fill_value=0), oracle(layers, X)) for Y in found)


def matrix(rng, folder):
    import graphblas as gb

    layers, X = network(rng), rng.integers(0, 3, (200, 300)).astype("f8")
    pending = [gb.Matrix("FP64", *each.shape) for each in (*layers, X)]
    for A, values in zip(pending, (*layers, X), strict=True):
        for i, j in np.argwhere(values).tolist():
            A[i, j] = float(values[i, j])
    *weights, features = pending
    found = together(lambda n: gbdnn.infer(weights, features, clip=4, deduplicate=bool(n % 2)))
    return all(np.array_equal(Y.to_dense(fill_value=0), oracle(layers, X)) for Y in found)


def compiled(rng, folder):
    layers, X = network(rng), rng.integers(0, 3, (200, 300)).astype("f4")
    run, expected = gbdnn.compile(layers, clip=4, dtype="FP32"), oracle(layers, X)
    rows = [rng.integers(0, 200, size) for size in (1, 2, 3, 20, 200, 1, 7, 50)]
    found = together(lambda n: [run(X[rows[n]]) for _ in range(20)][-1])
    return all(np.array_equal(Y, expected[some]) for Y, some in zip(found, rows, strict=True))


def store(rng, folder):
    gbdnn.save([gbdnn.Layer(np.eye(64))] * 2, f"{folder}/net")

    def work(number):
        if number == 0:
            gbdnn.save([gbdnn.Layer(np.eye(64) * 3)] * 2, f"{folder}/net", replace=True)
            return True
        try:
            Y = gbdnn.infer(gbdnn.load(f"{folder}/net", lazy=True), np.eye(64))
        except gbdnn.GbdnnError:  # the store was replaced after it was opened
            return True
        return set(Y.to_coo()[2].tolist()) in ({1.0}, {9.0})

    return all(together(work))


SCENES = {each.__name__: each for each in (first, matrix, compiled, store)}

if __name__ == "__main__":
    name, *seed = sys.argv[1:] or ["200"]
    if name in SCENES:
        with tempfile.TemporaryDirectory() as folder:
            right = SCENES[name](np.random.default_rng(int(seed[0])), folder)
        sys.exit(not right)
    faults = 0
    for number in range(int(name)):
        scene = [*SCENES][number % len(SCENES)]
        done = subprocess.run([sys.executable, __file__, scene, str(number)], timeout=600)
        if done.returncode:
            faults += 1
            print(f"{scene} {number}: exit code {done.returncode}", flush=True)
    print(f"{name} processes, {faults} faults")
