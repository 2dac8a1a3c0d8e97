"""`gbdnn.distributed.pipeline` on real ranks: ``mpiexec`` starts ``tests/support/ranks.py``."""

import itertools
import json
from pathlib import Path

import numpy as np
import oracles
import pytest
from conftest import network
from launch import mpiexec
from shell import well

import gbdnn
from gbdnn.distributed.mpi.stages import balanced_cuts
from gbdnn.gallery import digits, features_from_images

RANKS = Path(__file__).parents[1] / "support" / "ranks.py"


def found(ranks, *arguments):
    done = mpiexec(ranks, RANKS, *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.frameworks
def test_equal_answers(tmp_path):
    assert not [name for name, each in found(3, "kinds", tmp_path).items() if each is not True]


@pytest.mark.frameworks
def test_a_stored_network(tmp_path):
    gbdnn.save(gbdnn.gallery.radixnet(1024, 30), tmp_path / "net")
    X = features_from_images(np.concatenate([digits()] * 2), 1024)
    gbdnn.io.write_features(X, tmp_path / "X")
    outcome = found(3, "stored", tmp_path)
    assert len(outcome) == 4
    for cuts, (equal, reports) in outcome.items():
        assert equal, cuts
        assert [each[0] for each in reports] == [0, *(each[1] for each in reports[:-1])]
        assert (reports[-1][1], reports[0][2]) == (30, X.nrows)
        for before, after in itertools.pairwise(reports):
            assert before[3] == after[2]
    _, _, inputs, survivors, sent = outcome["[3, 4]"][1][0]
    assert 0 < survivors < inputs  # inputs without entries are not sent
    entries = gbdnn.infer(gbdnn.load(tmp_path / "net")[:3], X, deduplicate=False).nvals
    # 6 bytes per entry (16-bit columns, FP32), 6 per row (16-bit ids, 32-bit pointers).
    assert 6 * entries + 5 * survivors < sent < 6 * entries + 6 * survivors + 100


@pytest.mark.frameworks
def test_pairs_of_ranks_divide_the_inputs(tmp_path):
    outcome = found(4, "split", tmp_path)
    assert [equal for equal, _, _ in outcome] == [True] * 4
    assert min(outcome[0][1], outcome[2][1]) > 0  # each pair has an answer, on its first rank
    assert [ranks for _, _, ranks in outcome] == [2] * 4


@pytest.mark.frameworks
def test_an_error_on_one_rank_is_raised_on_all(tmp_path):
    """At once: the features have no end. Afterwards the ranks compute as before."""
    want = {
        **{f"callback {k}": ("WorkerError", f"rank {k}: RuntimeError: broken") for k in range(3)},
        "overflow 0": ("NonFiniteError", "rank 0: layers 0 to 1, counted from 0: layer 1"),
        "overflow 2": ("NonFiniteError", "rank 2: layers 4 to 5, counted from 0: layer 1"),
        "cuts 1": ("ArgumentError", "rank 1: a cut must be at most 5"),
        "network 2": ("ArgumentError", "network differs on rank 0 and rank 2"),
        "answer 1": ("ArgumentError", "answer differs on rank 0 and rank 1: root and all"),
        "root 2": ("ArgumentError", "root differs on rank 0 and rank 2: 0 and 1"),
        "nthreads 2": ("ArgumentError", "rank 2: nthreads"),
    }
    outcome = found(3, "fails", tmp_path)
    assert outcome.keys() == want.keys()
    for how, (error, message, again) in outcome.items():
        assert error == want[how][0]
        assert want[how][1] in message
        assert again is True


@pytest.mark.frameworks
def test_an_uncaught_error_ends_all_ranks(tmp_path):
    done = mpiexec(3, RANKS, "dies", tmp_path)
    assert done.returncode != 0
    assert "WorkerError: rank 1: RuntimeError: broken callback" in done.stderr


# Alone.


@pytest.mark.frameworks
@pytest.mark.parametrize(
    ("layers", "options", "match"),
    [
        (1, {"comm": "COMM_WORLD"}, r"comm must be an mpi4py\.MPI\.Intracomm, not str"),
        (0, {}, "a network of 0 layers cannot be divided among 1 ranks"),
        (1, {"cuts": [1]}, "a cut must be at most 0"),
        (2, {"cuts": [1]}, r"cuts must be 0 ascending numbers for 1 ranks, not \[1\]"),
        (1, {"root": 1}, "root must be at most 0"),
        (1, {"report": 3}, "report"),
    ],
)
def test_wrong_options(layers, options, match):
    pytest.importorskip("mpi4py.MPI", exc_type=ImportError)
    with pytest.raises(gbdnn.GbdnnError, match=match):
        gbdnn.distributed.pipeline([np.eye(2)] * layers, np.eye(2), **options)


def test_cuts_are_balanced():
    assert balanced_cuts([5, 1, 1, 1, 1, 1], [0] * 7, 2) == (1,)
    assert balanced_cuts([1, 1, 1, 1, 1, 1], [0] * 7, 3) == (2, 4)
    assert balanced_cuts([2, 1, 1], [0, 5, 0, 0], 2) == (2,)  # a cut at 1 would move more
    assert balanced_cuts([9, 0, 0], [0] * 4, 3) == (1, 2)
    rng = np.random.default_rng(0)
    seconds, moving = rng.random(9), rng.random(10) / 4

    def slowest(a, b):
        return max(seconds[i:j].sum() + moving[i] + moving[j] for i, j in ((0, a), (a, b), (b, 9)))

    best = min(slowest(a, b) for a in range(1, 8) for b in range(a + 1, 9))
    assert slowest(*balanced_cuts(seconds, moving, 3)) == best


# The shell.


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A stored network of four layers, and features."""
    folder = tmp_path_factory.mktemp("shell")
    case = oracles.case(5, sizes=(48, 64, 40, 56, 32), inputs=5000, bias="negative vector")
    gbdnn.save(network(case.layers), folder / "net")
    gbdnn.io.write_features(case.X.astype("f4"), folder / "X")
    return folder


@pytest.fixture(scope="module")
def answer(small):
    """The answer of one process."""
    return gbdnn.infer(gbdnn.load(small / "net", lazy=True), gbdnn.io.read_features(small / "X"))


def command(ranks, *arguments):
    """``gbdnn infer ... --pipeline`` on ranks."""
    pytest.importorskip("typer")
    return mpiexec(ranks, "-m", "gbdnn", "infer", *arguments, "--pipeline")


@pytest.mark.frameworks
def test_the_shell(small, answer, tmp_path):
    done = command(3, small / "net", small / "X", "-o", tmp_path / "Y")
    assert (done.returncode, done.stderr) == (0, "")
    assert gbdnn.io.read_features(tmp_path / "Y").isequal(answer, check_dtype=True)
    found = f"activations of 5000 inputs, {answer.nvals} entries"
    assert done.stdout.startswith(f"{tmp_path / 'Y'}: {found}\nengine: auto, kernels ")
    assert len(done.stdout.splitlines()) == 2


@pytest.mark.frameworks
def test_the_shell_on_one_rank_without_mpiexec(small, answer, tmp_path):
    pytest.importorskip("mpi4py.MPI", exc_type=ImportError)
    pytest.importorskip("typer")
    out = tmp_path / "ids.tsv"
    well("infer", small / "net", small / "X", "-o", out, "--categories", "--pipeline")
    assert np.array_equal(gbdnn.io.read_categories(out), gbdnn.categories(answer))


@pytest.mark.frameworks
def test_an_error_ends_all_ranks(small, tmp_path):
    """Only the first rank reads the features; the others wait for it."""
    done = command(3, small / "net", small / "nowhere", "-o", tmp_path / "Y")
    assert done.returncode == 2
    assert done.stdout.strip() == ""
    lines = [line for line in done.stderr.splitlines() if "gbdnn: " in line]
    assert lines
    assert all("nowhere" in line for line in lines)
    assert not (tmp_path / "Y").exists()
