"""Challenge problems, in Python."""

import numpy as np
import pytest
from oracles import Dense, dense_inference

import gbdnn
from gbdnn import challenge
from gbdnn.io import write_categories, write_network, write_tsv


@pytest.fixture(scope="module")
def problem():
    return challenge.generated(1024, 12, inputs=300, seed=2)


def dense_categories(problem):
    layers = [
        Dense(layer.weights.to_dense(fill_value=0), layer.bias, "entries", "relu", layer.clip)
        for layer in problem.network
    ]
    Y = dense_inference(layers, problem.features.to_dense(fill_value=0))
    return np.flatnonzero(Y.any(axis=1))


@pytest.fixture
def files(problem, tmp_path):
    """The problem in the official layout."""
    write_network(problem.network, tmp_path / "DNN" / "neuron1024")
    (tmp_path / "MNIST").mkdir()
    write_tsv(problem.features, tmp_path / "MNIST" / "sparse-images-1024.tsv")
    truth = dense_categories(problem)
    write_categories(truth, tmp_path / "DNN" / "neuron1024-l12-categories.tsv")
    return tmp_path


def test_generated_passes_against_scipy_and_the_dense_oracle(problem):
    outcome = challenge.run(problem, repeat=2)
    assert outcome.check == "PASSED"
    assert len(outcome.seconds) == 2
    truth = dense_categories(problem)
    assert 0 < len(truth) < 300
    np.testing.assert_array_equal(outcome.categories, truth)
    np.testing.assert_array_equal(outcome.truth, truth)


def test_scipy_check_is_the_same_in_blocks(problem, monkeypatch):
    whole = challenge.scipy_categories(problem.network, problem.features)
    monkeypatch.setattr(challenge, "_BLOCK_ENTRIES", 5000)
    seen = []
    parts = challenge.scipy_categories(
        problem.network, problem.features, progress=lambda *at: seen.append(at)
    )
    np.testing.assert_array_equal(parts, whole)
    assert len(seen) > 24
    assert seen[-1][0] == seen[-1][1]


def test_official_layout(files, problem):
    read = challenge.official(files, 1024, 12)
    assert read.network.isequal(problem.network)
    assert read.features.isequal(problem.features)
    assert challenge.run(read).check == "PASSED"


def test_first_inputs_against_the_truth_for_them(files, problem):
    read = challenge.official(files, 1024, 12, inputs=150)
    assert read.inputs == 150
    truth = dense_categories(problem)
    np.testing.assert_array_equal(read.truth, truth[truth < 150])
    assert challenge.run(read).check == "PASSED"


def test_a_wrong_truth_fails(files, problem):
    truth = dense_categories(problem)
    write_categories(truth[1:], files / "DNN" / "neuron1024-l12-categories.tsv")
    assert challenge.run(challenge.official(files, 1024, 12)).check == "FAILED"
    assert challenge.run(challenge.official(files, 1024, 12), check=False).check == "NOT CHECKED"


def test_truth_past_the_images(files):
    write_categories([3, 300], files / "DNN" / "neuron1024-l12-categories.tsv")
    with pytest.raises(gbdnn.FormatError, match="names input 301, but there are 300 images"):
        challenge.official(files, 1024, 12)


def test_more_inputs_than_official_images(files):
    with pytest.raises(ValueError, match=r"400 inputs are asked for; .* has 300 images"):
        challenge.official(files, 1024, 12, inputs=400)


def test_a_layer_cut_off_at_a_line(files):
    layer = files / "DNN" / "neuron1024" / "n1024-l5.tsv"
    lines = layer.read_text().splitlines(keepends=True)
    layer.write_text("".join(lines[:-100]))
    with pytest.raises(gbdnn.FormatError, match=r"layer 5 .*32668 edges.*32768.*cut off"):
        challenge.official(files, 1024, 12)


def test_outcome_as_json(problem):
    import json

    outcome = challenge.run(problem, nthreads=1)
    told = json.loads(json.dumps(outcome.as_json()))
    assert told["problem"]["edges"] == 12 * 32768
    assert told["problem"]["inputs"] == 300
    assert told["nthreads"] == 1
    assert told["categories"] == (outcome.categories + 1).tolist()
    assert told["edges_per_second"] == pytest.approx(300 * 12 * 32768 / told["seconds"][0])
    assert told["check"] == "PASSED"
    assert {"processor", "cores"} <= told["machine"].keys()
    assert "SuiteSparse:GraphBLAS" in told["versions"]


def test_repeat_without_meaning(problem):
    with pytest.raises(gbdnn.ArgumentError, match="repeat"):
        challenge.run(problem, repeat=0)


def test_official_data(official):
    outcome = challenge.run(challenge.official(official))
    assert outcome.check == "PASSED"
    assert outcome.checked_against == "the official categories"
    assert len(outcome.categories) == 19


def test_official_data_first_inputs(official):
    outcome = challenge.run(challenge.official(official, inputs=500))
    assert outcome.check == "PASSED"
    assert 0 < len(outcome.categories) < 19


def test_scipy_agrees_with_the_official_truth(official):
    problem = challenge.official(official)
    found = challenge.scipy_categories(problem.network, problem.features)
    np.testing.assert_array_equal(found, problem.truth)
