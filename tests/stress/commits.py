"""Compare the processor time of this commit with that of an earlier one, on small cases.

    python tests/stress/commits.py            # HEAD compared with HEAD~1
    python tests/stress/commits.py v0.1.0     # or with another one

Each version runs in its own process, on one thread, and the runs are interleaved. The earlier
version runs twice, which shows the noise. Ratios below 1 mean that the later version is slower.
"""

import io
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from statistics import geometric_mean, median

ROOT, ROUNDS = Path(__file__).parents[2], 15


def cases(folder):
    """Return the functions to time, by name."""
    import numpy as np

    import gbdnn
    from gbdnn import challenge, training

    problem = challenge.generate(1024, 60, inputs=6000)
    net, X = problem.network, problem.features
    pruned = training.erdos_renyi([784, 512, 512, 10], density=0.1, seed=0)
    rng = np.random.default_rng(0)
    dense, y = rng.random((4000, 784), np.float32), rng.integers(0, 10, 4000)
    compiled = gbdnn.compile(pruned, nthreads=1)
    gbdnn.save(net, folder / "net")
    lazy = gbdnn.load(folder / "net", lazy=True)
    few, one = X[:500, :].new(), dense[:1]
    return {
        "fused": lambda: gbdnn.infer(net, X, engine="fused", deduplicate=False, nthreads=1),
        "single": lambda: [compiled(one) for _ in range(3000)],
        "dense": lambda: gbdnn.infer(pruned, dense, engine="fused", nthreads=1),
        "train": lambda: gbdnn.train(pruned, dense, y, epochs=1, nthreads=1),
        "save": lambda: gbdnn.save(net, folder / "copy", replace=True),
        "load": lambda: gbdnn.load(folder / "net"),
        "lazy": lambda: gbdnn.infer(lazy, few, nthreads=1),
    }


def serve():
    """Run the case that each line of standard input names; print the seconds of each."""
    with tempfile.TemporaryDirectory() as folder:
        functions = cases(Path(folder))
        print(*functions, flush=True)
        for line in sys.stdin:
            function, began = functions[line.strip()], time.process_time()
            function()
            print(time.process_time() - began, flush=True)


def started(commit, folder):
    """Unpack a commit into a folder, build its kernels, and start a process that serves it."""
    command = ["git", "archive", commit, "gbdnn"]
    archive = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as file:
        file.extractall(folder, filter="data")
    subprocess.run([sys.executable, "gbdnn/kernels/compiled/build.py"], cwd=folder, check=True)
    return subprocess.Popen(
        [sys.executable, __file__, "--serve"],
        env={**os.environ, "PYTHONPATH": str(folder)}, cwd=folder, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def seconds(process, case):
    process.stdin.write(f"{case}\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def main(before="HEAD~1"):
    with tempfile.TemporaryDirectory() as folder:
        commits = enumerate([before, before, "HEAD"])
        running = [started(each, Path(folder, str(n))) for n, each in commits]
        *_, names = (each.stdout.readline().split() for each in running)
        ratios = []
        for case in names:
            rounds = [[seconds(each, case) for each in running] for _ in range(ROUNDS + 2)]
            same = median(a / b for a, b, _ in rounds[2:])
            ratios.append(median(a / c for a, _, c in rounds[2:]))
            print(f"{case:8} before/after {ratios[-1]:.3f}   before/before {same:.3f}")
        print(f"geometric mean {geometric_mean(ratios):.3f}")
        for each in running:
            each.stdin.close()
            each.wait()


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["--serve"] else main(*sys.argv[1:])
