"""Every benchmark runs on a tiny problem, and what is computed from times is right."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import graphblas as gb
import numpy as np
import pytest

import gbdnn

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TINY = ["--inputs", 64, "--layers", 6, "--rounds", 1]
NETWORK = ["--network", "30-40x2-10@20,100", "--rounds", 2, "--at-least", 0.001]
OPTIONS = {
    "accelerate.py": [
        "--model", "classifier", "--zeros", 0.9, "--tokens", 2, "--rounds", 2, "--at-least", 0.001,
    ],
    "choices.py": ["--quick"],
    "estimators.py": ["--seeds", 1],
    "first_answer.py": ["--rounds", 1],
    "floor.py": [*TINY, "--nthreads", 2, "--repeat", 1],
    "fssl.py": [
        "--epochs", 4, "--fine-tuning-epochs", 2, "--seeds", 1, "--strength", 0.01,
    ],
    "graph.py": [
        "--graph", "500,2000", "--features", 8, "--rounds", 2, "--what", "product", "--what", "gcn",
        "--what", "sage", "--what", "nodes",
    ],
    "larger.py": [*TINY, "--neurons", 1024, "--engine", "fused,full", "--check"],
    "python_calls.py": ["callback", "--inputs", 64, "--layers", 4, "--rounds", 2],
    "sparse_linear.py": ["--quick"],
    "real_networks.py": [*NETWORK, "--inputs", "1,40", "--nthreads", 1],
    "side_by_side.py": [*TINY, "--nthreads", 1, "--slow-inputs", 48, "--batch", "16,64"],
    "threads.py": ["--quick", "--inputs", 64, "--threads", "1,2"],
    "training_accuracy.py": ["--epochs", 3, "--seeds", 1, "--density", 20, "--rules", "rigl,set"],
    "training_steps.py": [*NETWORK, "--nthreads", 1],
    "wait_policy.py": ["--quick"],
    "wide.py": ["--quick"],
}  # fmt: skip
PAPERS = {file.name: ["--quick"] for file in BENCHMARKS.glob("papers/*.py")}
RUNS = sorted((PAPERS | OPTIONS).items())
RUNS += [
    ("fssl.py", [*OPTIONS["fssl.py"], "--dense"]),
    ("python_calls.py", ["loss", "--density", "1", "--rounds", 2]),
    ("real_networks.py", [
        "--model", "net.onnx", "--inputs", "1,40", "--nthreads", "1,2", "--programs",
        "infer,onnxruntime", "--rounds", 2, "--at-least", 0.001,
    ]),
]  # fmt: skip
# These runs need one more package.
FRAMEWORKS = {
    "accelerate.py": "torch", "first_answer.py": "onnxruntime", "mofrad_hashing.py": "mpi4py",
    "net.onnx": "onnxruntime", "sattar": "torch", "sparse_linear.py": "torch",
}  # fmt: skip
PARTS = [
    "few-inputs", "graph", "replay", "replay-65536", "sattar", "tests", "threads-1024", "wang",
    "wide",
]  # fmt: skip


def run(script, options, folder):
    """Run a script; return its output."""
    for package in (
        "sklearn",
        "typer",
        *(FRAMEWORKS[w] for w in (script, *options) if w in FRAMEWORKS),
    ):
        pytest.importorskip(package)
    (file,) = BENCHMARKS.glob(f"*/{script}")
    # The gbdnn that is tested, installed or not; digits, not MNIST.
    environment = {"PYTHONPATH": str(Path(gbdnn.__file__).parents[1]), "GBDNN_DATA": ""}
    done = subprocess.run(
        [sys.executable, str(file), *map(str, options)], cwd=folder,
        env=os.environ | environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("script", "options"), RUNS, ids=[script for script, _ in RUNS])
def test_a_tiny_problem(script, options, tmp_path):
    if "net.onnx" in options:
        layers = [gbdnn.Layer(W) for W in np.random.default_rng(0).random((3, 8, 8), "f4")]
        gbdnn.io.write_onnx(gbdnn.Network(layers), tmp_path / "net.onnx")
    output = run(script, options, tmp_path)
    assert output
    assert "FAILED" not in output


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_a_part_prints_one_document(part, tmp_path):
    found = json.loads(run("many_cores.py", [part, "--quick"], tmp_path))
    assert found["exit_code"] == 0
    assert found["machine"]["cores"]
    assert found["commit"]
    assert found["command"].startswith("python ")
    assert (part == "tests") == (found["results"] is None)
    if part != "tests":
        assert found["results"]["commit"] == found["commit"]


def test_the_parts_in_order(script):
    """The page names every part; no part is expected to take more than nine minutes."""
    many_cores = script("many_cores")
    text = (BENCHMARKS / "README.md").read_text(encoding="utf-8")
    for name, part in many_cores.PARTS.items():
        assert f"`{name}`" in text
        assert part.minutes <= 9
        assert "{" not in many_cores.command(part, False) + many_cores.command(part, True)
    assert {*PARTS} < {*many_cores.PARTS}


@pytest.fixture
def script():
    """Import a script, or a module of `support`."""
    for package in ("scipy", "typer"):
        pytest.importorskip(package)
    before, path = set(sys.modules), list(sys.path)
    sys.path[:0] = map(str, [*BENCHMARKS.glob("*/")])
    yield importlib.import_module
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(BENCHMARKS)):
            del sys.modules[name]


def measured(batch, *, workers=2, inputs=640, own=0.0):
    """Return times of batches, as `batches.measure` does: `batch(first, last, depth)` seconds.

    One input in ten is alive at the end, and has four entries; an input has 100 bytes.
    """
    runs = {}
    parts = (64, 16, 4, 1) if workers == 1 else (64, 16, 4)
    cases = {f"{which}, {n}": n for which in ("given", "hashed", "half") for n in parts}
    for name, n in (cases | {"static": workers, "hashed": workers, "dynamic": 4 * workers}).items():
        ends = np.linspace(0, inputs, n + 1).astype(int)
        pairs = list(zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True))
        seconds = [batch(*pair, 60 if name.startswith("half") else 120) for pair in pairs]
        free = [0.0] * workers
        for taken in seconds:
            free[free.index(min(free))] += taken
        sizes = [last - first for first, last in pairs]
        runs[name] = {
            "inputs": sizes, "alive": [size / 10 for size in sizes],
            "entries": [4 * size / 10 for size in sizes], "bytes": [100 * size for size in sizes],
            "seconds": seconds, "wall": max(free) + own,
        }  # fmt: skip
    found = {"neurons": 1024, "layers": 120, "edges": 32 * 1024 * 120, "inputs": inputs}
    return found | {"workers": workers, "threads": 1, "check": "PASSED", "runs": runs}


def linear(first, last, depth):
    """A time per batch and layer, and per input and layer."""
    return (0.002 + 0.0001 * (last - first)) * depth


def skewed(first, last, depth):
    """The last half of the inputs takes three times as long."""
    return 1e-3 * depth * (last - first + 2 * (max(last, 320) - max(first, 320)))


def test_machines_play_batches(script):
    """The next batch goes to the machine that is free first; links are used one after the other."""
    play = script("replay").play
    zero = np.zeros(3)
    last, busy = play(np.array([3.0, 1.0, 1.0]), zero, zero, 2)
    assert (last, sorted(busy)) == (3.0, [2.0, 3.0])
    assert play(np.array([3.0, 1.0, 1.0]), zero, zero, 1)[0] == 5.0
    # Features of 10 bytes at 10 bytes/s, and 0.5 s of latency, arrive after 1.5, 3.0 and 4.5 s.
    assert play(np.ones(3), np.full(3, 10.0), zero, 3, 10.0, 0.5)[0] == 5.5
    # Answers, complete at the same time, arrive one after the other.
    assert play(np.ones(3), zero, np.full(3, 20.0), 3, 10.0)[0] == 7.0


@pytest.mark.parametrize("machines", [1, 2, 3, 5, 64, 300])
@pytest.mark.parametrize("kind", ["static", "hashed", "dynamic"])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_linear_machine_is_simulated_exactly(script, kind, machines, workers):
    """Even with smaller batches, more inputs and more layers than those that were measured."""
    replay = script("replay")
    found = measured(linear, workers=workers)
    row = replay.simulated(found, kind, machines, 640, 120, np.inf, 0.0)
    count = min(640, machines * (4 if kind == "dynamic" else 1))
    sizes = np.diff(np.linspace(0, 640, count + 1))
    largest = linear(0, sizes[0], 120) * -(-count // machines)
    if count >= 4:  # exact for the sizes that were measured and below, between them nearly
        exact = count >= 64 or count in (4, 16)
        np.testing.assert_allclose(row["seconds"], largest, rtol=1e-9 if exact else 0.1)
    costs = replay.costs(found, "given", np.linspace(0, 1280, 129), 1920)
    np.testing.assert_allclose(costs[0], linear(0, 10, 1920), rtol=1e-9)
    assert sum(map(np.sum, costs[1:])) == pytest.approx(100 * 1280)
    deep = replay.simulated(found, kind, machines, 640, 1920, np.inf, 0.0)
    assert deep["seconds"] == pytest.approx(16 * row["seconds"])


def test_imbalance_is_simulated(script):
    """Static batches are as uneven as the inputs; dynamic ones less, hashed ones not at all."""
    replay = script("replay")
    found = measured(skewed)
    for part in (64, 16, 4):  # the hashed parts are all alike
        times = found["runs"][f"hashed, {part}"]["seconds"]
        found["runs"][f"hashed, {part}"]["seconds"] = [np.mean(times)] * part
    uneven = {
        kind: replay.simulated(found, kind, 2, 640, 120, np.inf, 0.0)["max / mean"]
        for kind in ("static", "dynamic", "hashed")
    }
    assert uneven["static"] == pytest.approx(1.5)
    assert uneven["hashed"] == pytest.approx(1.0)
    assert 1 <= uneven["dynamic"] < 1.1


def test_links_limit_machines(script):
    replay = script("replay")
    found = measured(linear)
    fast, slow = (
        replay.simulated(found, "static", 64, 640, 120, rate, 0.0) for rate in (np.inf, 1e4)
    )
    assert slow["seconds"] == fast["seconds"]
    assert slow["with features and answers, s"] > 0.9 * 640 * 100 / 1e4
    assert slow["efficiency"] < fast["efficiency"] <= 1
    assert slow["broadcast, s"] == pytest.approx(4 * found["edges"] / 1e4)


@pytest.mark.parametrize("times", [linear, skewed])
def test_measured_and_simulated_workers_agree(script, times):
    """The caller's own time is found in the runs with 64, 16 and 4 parts."""
    rows = script("replay").agreement(measured(times, own=0.3))
    assert [row["program"] for row in rows] == [
        f"gbdnn, {kind} batches" for kind in ("static", "hashed", "dynamic")
    ]
    for row in rows:
        assert row["simulated / measured"] == pytest.approx(1, abs=0.1)
    assert not script("replay").agreement(measured(times, workers=1))


