"""Challenge problems, in Python."""

import gzip
import shutil

import graphblas as gb
import numpy as np
import pytest
from calls import raises
from conftest import network
from oracles import Dense, dense_inference

import gbdnn
from gbdnn import challenge
from gbdnn.challenge.problems import training_images
from gbdnn.challenge.scipy_check import scipy_categories
from gbdnn.errors import ArgumentError, FormatError, MissingFileError
from gbdnn.io import write_categories, write_features


@pytest.fixture(scope="module")
def problem():
    return challenge.generate(1024, 12, inputs=300, seed=2)


@pytest.fixture(scope="module")
def truth(problem):
    """The categories of the dense oracle."""
    layers = [
        Dense(layer.weights.to_dense(fill_value=0), layer.bias, "entries", "relu", layer.clip)
        for layer in problem.network
    ]
    Y = dense_inference(layers, problem.features.to_dense(fill_value=0))
    return np.flatnonzero(Y.any(axis=1))


@pytest.fixture(scope="module")
def written(problem, truth, tmp_path_factory):
    """The problem in the official layout."""
    root = tmp_path_factory.mktemp("written")
    gbdnn.save(problem.network, root / "DNN" / "neuron1024", "tsv")
    (root / "MNIST").mkdir()
    write_features(problem.features, root / "MNIST" / "sparse-images-1024.tsv")
    write_categories(truth, root / "DNN" / "neuron1024-l12-categories.tsv")
    return root


@pytest.fixture
def files(written, tmp_path):
    """A copy of these files, to be changed."""
    return shutil.copytree(written, tmp_path, dirs_exist_ok=True)


def test_generated_passes_against_scipy_and_the_dense_oracle(problem, truth):
    outcome = challenge.run(problem, repeat=2)
    assert (outcome.check, len(outcome.seconds)) == ("PASSED", 2)
    assert outcome.first_seconds not in outcome.seconds
    assert 0 < len(truth) < 300
    np.testing.assert_array_equal(outcome.categories, truth)
    np.testing.assert_array_equal(outcome.truth, truth)


def test_the_first_run_counts_only_if_it_is_the_only_one(problem, monkeypatch):
    """It includes the preparation of the network."""
    ticks = iter([0, 5, 5, 6, 6, 8, 8, 12, 12, 15, 15, 15])  # begin and end of each call
    monkeypatch.setattr(challenge.outcome, "perf_counter", lambda: next(ticks))
    outcome = challenge.run(problem, check=False)
    assert (outcome.first_seconds, outcome.seconds, outcome.seconds_median) == (5, [1, 2, 4], 2)
    outcome = challenge.run(problem, check=False, repeat=0)
    assert (outcome.first_seconds, outcome.seconds) == (3, [3])
    told = outcome.as_json()
    assert (told["first_seconds"], told["seconds_median"]) == (3, 3)


def test_problems_and_outcomes_are_shown_in_a_line(problem):
    """With pandas 3, a Matrix of python-graphblas cannot be shown."""
    pytest.importorskip("pandas")
    assert repr(problem) == f"Problem({problem.name})"
    assert str(problem).startswith("Problem(1024 neurons x 12 layers, generated (seed 2), on 300")
    outcome = challenge.run(problem)
    assert repr(outcome) == f"Outcome({problem.name}: PASSED, {outcome.edge_rate:.3g} edges/s)"


def test_the_first_inputs_of_the_official_layout(files, problem, truth):
    read = challenge.load(files, 1024, 12, inputs=150)
    assert read.network.isequal(problem.network)
    assert read.features.isequal(problem.features[:150, :].new())
    np.testing.assert_array_equal(read.truth, truth[truth < 150])
    assert challenge.run(read).check == "PASSED"


def test_a_wrong_truth_fails(files, truth):
    path = files / "DNN" / "neuron1024-l12-categories.tsv"
    write_categories(truth[1:], path, replace=True)
    outcome = challenge.run(challenge.load(files, 1024, 12))
    assert (outcome.check, outcome.checked_against) == ("FAILED", "the given categories")
    assert (outcome.missing.tolist(), outcome.unexpected.tolist()) == ([], truth[:1].tolist())
    assert outcome.as_json()["unexpected"] == [truth[0] + 1]
    write_categories(np.union1d(truth, [299]), path, replace=True)
    assert challenge.run(challenge.load(files, 1024, 12)).missing.tolist() == [299]
    assert challenge.run(challenge.load(files, 1024, 12), check=False).check == "NOT CHECKED"


def test_truth_past_the_images(files):
    write_categories([3, 300], files / "DNN" / "neuron1024-l12-categories.tsv", replace=True)
    raises(FormatError, "lists input 301, but only 300 images", challenge.load, files, 1024, 12)


def test_more_inputs_than_official_images(files):
    with pytest.raises(ValueError, match=r"images-1024.tsv: inputs must be at most 300, not 400"):
        challenge.load(files, 1024, 12, inputs=400)


def test_a_layer_cut_off_at_a_line(files):
    layer = files / "DNN" / "neuron1024" / "n1024-l5.tsv"
    layer.write_text("".join(layer.read_text().splitlines(keepends=True)[:-100]))
    with pytest.raises(FormatError, match=r"n1024-l5.tsv has 32668 edges.*32768.*truncated"):
        challenge.load(files, 1024, 12)


def test_outcome_as_json(problem):
    import json

    outcome = challenge.run(problem, nthreads=1)
    told = json.loads(json.dumps(outcome.as_json()))
    assert (told["problem"]["edges"], told["problem"]["inputs"]) == (12 * 32768, 300)
    assert told["nthreads"] == 1
    assert told["categories"] == (outcome.categories + 1).tolist()
    assert told["edges_per_second"] == pytest.approx(300 * 12 * 32768 / told["seconds_median"])
    assert told["check"] == "PASSED"
    assert {"processor", "cores"} <= told["machine"].keys()
    assert "SuiteSparse:GraphBLAS" in told["versions"]


