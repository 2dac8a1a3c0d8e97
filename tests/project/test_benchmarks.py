"""Every benchmark runs, tiny, and every program in it finds the right categories."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gbdnn

pytestmark = pytest.mark.slow  # a process per program

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
# The gbdnn that is tested, installed or not.
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(gbdnn.__file__).parent.parent)}
TINY = ("--inputs", 64, "--layers", 6, "--rounds", 1)

pytest.importorskip("sklearn")
pytest.importorskip("typer")


def start(script, *options):
    (file,) = BENCHMARKS.glob(f"*/{script}")
    command = [sys.executable, str(file), *map(str, options)]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=ENVIRONMENT, timeout=300
    )


def run(script, tmp_path, *options):
    """The JSON that a benchmark writes, and what it prints."""
    file = tmp_path / "found.json"
    done = start(script, *TINY, *options, "--json", file)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(file.read_text())
    assert found["problem"]["inputs"] == 64
    assert {"machine", "versions", "environment"} <= found.keys()
    return found, done.stdout


SCRIPTS = sorted(each.name for each in BENCHMARKS.glob("*/*.py") if each.parent.name != "support")


@pytest.mark.parametrize("script", SCRIPTS)
def test_help(script):
    if script == "accelerate.py":
        pytest.importorskip("torch")
    done = start(script, "--help")
    assert done.returncode == 0, done.stderr
    assert "Usage" in done.stdout
    assert f"`{script}`" in (BENCHMARKS / "README.md").read_text()


def test_side_by_side(tmp_path):
    options = ("--nthreads", 1, "--nthreads", 2, "--slow-inputs", 48, "--batch", "16,64")
    found, printed = run("side_by_side.py", tmp_path, *options)
    assert 0 < found["categories"] < 64
    assert {run["check"] for run in found["runs"]} == {"PASSED"}
    ran = {run["program"] for run in found["runs"]}
    assert ran >= {"gbdnn", "gbdnn-distinct", "gbdnn-full", "gbdnn-sparse", "lagraph", "scipy-csr"}
    assert ran >= {"scipy-dense", "scipy-dense+drop", "scipy-csr+drop"}
    for package, names in {
        "torch": ["torch", "torch+drop"],
        "sparse_dot_mkl": ["mkl-csr", "mkl-csr+drop", "mkl-dense", "mkl-dense+drop"],
    }.items():
        for name in names:
            if importlib.util.find_spec(package) is None:
                assert name not in ran
                assert package in found["skipped"][name]
                assert f"{name}: skipped" in printed
            else:
                assert (name in ran) != (name in found["skipped"])
    inputs = {run["program"]: run["inputs"] for run in found["runs"]}
    assert inputs["gbdnn"] == inputs["lagraph"] == 64
    assert inputs["scipy-csr"] == 48
    batches = {(row["program"], row["nthreads"]): row for row in found["batches"]}
    for nthreads in 1, 2:
        assert batches["lagraph", nthreads]["batch"] in {16, 64}
        assert batches["lagraph", nthreads]["seconds"].keys() == {"16", "64"}
        best = found["strongest"][str(nthreads)]
        assert not best["program"].startswith("gbdnn")
        assert f"{best['title']}, batches of {best['batch']}" in printed
    for run_ in found["runs"]:
        chosen = batches.get((run_["program"], run_["nthreads"]), {"batch": None})
        assert run_["batch"] == chosen["batch"]
    for row in found["summary"]:
        assert row["to_default"] > 0
        assert row["program"] != "gbdnn" or row["to_default"] == 1
        assert row["program"] != "gbdnn-distinct" or row["to_distinct"] == 1


def test_an_unknown_program_is_refused():
    done = start("side_by_side.py", "--programs", "abacus")
    assert done.returncode == 2
    assert "abacus" in done.stderr


def test_thread_scaling(tmp_path):
    found, _ = run("thread_scaling.py", tmp_path, "--nthreads", "1,2")
    assert {run["check"] for run in found["runs"]} == {"PASSED"}
    assert [row["nthreads"] for row in found["summary"]] == [1, 2]
    assert {"OMP_PROC_BIND", "OMP_PLACES"} <= found["environment"].keys()


def test_floor(tmp_path):
    found, _ = run("floor.py", tmp_path, "--nthreads", "1,2", "--repeat", 1)
    assert found["check"] == "PASSED"
    assert found["living"][0] == 64
    assert 0 < found["living"][-1] < 64
    edges = found["problem"]["edges"] / found["problem"]["layers"]
    assert found["multiply_adds"] == sum(found["living"]) * edges
    ways = {(row["nthreads"], row["engine"], row["compress"]) for row in found["summary"]}
    own = {("auto", True), ("auto", False), ("fused", False), ("full", False)}
    assert ways == {(nthreads, *way) for nthreads in (1, 2) for way in own}
    for row in found["summary"]:
        for cache in "L1", "L2":
            assert row["floor_seconds"][cache] > 0
            assert 0 < row["ratio_min"][cache] <= row["ratio_median"][cache]


def test_larger(tmp_path):
    options = ("--neurons", 1024, "--engine", "fused,full", "--no-compress", "--check")
    options += ("--peers", 40, "--programs", "lagraph", "--batch", "20,40", "--nthreads", 2)
    found, printed = run("larger.py", tmp_path, *options)
    assert found["check"] == "PASSED"
    assert found["agree"]
    assert found["ratios"]["fused"] == 1
    assert found["ratios"]["full"] > 0
    assert found["peers"]["inputs"] == 40
    assert found["peers"]["strongest"]["program"] == "lagraph"
    assert "strongest peer beside 2 threads: LAGraph form" in printed
    assert found["memory_peak"] > 0


def test_real_networks(tmp_path):
    file = tmp_path / "found.json"
    options = ("--network", "30-40x2-10@20,100", "--network", "16-8@50", "--inputs", "1,40")
    options += ("--rounds", 2, "--at-least", 0.001, "--nthreads", 1, "--nthreads", 2)
    done = start("real_networks.py", *options, "--json", file)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(file.read_text())
    assert {"machine", "versions", "environment"} <= found.keys()
    ran = {"infer", "compiled", "torch", "torch_csr", "onnxruntime"} - found["skipped"].keys()
    assert ran >= {"infer", "compiled"}
    cells = [(cell["network"], cell["nthreads"], cell["inputs"]) for cell in found["cells"]]
    names = ("30-40x2-10, 20 %, last layer 100 %", "16-8, 50 %")
    assert cells == [(name, n, size) for name in names for n in (1, 2) for size in (1, 40)]
    for cell in found["cells"]:
        assert cell["check"] == "PASSED"
        assert cell["median"].keys() == ran
        assert {len(taken) for taken in cell["seconds"].values()} == {2}
        if ran > {"infer", "compiled"}:
            assert cell["times"].keys() == {"infer", "compiled"}
            assert min(cell["times"].values()) > 0
            assert "x " in done.stdout
    if "torch" in ran:
        assert [row["cells"] for row in found["groups"]["2"]] == [2, 2, 2, 2]


def test_your_model(tmp_path):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    net = gbdnn.Network([gbdnn.Layer(W) for W in np.random.default_rng(0).random((3, 8, 8), "f4")])
    gbdnn.io.write_onnx(net, tmp_path / "net.onnx")
    file = tmp_path / "found.json"
    options = ("--against", "onnxruntime", "--inputs", "1,40", "--rounds", 2, "--at-least", 0.001)
    done = start("your_model.py", tmp_path / "net.onnx", *options, "--nthreads", 1, "--json", file)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(file.read_text())
    programs = ("infer", "compiled", "onnxruntime")
    cells = [(cell["inputs"], cell["program"]) for cell in found["cells"]]
    assert cells == [(inputs, name) for inputs in (1, 40) for name in programs]
    assert all(0 < cell["p50"] <= cell["p99"] and cell["error"] < 1e-5 for cell in found["cells"])
    assert done.stdout.rstrip().endswith(found["verdict"])
    onnx.save(onnx.ModelProto(), tmp_path / "empty.onnx")
    refused = start("your_model.py", tmp_path / "empty.onnx")
    assert refused.returncode == 1
    assert "Traceback" not in refused.stderr
    assert start("your_model.py", tmp_path / "net.onnx", "--against", "abacus").returncode == 2
    nowhere = start("your_model.py", tmp_path / "net.onnx", "--python", "deepsparse=nowhere")
    assert nowhere.returncode == 2
    assert "deepsparse=nowhere is not as" in nowhere.stderr


@pytest.mark.parametrize("what", ["product", "nodes", "large"])
def test_graph(what, tmp_path):
    file = tmp_path / "found.json"
    options = ("--nodes", 500, "--scale", 9, "--edges", 2000, "--features", 8, "--rounds", 2)
    done = start("graph.py", *options, "--what", what, "--json", file)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(file.read_text())["found"]["R-MAT 8"]
    assert {len(taken) for taken in found["runs"].values()} == {2}
    assert found["seconds"]["gbdnn"] > 0
    assert (found["GiB"] is None) == (what != "large")
    assert what != "product" or found["seconds"].keys() >= {"gbdnn", "scipy", "graphblas"}
    assert what != "nodes" or found["seconds"].keys() == {"gbdnn", "gbdnn-all"}


def test_accelerate(tmp_path):
    pytest.importorskip("torch")
    file = tmp_path / "found.json"
    options = ("--zeros", 0.9, "--tokens", "2", "--rounds", 2, "--at-least", 0.001)
    done = start("accelerate.py", *options, "--model", "classifier", "--json", file)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(file.read_text())
    (cell,) = found["cells"]
    assert (cell["name"], cell["zeros"], cell["tokens"]) == ("classifier", 0.9, 2)
    ran = {"gbdnn", "pytorch", "onnxruntime"} - found["skipped"].keys()
    assert cell["median"].keys() == cell["p99"].keys() == ran >= {"gbdnn", "pytorch"}
    assert 0 < max(cell["error"].values()) < 1e-5


def test_training_steps(tmp_path):
    file = tmp_path / "found.json"
    options = ("--network", "30-40x2-10@20", "--network", "16-8@100", "--rounds", 2)
    options += ("--at-least", 0.001, "--nthreads", 1, "--nthreads", 2, "--json", file)
    done = start("training_steps.py", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(file.read_text())
    ran = {"gbdnn", "torch_mask", "torch_csr", "sparselab", "sparseprop"} - found["skipped"].keys()
    assert "gbdnn" in ran
    cells = [(cell["network"], cell["nthreads"]) for cell in found["cells"]]
    assert cells == [(name, n) for name in ("30-40x2-10, 20 %", "16-8, 100 %") for n in (1, 2)]
    for cell in found["cells"]:
        assert cell["check"] == "PASSED"
        assert cell["median"].keys() == ran
        assert cell["times"].keys() == ran - {"gbdnn"}
        assert cell["floor"] > 0


@pytest.mark.parametrize("spec", ["10-10", "10-x@5", "10-10@5,5,5", "10-10@"])
def test_what_is_no_network_is_refused(spec):
    done = start("real_networks.py", "--network", spec)
    assert done.returncode == 2
    assert "784-512x2-10@5" in done.stderr


def test_callback(tmp_path):
    file = tmp_path / "found.json"
    done = start("callback.py", "--inputs", 64, "--layers", 4, "--rounds", 2, "--json", file)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(file.read_text())["runs"]
    assert found.keys() == {"fused", "full"}
    assert all(pair["records"] >= 4 for pairs in found.values() for pair in pairs)


def test_larger_from_a_store(tmp_path):
    options = ("--neurons", 1024, "--store", tmp_path / "store", "--memory", 0.1)
    found, printed = run("larger.py", tmp_path, *options, "--check")
    assert found["check"] == "PASSED"
    assert found["streamed"]
    assert "store written" in printed
    assert found["memory_needed"]["weights"] == 0
    kept = ("--features", tmp_path / "features")
    found, printed = run("larger.py", tmp_path, *options, *kept, "--no-compress")
    assert "store written" not in printed
    made = gbdnn.io.open_features(tmp_path / "features").matrix()
    gbdnn.save(made * 0, tmp_path / "features")
    found, printed = run("larger.py", tmp_path, *options, *kept, "--no-compress")
    assert found["categories"] == 0, "the store's features are read"
    gbdnn.save(made[:2, :].new(), tmp_path / "features")
    refused = start("larger.py", *options, *kept)
    assert "holds other features" in refused.stderr


def test_constants(tmp_path):
    file = tmp_path / "found.json"
    few = ("--neurons", 128, "--layers", 1, "--inputs", 64, "--rounds", 3)
    done = start("constants.py", *few, "--json", file)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(file.read_text())
    assert list(found["constants"]) == [*("full", "fused", "dense", "product", "sparse", "entry")]
    assert found["constants"]["product"] > 0


def test_first_call(tmp_path):
    file = tmp_path / "found.json"
    done = start("first_call.py", "--rounds", 1, "--json", file)
    assert done.returncode == 0, done.stdout + done.stderr
    seconds = json.loads(file.read_text())["seconds"]
    assert all(len(each) == 1 and each[0] > 0 for each in seconds.values())


def test_fssl(tmp_path, monkeypatch):
    monkeypatch.setitem(ENVIRONMENT, "GBDNN_DATA", "")
    file = tmp_path / "found.json"
    options = ("--epochs", 4, "--fine-tuning-epochs", 2, "--seeds", 2, "--strength", "0.01,0.02")
    done = start("fssl.py", *options, "--json", file)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(file.read_text())
    assert [(row["strength"], row["seed"]) for row in found["rows"]] == [
        (0.01, 0), (0.01, 1), (0.02, 0), (0.02, 1),
    ]  # fmt: skip
    assert all(0 <= row["gone"] < 100 and row["error"] < 20 for row in found["rows"])
    assert [row["strength"] for row in found["summary"]] == [0.01, 0.02]


def test_estimators():
    done = start("estimators.py", "--seeds", 1)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()[-6:]]
    found = {(table, program): float(mean) for table, program, mean, *_ in lines}
    assert found["digits", "gbdnn"] > 0.96
    assert found["diabetes", "gbdnn"] > 0.44
    assert found["friedman1", "gbdnn"] > 0.85
    assert len(found) == 6


def test_training_accuracy(tmp_path, monkeypatch):
    monkeypatch.setitem(ENVIRONMENT, "GBDNN_DATA", "")
    file = tmp_path / "found.json"
    options = ("--epochs", 3, "--seeds", 1, "--density", "20,10", "--rules", "fixed,rigl,set")
    done = start("training_accuracy.py", *options, "--validation", "--json", file)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(file.read_text())
    cells = [(cell["density"], cell["rule"]) for cell in found["summary"]]
    assert cells == [(density, rule) for density in (20, 10) for rule in ("fixed", "rigl", "set")]
    assert all(cell["accuracy"] > 50 for cell in found["summary"])
    assert "last sixth" in found["images"]
    assert start("training_accuracy.py", "--rules", "abacus").returncode == 2