def test_gains_of_threads(script):
    """Ratios of the same round, as geometric means over networks, by inputs and pause."""
    cells = [
        {"network": network, "inputs": 1, "apart": apart, "nthreads": n,
         "seconds": {"infer": [seconds, 2 * seconds], "torch": [1.0, 1.0]}}
        for network, apart, n, seconds in (
            ("a", 0, 1, 1.0), ("a", 0, 4, 0.5), ("b", 0, 1, 1.0), ("b", 0, 4, 2.0),
            ("a", 2, 1, 1.0), ("a", 2, 4, 1.0),
        )
    ]  # fmt: skip
    gains = script("real_networks").gains
    row = {"program": "infer", "inputs": 1, "nthreads": 4}
    assert gains(cells, [1, 4]) == [
        row | {"apart": 0, "mean": 1.0, "least": 0.5},
        row | {"apart": 2, "mean": 1.0, "least": 1.0},
    ]
    assert not gains([cell for cell in cells if cell["nthreads"] == 1], [1])


def test_the_sparse_kernel_has_the_bits_of_lagraphs_loop(script):
    """On weights and features that round, with a bias for all neurons or for each."""
    lagraph, rng = script("lagraph"), np.random.default_rng(0)
    X = gb.Matrix.from_dense(rng.random((60, 1024), "f4"))
    W = [rng.random((1024, 1024), "f4") * (rng.random((1024, 1024)) < 0.02) for _ in range(3)]
    for bias in (-0.3, rng.uniform(-0.3, -0.1, 1024)):
        net = gbdnn.Network([gbdnn.Layer(each, bias, clip=32) for each in W])
        found = gbdnn.infer(net, X, engine="sparse")
        assert found.nvals
        assert found.isequal(lagraph.infer(lagraph.prepare(net), X))


@pytest.mark.parametrize("drop", [False, True])
def test_array_programs_find_the_categories(script, drop):
    """What runs on the GPU through CuPy and PyTorch, on the CPU."""
    peers, problems = script("peers"), script("problems")
    problem = problems.Choice(1024, 6, 200).build()
    truth, _ = problems.true_categories(problem)
    programs = [peers.dense(problem, drop), peers.sparse(problem, drop)]
    if importlib.util.find_spec("torch"):
        programs += [peers.torch_dense(problem, drop, "cpu", csr) for csr in (False, True)]
    for ready in programs:
        for batch in (64, 200):
            np.testing.assert_array_equal(ready(1, batch, 200)(), truth)


def test_the_readme_names_every_script():
    scripts = [each for each in BENCHMARKS.glob("*/*.py") if each.parent.name != "support"]
    text = (BENCHMARKS / "README.md").read_text(encoding="utf-8")
    assert not [each for each in scripts if f"`{each.parent.name}/{each.name}`" not in text]