def test_official_data(official):
    problem = challenge.load(official)
    outcome = challenge.run(problem)
    assert (outcome.check, outcome.checked_against) == ("PASSED", "the given categories")
    assert len(outcome.categories) == 19
    found = scipy_categories(problem.network, problem.features)
    np.testing.assert_array_equal(found, problem.truth)


def borderline_problem(weight, clip=32.0):
    """Inputs 0 and 3 end at some 1e-8 beside zero, 1 well above it, 2 below: one layer, FP32."""
    W = np.full((3, 1), weight, np.float32)
    net = gbdnn.Network([gbdnn.Layer(W, -0.3, bias_rule="entries", clip=clip)])
    # 0.1 + 0.1 + 0.1 - 0.3 in FP32 depends on how it is summed
    X = np.array([[1, 1, 1], [2, 2, 2], [1, 1, 0], [1, 2, 0]], np.float32)
    return net, gb.Matrix.from_dense(X, missing_value=0)


def test_what_rounding_decides():
    from gbdnn.challenge.scipy_check import left_to_rounding

    net, X = borderline_problem(np.float32(0.1))
    assert left_to_rounding(net, X).tolist() == [True, False, False, True]
    net, X = borderline_problem(np.float32(0.1001))  # a part in a thousand away: nothing is left
    assert left_to_rounding(net, X).tolist() == [False, False, False, False]
    # A second layer doubles what is left; only its inputs near the border are still undecided.
    twice = gbdnn.Layer(np.array([[2.0]], "f4"), -0.5, bias_rule="entries", clip=32.0)
    net = gbdnn.Network([*borderline_problem(np.float32(0.1))[0], twice])
    assert left_to_rounding(net, X).tolist() == [False, False, False, False]


@pytest.mark.parametrize(
    ("found", "check", "border"),
    [
        ([0, 1], "PASSED", [0]), ([0, 1, 3], "PASSED", [0, 3]), ([1], "PASSED", []),
        ([0, 1, 2], "FAILED", [0]), ([0], "FAILED", [0]),
    ],
)  # fmt: skip
def test_inputs_that_rounding_decides_fail_no_check(found, check, border, monkeypatch):
    net, X = borderline_problem(np.float32(0.1))
    problem = challenge.Problem(name="few", network=net, features=X, truth=np.array([1]))
    Y = gb.Matrix.from_coo(found, [0] * len(found), 1.0, nrows=4, ncols=1)
    monkeypatch.setattr(challenge.outcome, "infer", lambda *_, **__: Y)
    outcome = challenge.run(problem)
    assert (outcome.check, outcome.borderline.tolist()) == (check, border)
    assert outcome.as_json()["borderline"] == [k + 1 for k in border]
    monkeypatch.setattr(challenge.outcome, "_FEW", 0)
    assert len(challenge.run(problem).borderline) == 0  # too many differ to look


def test_scipy_clips_as_the_network_does():
    # Input 0 passes 11.5 on, clipped to 2: not enough for the second layer's bias.
    W = np.array([[3.0, 0.0], [1.0, 1.0]])
    layers = [Dense(W, -0.5, "entries", clip=2.0), Dense(np.eye(2), -2.25, "entries", clip=2.0)]
    X = np.array([[4.0, 0.0], [0.0, 1.0]])
    unclipped = [Dense(layer.W, layer.b, "entries") for layer in layers]
    for those in (layers, unclipped):
        truth = np.flatnonzero(dense_inference(those, X).any(axis=1))
        found = scipy_categories(network(those), gb.Matrix.from_dense(X, missing_value=0))
        np.testing.assert_array_equal(found, truth)
        assert truth.tolist() == ([] if those is layers else [0])


def test_the_truth_is_not_looked_for_unless_wanted(files):
    (files / "DNN" / "neuron1024-l12-categories.tsv").unlink()
    assert challenge.load(files, 1024, 12, truth=False).truth is None
    raises(MissingFileError, r"no categories.*pass truth=False", challenge.load, files, 1024, 12)


def test_errors_about_images_name_the_file(tmp_path):
    file = tmp_path / "blank.idx"
    file.write_bytes(bytes([0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 2]) + bytes(4))
    with pytest.raises(ArgumentError, match=r"blank.idx: images must have a positive pixel"):
        challenge.generate(1024, 1, images=file)


def test_training_images_in_a_folder(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (5, 28, 28)).astype(np.uint8)
    header = bytes([0, 0, 8, 3, 0, 0, 0, 5, 0, 0, 0, 28, 0, 0, 0, 28])
    assert training_images(tmp_path) is None
    folder = tmp_path / "mnist"
    folder.mkdir()
    file = folder / "train-images-idx3-ubyte.gz"
    file.write_bytes(gzip.compress(header + pixels.tobytes()))
    assert training_images(tmp_path) == training_images(folder) == file
    problem = challenge.generate(1024, 1, images=folder)
    assert problem.inputs == 5
    assert f"({file.name})" in problem.name  # without its folder
    assert problem.features.isequal(gbdnn.gallery.features_from_images(pixels))
    assert 0 < problem.features.nvals < 5 * 1024


def test_deduplicate_is_that_of_infer():
    """With few inputs, "auto" does not look for equal ones."""
    problem = challenge.generate(1024, 12, inputs=40)
    options = {"repeat": 0, "check": False, "engine": "fused"}
    processed = {
        each: challenge.run(problem, deduplicate=each, **options).processed
        for each in (False, "auto", True)
    }
    assert processed[False] == processed["auto"] > processed[True]
