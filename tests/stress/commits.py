"""Compare the processor time of a commit with that of an earlier one, on small cases.

    python tests/stress/commits.py                        # HEAD compared with HEAD~1
    python tests/stress/commits.py HEAD~5 --after HEAD --case load --rounds 31

Each version runs in its own process, on one thread, and the runs are interleaved. The earlier
version runs twice, which shows the noise. Ratios below 1 mean that the later version is slower.
"""

import argparse
import io
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from statistics import geometric_mean, median

ROOT = Path(__file__).parents[2]


def cases(folder):
    """Return the functions to time, by name."""
    import numpy as np

    import gbdnn
    from gbdnn import challenge, training

    problem = challenge.generated(1024, 60, inputs=6000)
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


def serve(clock):
    """Run the case that each line of standard input names; print the seconds of each."""
    with tempfile.TemporaryDirectory() as folder:
        functions = cases(Path(folder))
        for line in sys.stdin:
            function, began = functions[line.strip()], clock()
            function()
            print(clock() - began, flush=True)


def started(commit, folder, *options):
    """Unpack a commit into a folder, build its kernels, and start a process that serves it."""
    command = ["git", "archive", commit, "gbdnn"]
    archive = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as file:
        file.extractall(folder, filter="data")
    subprocess.run([sys.executable, "gbdnn/kernels/compiled/build.py"], cwd=folder, check=True)
    return subprocess.Popen(
        [sys.executable, __file__, "--serve", *options],
        env={**os.environ, "PYTHONPATH": str(folder)}, cwd=folder, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def seconds(process, case):
    process.stdin.write(f"{case}\n")
    process.stdin.flush()
    return float(process.stdout.readline())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("before", nargs="?", default="HEAD~1")
    parser.add_argument("--after", default="HEAD")
    parser.add_argument("--case", default="fused,single,dense,train,save,load,lazy")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--wall", action="store_true", help="compare the wall time")
    parser.add_argument("--serve", action="store_true")
    given = parser.parse_args()
    if given.serve:
        sys.exit(serve(time.perf_counter if given.wall else time.process_time))
    with tempfile.TemporaryDirectory() as folder:
        commits = [given.before, given.before, given.after]
        wall = ["--wall"] * given.wall
        running = [started(each, Path(folder, str(n)), *wall) for n, each in enumerate(commits)]
        ratios = []
        for case in given.case.split(","):
            rounds = [[seconds(each, case) for each in running] for _ in range(given.rounds + 2)]
            same = median(a / b for a, b, _ in rounds[2:])
            ratio = median(a / c for a, _, c in rounds[2:])
            ratios.append(ratio)
            print(f"{case:8} before/after {ratio:.3f}   before/before {same:.3f}")
        print(f"geometric mean {geometric_mean(ratios):.3f}")
        for each in running:
            each.stdin.close()
            each.wait()
