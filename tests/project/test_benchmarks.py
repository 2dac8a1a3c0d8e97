"""Every benchmark runs on a tiny problem, and what is computed from times is right."""

import importlib
import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import pytest
from calls import raises

import gbdnn
from gbdnn.kernels import costs
from gbdnn.kernels.compiled.record import constant

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TINY = ["--inputs", 64, "--layers", 6, "--rounds", 1]
NETWORK = ["--network", "30-40x2-10@20,100", "--rounds", 2, "--at-least", 0.001]
OPTIONS = {
    "accelerate.py": [
        "--model", "classifier", "--zeros", 0.9, "--tokens", 2, "--rounds", 2, "--at-least", 0.001,
    ],
    "choices.py": ["--quick"],
    "estimators.py": ["--seeds", 1],
    "floor.py": [*TINY, "--nthreads", 2, "--repeat", 1],
    "fssl.py": ["--epochs", 4, "--fine-tuning-epochs", 2, "--seeds", 1, "--strength", 0.01],
    "graph.py": [
        "--graph", "500,2000", "--features", 8, "--rounds", 2, "--what", "product", "--what", "gcn",
        "--what", "sage",
    ],
    "graphblas_threads.py": [*TINY, "--nthreads", "1,2"],
    "python_calls.py": ["callback", "--inputs", 64, "--layers", 4, "--rounds", 2],
    "real_networks.py": [*NETWORK, "--inputs", "1,40", "--nthreads", 1],
    "side_by_side.py": [*TINY, "--nthreads", 1, "--batch", "16,64"],
    "threads.py": ["--quick", "--inputs", 64, "--threads", "1,2"],
    "training_accuracy.py": ["--epochs", 3, "--seeds", 1, "--density", 20, "--rules", "rigl"],
    "training_steps.py": [*NETWORK, "--nthreads", 1, "--inputs", "16,40"],
    "twelve.py": ["results", "--network", "1024x120", "--inputs", 64, "--check"],
    "virtual_cores.py": ["--inputs", 200, *TINY[2:], "--cores", "1,3"],
    "wide.py": ["--quick"],
}  # fmt: skip
PAPERS = {file.name: ["--quick"] for file in BENCHMARKS.glob("papers/*.py")}
RUNS = sorted((PAPERS | OPTIONS).items())
RUNS += [
    ("fssl.py", [*OPTIONS["fssl.py"], "--dense"]),
    ("reference.py", ["--quick", "--trimming"]),
    ("wang_tables4_9.py", ["--quick", "--device", "cpu"]),
    ("workers.py", ["--quick", "--balance"]),
    ("threads.py", ["--quick", "--inputs", 64, "--threads", "1,2", "--wait-policy"]),
    ("python_calls.py", ["loss", "--density", "1", "--rounds", 2]),
    ("real_networks.py", [
        "--model", "net.onnx", "--inputs", "1,40", "--nthreads", "1,2", "--programs",
        "infer,onnxruntime", "--rounds", 2, "--at-least", 0.001,
    ]),
]  # fmt: skip
# These runs need one more package.
FRAMEWORKS = {
    "accelerate.py": "torch", "mofrad_hashing.py": "mpi4py", "net.onnx": "onnxruntime",
    "--device": "torch",
}  # fmt: skip


def run(script, options, folder):
    """Run a script; return its output."""
    for package in (
        "sklearn", "typer", *(FRAMEWORKS[w] for w in (script, *options) if w in FRAMEWORKS),
    ):  # fmt: skip
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
        gbdnn.save(gbdnn.Network(layers), tmp_path / "net.onnx", "onnx")
    output = run(script, options, tmp_path)
    assert output
    assert "FAILED" not in output


def test_the_readme_names_every_script():
    scripts = [each for each in BENCHMARKS.glob("*/*.py") if each.parent.name != "support"]
    text = (BENCHMARKS / "README.md").read_text(encoding="utf-8")
    assert not [each for each in scripts if f"`{each.parent.name}/{each.name}`" not in text]


