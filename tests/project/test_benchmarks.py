"""Every benchmark runs on a tiny problem."""

import os
import subprocess
import sys
from pathlib import Path

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
    "callback.py": ["--inputs", 64, "--layers", 4, "--rounds", 2],
    "constants.py": ["--neurons", 128, "--layers", 1, "--inputs", 64, "--rounds", 3],
    "estimators.py": ["--seeds", 1],
    "first_call.py": ["--rounds", 1],
    "floor.py": [*TINY, "--nthreads", 2, "--repeat", 1],
    "fssl.py": [
        "--epochs", 4, "--fine-tuning-epochs", 2, "--seeds", 1, "--strength", 0.01,
    ],
    "graph.py": [
        "--graph", "500,2000", "--features", 8, "--rounds", 2, "--what", "product", "--what", "gcn",
        "--what", "sage", "--what", "nodes",
    ],
    "larger.py": [*TINY, "--neurons", 1024, "--engine", "fused,full", "--check"],
    "real_networks.py": [*NETWORK, "--inputs", "1,40", "--nthreads", 1],
    "side_by_side.py": [*TINY, "--nthreads", 1, "--slow-inputs", 48, "--batch", "16,64"],
    "threads.py": ["--quick", "--inputs", 64, "--threads", "1,2"],
    "training_accuracy.py": ["--epochs", 3, "--seeds", 1, "--density", 20, "--rules", "rigl,set"],
    "training_steps.py": [*NETWORK, "--nthreads", 1],
    "wait_policy.py": ["--quick"],
    "your_model.py": [
        "net.onnx", "--against", "onnxruntime", "--inputs", "1,40", "--rounds", 2,
        "--at-least", 0.001,
    ],
}  # fmt: skip
PAPERS = {file.name: ["--quick"] for file in BENCHMARKS.glob("papers/*.py")}
OPTIONS = dict(sorted((PAPERS | OPTIONS).items()))
# These scripts need one more package.
FRAMEWORKS = {
    "accelerate.py": "torch",
    "mofrad_hashing.py": "mpi4py",
    "your_model.py": "onnxruntime",
}


@pytest.mark.slow
@pytest.mark.parametrize("script", OPTIONS)
def test_a_tiny_problem(script, tmp_path):
    for package in ("sklearn", "typer", *FRAMEWORKS.get(script, "").split()):
        pytest.importorskip(package)
    if script == "your_model.py":
        layers = [gbdnn.Layer(W) for W in np.random.default_rng(0).random((3, 8, 8), "f4")]
        gbdnn.io.write_onnx(gbdnn.Network(layers), tmp_path / "net.onnx")
    (file,) = BENCHMARKS.glob(f"*/{script}")
    # The gbdnn that is tested, installed or not; digits, not MNIST.
    environment = {"PYTHONPATH": str(Path(gbdnn.__file__).parents[1]), "GBDNN_DATA": ""}
    done = subprocess.run(
        [sys.executable, str(file), *map(str, OPTIONS[script])], cwd=tmp_path,
        env=os.environ | environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout
    assert "FAILED" not in done.stdout


def test_the_readme_names_every_script():
    scripts = {each.name for each in BENCHMARKS.glob("*/*.py") if each.parent.name != "support"}
    text = (BENCHMARKS / "README.md").read_text(encoding="utf-8")
    assert not [name for name in scripts if f"`{name}`" not in text]
