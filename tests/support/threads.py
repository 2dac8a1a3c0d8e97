"""Eight threads at once on one object: on a matrix with pending work, a compiled network, a store.

    python tests/support/threads.py SCENE [ROUNDS]

runs one scene in this process, and prints "right". Without arguments

    python tests/support/threads.py processes 200

starts so many processes, the scenes in turn, and prints how many were not right: a crash is the end
of a process by a signal.
"""

import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

THREADS = 8


def together(work):
    """Let all threads begin at once; return what each gives."""
    start = threading.Barrier(THREADS)

    def begin(number):
        start.wait()
        return work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(begin, range(THREADS)))


def matrix(rounds):
    """`infer` and the other calls that take a matrix, on one with pending work."""
    import graphblas as gb

    import gbdnn

    rng, n = np.random.default_rng(), 400

    def pending(dtype="FP32"):
        A = gb.Matrix(dtype, n, n)
        for _ in range(2):
            rows, columns = rng.integers(0, n, (2, 5 * n))
            A << gb.Matrix.from_coo(rows, columns, 0.25, dtype=dtype, nrows=n, ncols=n)
        for _ in range(60):
            i, j, k, m = (int(x) for x in rng.integers(0, n, 4))
            A[i, j] = 0.5
            del A[k, m]
        return A

    def calls(X, W, b, folder):
        def infer(number):
            options = {"nthreads": 2, "compress": bool(number % 2)}
            return gbdnn.infer([W, W], X, bias=[b, b], **options)

        def wrong(_):
            try:
                gbdnn.infer([W], X, clip=X)
            except gbdnn.ArgumentTypeError as error:
                return "clip" in str(error)

        return [
            infer,
            lambda _: gbdnn.categories(X),
            lambda _: gbdnn.argmax(X),
            lambda number: gbdnn.save(X, f"{folder}/{number}"),
            lambda number: gbdnn.io.write_tsv(X, f"{folder}/{number}.tsv"),
            lambda _: gbdnn.Layer(W, b).edges,
            wrong,
        ]

    for at in range(rounds):
        X, W, b = pending(), pending(), gb.Vector("FP32", n)
        for i in rng.integers(0, n, 40).tolist():
            b[i] = -0.25
        if at % 4 == 3 and at % 7 != 4:  # a transpose is not written
            X = X.T
        with tempfile.TemporaryDirectory() as folder:
            call = calls(X, W, b, folder)[at % 7]
            found = together(call)
        if at % 7 == 0:
            expected = gbdnn.infer([W.dup(), W.dup()], X.dup(), bias=[b.dup(), b.dup()])
            assert expected.nvals
            assert all(Y.isequal(expected) for Y in found)
        elif at % 7 == 6:
            assert found == [True] * THREADS


def compiled(rounds):
    """Calls of one network that is ready, of one to 200 inputs."""
    import gbdnn

    rng = np.random.default_rng()
    layers = [(rng.random((300, 300)) < 0.1) * rng.integers(-4, 5, (300, 300)) for _ in range(3)]
    X = rng.integers(0, 3, (200, 300)).astype("f4")
    run = gbdnn.compile(layers, clip=4.0, dtype="FP32")
    expected = X.astype("f8")
    for W in layers:
        expected = np.clip(expected @ W, 0, 4)
    assert 0.1 < (expected > 0).mean() < 0.9

    def work(number):
        own = np.random.default_rng(number)
        for _ in range(20):
            some = own.integers(0, len(X), own.choice([1, 2, 3, 20, 200]))
            if not np.array_equal(run(X[some]), expected[some]):
                return False
        return True

    for _ in range(rounds):
        assert together(work) == [True] * THREADS


def store(rounds):
    """One store of features and one of a network, read by seven while the eighth replaces them."""
    import gbdnn

    with tempfile.TemporaryDirectory() as folder:
        net, features = Path(folder) / "net", Path(folder) / "X"

        def replace(number):
            W = np.eye(64) * (1 + 2 * (number % 2))
            gbdnn.save([gbdnn.Layer(W)] * 2, net)
            gbdnn.save(np.full((50, 64), 1.0 + number % 2), features)

        def work(number):
            for at in range(6):
                if number == 0:
                    replace(at)
                    continue
                try:
                    Y = gbdnn.infer(gbdnn.load(net, lazy=True), gbdnn.io.open_features(features))
                except gbdnn.GbdnnError:  # what was opened is no longer there
                    continue
                values = set(np.unique(Y.to_dense(fill_value=0)).tolist())
                # One of the networks, on one of the features.
                if values not in [{w * w * x} for w in (1.0, 3.0) for x in (1.0, 2.0)]:
                    return False
            return True

        replace(0)
        for _ in range(rounds):
            assert together(work) == [True] * THREADS


SCENES = {"matrix": (matrix, 42), "compiled": (compiled, 3), "store": (store, 4)}


def processes(count, scenes=None, rounds=None):
    """Run the scenes in processes of their own; return those that did not end well."""
    faults = []
    names = list(scenes or SCENES)
    for number in range(count):
        name = names[number % len(names)]
        command = [sys.executable, __file__, name, *([str(rounds)] if rounds else [])]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        if (done.returncode, done.stdout) != (0, "right\n"):
            faults.append((name, done.returncode, done.stderr[-2000:]))
        if number % 10 == 9 and scenes is None:
            sys.stdout.write(f"{number + 1} processes, {len(faults)} faults\n")
            sys.stdout.flush()
    return faults


if __name__ == "__main__":
    scene, *number = sys.argv[1:] or ["processes"]
    if scene == "processes":
        count = int(number[0]) if number else 200
        faults = processes(count)
        for fault in faults:
            sys.stdout.write(f"{fault}\n")
        sys.stdout.write(f"{count} processes, {len(faults)} faults\n")
        sys.exit(bool(faults))
    work, rounds = SCENES[scene]
    work(int(number[0]) if number else rounds)
    sys.stdout.write("right\n")