@pytest.mark.parametrize("threads", [1, 3, 8])
@pytest.mark.parametrize("engine", ["fused", "sparse", "full"])
def test_clocks_of_virtual_threads(engine, threads, monkeypatch):
    """Clocks are set to the latest one at each end of a phase; the answer has the same bits.

    Of the fused kernel, what each thread did, waited and handed over is its clock.
    """
    monkeypatch.syspath_prepend(BENCHMARKS / "scale")
    virtual_cores = importlib.import_module("virtual_cores")
    net = gbdnn.gallery.radixnet(1024, 24)
    X = gbdnn.gallery.features_from_images(gbdnn.gallery.digits()[:500], 1024)
    for deduplicate in (True, False):
        options = {"engine": engine, "deduplicate": deduplicate, "nthreads": threads}
        with virtual_cores.virtual(threads) as calls:
            Y = gbdnn.infer(net, X, **options)
        assert Y.isequal(gbdnn.infer(net, X, **options))
        clocks, spent = virtual_cores.played(np.concatenate(calls.times), threads)
        assert clocks.min() == clocks.max() > 0
        if engine == "fused":
            pieces, serial, waits = spent.sum(axis=0)
            np.testing.assert_allclose(clocks.sum(), pieces + threads * serial + waits)
            assert (waits == 0) == (threads == 1)


def test_few_inputs_are_not_divided_among_virtual_threads(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS / "scale")
    options = {"layers": 6, "inputs": ["1"], "cores": ["1"], "rounds": 1}
    main = importlib.import_module("virtual_cores").main
    raises(SystemExit, "1 inputs are too few to be divided", main, **options)


def test_caches_of_virtual_threads(monkeypatch):
    """Threads read the layers of a window from beyond a core's cache, but not from idle memory.

    Known pieces: 10 ns, 5 more where the layers are not in the cache, and 1000 where they are idle.
    """
    monkeypatch.syspath_prepend(BENCHMARKS / "scale")
    virtual_cores = importlib.import_module("virtual_cores")
    phases, state = [(0, 4), (1, 2), (0, 3)], {"idle": True, "cached": False}

    def memory(**after):
        array = MagicMock()
        array.max = array.reshape().__getitem__().max = lambda: state.update(after)
        return array

    def play(record, first, last, ns):
        for n in [n for thread in range(first, last) for n in range(thread, len(ns), 2)]:
            windows = record.first.phase == 0
            ns[n] = 10 + windows * (5 * (not state["cached"]) + 1000 * state["idle"])
            state["cached"] |= windows
        if first == 2:
            ns[0], state["idle"] = 3, True
            record.first.phase, record.first.piece_count = phases.pop(0) if phases else (0, 0)
        return constant("RUNNING" if record.first.piece_count else "COMPLETE")

    record, layer = MagicMock(), MagicMock(kept={"rows": memory(idle=False, cached=True)})
    record.kept["plan"].kept["table"].kept.__getitem__.return_value = [layer]
    monkeypatch.setattr(virtual_cores, "required", lambda _: MagicMock(run_virtual=play))
    monkeypatch.setattr(np, "ones", lambda _: memory(cached=False))
    calls = virtual_cores.Calls()
    assert calls.run(record, 2, np.dtype("f4"), int) == constant("COMPLETE")
    window, find = [(0, 15), (0, 15), (0, 10), (0, 10), (-7, 3)], [(1, 10), (1, 10), (-6, 3)]
    expected = [*window, *find, *window[:3], (-7, 3)]
    assert np.concatenate(calls.times).tolist() == [list(pair) for pair in expected]


def test_the_clocks_of_known_pieces(monkeypatch):
    """Two threads: 5, and 2 and 2; then a piece on one. A phase costs SHARE and serial parts."""
    monkeypatch.syspath_prepend(BENCHMARKS / "scale")
    virtual_cores = importlib.import_module("virtual_cores")
    times = np.array([(0, 5), (0, 2), (0, 2), (-7, 3), (4, 6), (-3, 0)])
    clocks, spent = virtual_cores.played(times, 2)
    assert clocks.tolist() == [5 + 3 + 6 + 2 * costs.SHARE] * 2
    assert spent[0].tolist() == [9, 3 + costs.SHARE, 1]
    assert spent[4].tolist() == [6, costs.SHARE, 6]
