"""`gbdnn.pipeline` on real ranks: ``mpiexec`` starts ``tests/support/ranks.py``."""

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import oracles
import pytest
from conftest import network
from shell import fails, well

import gbdnn
from gbdnn.distributed.mpi.cuts import balanced_cuts
from gbdnn.gallery import digits, features_from_images

RANKS = Path(__file__).parents[1] / "support" / "ranks.py"
CASES = ("kinds", "parts", "rough")


def mpiexec():
    """The command that starts ranks: that of this Python's environment, or the system's."""
    beside = Path(sys.executable).with_name("mpiexec")
    return str(beside) if beside.exists() else shutil.which("mpiexec")


def start(ranks, *arguments, script=RANKS, seconds=300):
    return launched(["-n", ranks, sys.executable, script, *arguments], seconds)


def launched(arguments, seconds=300):
    pytest.importorskip("mpi4py")
    if mpiexec() is None:
        pytest.skip("mpiexec is not installed")
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    path = os.pathsep.join([*map(str, RANKS.parents[1:3]), os.environ.get("PYTHONPATH", "")])
    command = [mpiexec(), "--oversubscribe", "--bind-to", "none"]
    return subprocess.run(
        [*command, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
        env={**os.environ, **root, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
    )


def found(ranks, *arguments):
    done = start(ranks, *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def all_true(outcome):
    return outcome and not [name for name, each in outcome.items() if each is not True]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A stored challenge network, and digits."""
    folder = tmp_path_factory.mktemp("pipeline")
    gbdnn.save(gbdnn.radixnet(1024, 30), folder / "net")
    X = features_from_images(np.concatenate([digits()] * 2), 1024)
    gbdnn.save(X, folder / "X")
    return folder


@pytest.mark.frameworks
@pytest.mark.parametrize("ranks", [2])
def test_stored_network(ranks, made):
    inputs = gbdnn.io.open_features(made / "X").shape[0]
    outcome = found(ranks, "stored", made)
    assert len(outcome) == 5
    for cuts, (equal, reports) in outcome.items():
        assert equal, cuts
        assert [each[0] for each in reports] == [0, *(each[1] for each in reports[:-1])]
        assert reports[-1][1] == 30
        assert reports[0][2] == inputs
        for before, after in itertools.pairwise(reports):
            assert before[3] == after[2]
    at_three = outcome[str([3] * (ranks - 1))][1]
    assert 0 < at_three[0][3] < inputs  # the dead stay behind
    # 6 bytes an entry (16-bit columns, FP32), 6 a row (16-bit ids, 32-bit pointers).
    entries = sum(
        each["entries"]
        for each in gbdnn.per_layer(records(made), 30)[2:3]
    )  # fmt: skip
    rows = at_three[0][3]
    assert 6 * entries + 5 * rows < at_three[0][4] < 6 * entries + 6 * rows + 100


def records(made):
    stats = []
    net, X = gbdnn.load(made / "net", lazy=True), gbdnn.load(made / "X")
    gbdnn.infer(net[:3].loaded(), X, callback=stats.append, compress=False)
    return stats


@pytest.fixture(scope="module", params=[3])
def outcomes(request, tmp_path_factory):
    """What so many ranks find in several cases."""
    pytest.importorskip("numba")
    return found(request.param, "several", tmp_path_factory.mktemp("cases"), *CASES)


@pytest.mark.frameworks
@pytest.mark.parametrize("case", CASES)
def test_equal_to_infer(case, outcomes):
    """The bits too, where all blocks are in one form ("rough")."""
    assert all_true(outcomes[case])


FAILURES = {
    "broken 0": ("RankError", "rank 0: RuntimeError: broken callback"),
    "broken 1": ("RankError", "rank 1: RuntimeError: broken callback"),
    "broken 2": ("RankError", "rank 2: RuntimeError: broken callback"),
    "overflow 0": ("NonFiniteError", "rank 0: layers 0 to 1, counted from 0: layer 1: Y W"),
    "overflow 1": ("NonFiniteError", "rank 1: layers 2 to 3, counted from 0: layer 1: Y W"),
    "overflow 2": ("NonFiniteError", "rank 2: layers 4 to 5, counted from 0: layer 1: Y W"),
    "options 1": ("ArgumentError", "rank 1: a cut is at most 6, not 9"),
    "network 2": ("ArgumentError", "take the same network"),
}


@pytest.fixture(scope="module")
def failures(tmp_path_factory):
    """What three ranks tell of each failure, one after the other."""
    return found(3, "fails", tmp_path_factory.mktemp("fails"), *FAILURES)


@pytest.mark.frameworks
@pytest.mark.parametrize("failure", FAILURES)
def test_an_error_on_one_rank_is_one_on_all(failure, failures):
    """Before the features have been read, which takes longer than the ranks are waited for."""
    outcome, (error, words) = failures[failure], FAILURES[failure]
    assert outcome["error"][0] == error
    assert words in outcome["error"][1]
    assert outcome["again"] is True


@pytest.mark.frameworks
def test_options_that_differ_are_an_error_before_any_work(tmp_path):
    told = found(3, "differ", tmp_path)
    same = "all ranks of a pipeline take the same"
    assert told == {
        "engine": ["ArgumentError", f"{same} engine: auto on rank 0, full on rank 2"],
        "compress": ["ArgumentError", f"{same} compress: auto on rank 0, False on rank 1"],
        "memory": ["ArgumentError", f"{same} memory: 536870912 on rank 0, 268435456 on rank 2"],
        "batch": ["ArgumentError", f"{same} batch: 500 on rank 0, 400 on rank 1"],
        "root": ["ArgumentError", f"{same} root: 0 on rank 0, 1 on rank 2"],
        "answer": ["ArgumentError", f"{same} answer: root on rank 0, all on rank 1"],
        "report": ["ArgumentTypeError", "rank 2: report is callable or None, not 3"],
        "callback": ["ArgumentTypeError", "rank 1: callback is callable or None, not 3"],
        "nthreads": ["ArgumentError", "rank 2: nthreads is at least 1, not 0"],
    }


def test_some_options_are_a_rank_s_own(tmp_path):
    assert all_true(found(2, "own", tmp_path))


@pytest.mark.parametrize("comm", [3, "COMM_WORLD", object(), [], np.ones(2)])
def test_what_is_no_communicator(comm):
    pytest.importorskip("mpi4py")
    with pytest.raises(gbdnn.ArgumentTypeError, match=r"comm is an mpi4py\.MPI\.Intracomm, not "):
        gbdnn.pipeline([np.eye(2)], np.eye(2), comm=comm)


@pytest.mark.frameworks
@pytest.mark.parametrize("where", [0, 1, 2])
def test_an_error_that_nobody_catches_ends_all_ranks(where, tmp_path):
    done = start(3, "dies", tmp_path, "broken", where)
    assert done.returncode != 0
    assert f"RankError: rank {where}: RuntimeError: broken callback" in done.stderr


# The shell.


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A stored network of four layers, and features."""
    folder = tmp_path_factory.mktemp("shell")
    case = oracles.case(5, sizes=(48, 64, 40, 56, 32), inputs=5000, bias="negative vector")
    gbdnn.save(network(case.layers), folder / "net")
    gbdnn.save(case.X.astype("f4"), folder / "X")
    return folder


@pytest.fixture(scope="module")
def answer(small):
    """What one process answers."""
    Y = gbdnn.infer(gbdnn.load(small / "net", lazy=True), gbdnn.load(small / "X"))
    assert 0 < gbdnn.categories(Y).size < Y.nrows
    assert len(np.unique(Y.to_coo()[2])) > 10
    return Y


def commands(*ranks, module=(), seconds=300):
    """``gbdnn infer ... --pipeline`` on ranks, each with arguments of its own."""
    pytest.importorskip("typer")
    start = ["-n", 1, sys.executable, *module, "-m", "gbdnn", "infer"]
    each = [[*start, *arguments, "--pipeline"] for arguments in ranks]
    return launched([word for one in each for word in [":", *one]][1:], seconds)


def told(done):
    """Lines of gbdnn, not of mpiexec, on standard error."""
    words = ("gbdnn: ", "Traceback", "Warning")
    return [line for line in done.stderr.splitlines() if any(word in line for word in words)]


@pytest.mark.frameworks
@pytest.mark.parametrize("module", [()])
@pytest.mark.parametrize("cuts", [(), ("--cuts", "1,3")])
def test_the_shell(module, cuts, small, answer, tmp_path):
    arguments = [small / "net", small / "X", "-o", tmp_path / "Y", "--to", "store", *cuts]
    done = commands(*[arguments] * 3, module=module)
    assert (done.returncode, done.stderr) == (0, "")
    assert gbdnn.load(tmp_path / "Y").isequal(answer, check_dtype=True)
    first, second, *ranks, computed = done.stdout.splitlines()
    assert re.fullmatch("computed in the (sparse|full|fused) form.*", computed)
    living = f"{gbdnn.categories(answer).size} of 5000 inputs have a category"
    assert first == f"{tmp_path / 'Y'}: {living}, {answer.nvals} activations"
    assert second == "3 ranks, --cuts 1,3" if cuts else second.startswith("3 ranks, --cuts ")
    assert [line[:12] for line in ranks] == [f"rank {n}: laye" for n in range(3)]
    assert not cuts or "rank 1: layers 1 to 2, " in ranks[1]


def test_the_shell_writes_categories_in_place_of_a_store(small, answer, tmp_path):
    gbdnn.save(np.eye(3), tmp_path / "c")
    arguments = [small / "net", small / "X", "-o", tmp_path / "c", "--categories"]
    refused = commands(arguments, arguments)
    assert refused.returncode == 2
    assert len(told(refused)) == 1
    assert "exists already, features or activations of 3 inputs" in refused.stderr
    arguments.append("--force")
    assert commands(arguments, arguments).returncode == 0
    assert np.array_equal(gbdnn.load(tmp_path / "c"), gbdnn.categories(answer))


def test_the_shell_on_one_rank_without_mpiexec(small, answer, tmp_path):
    pytest.importorskip("mpi4py")
    pytest.importorskip("typer")
    arguments = ["infer", small / "net", small / "X", "-o", tmp_path / "Y", "--to", "store"]
    printed = well(*arguments, "--pipeline")
    assert "1 rank, which holds all layers" in printed
    assert gbdnn.load(tmp_path / "Y").isequal(answer)


@pytest.mark.parametrize(
    ("options", "words", "module"),
    [
        (["--cuts", "3"], "ascending: 2 numbers for 3 ranks, not [3]", ("-m", "mpi4py")),
        (["--cuts", "3,1"], "ascending", ()),
        (["--cuts", "a,3"], "'--cuts': a,3: whole numbers with commas", ()),
        (["--workers", "2"], "--pipeline beside --workers: one of them", ()),
        (["--scheduler", "tcp://a:1"], "--pipeline beside --scheduler", ()),
        (["--mpi"], "--pipeline beside --mpi", ()),
        (["--nonsense"], "No such option: --nonsense", ("-m", "mpi4py")),
        (["--nonsense"], "No such option: --nonsense", ()),
        (["--layers", "31"], "--layers 31): ", ()),
    ],
)
def test_a_mistake_is_told_once(options, words, module, small, tmp_path):
    arguments = [small / "net", small / "X", "-o", tmp_path / "Y", *options]
    done = commands(*[arguments] * 3, module=module)
    assert done.returncode == 2
    assert done.stdout.strip() == ""
    (line,) = told(done)
    assert line.strip().startswith("gbdnn: ")
    assert words in line
    assert not (tmp_path / "Y").exists()


@pytest.mark.parametrize(
    ("what", "where"),
    [("net", 0), ("net", 2), ("X", 0), ("Y", 0), ("option", 0), ("option", 1)]
    + [("weights", rank) for rank in range(3)],
)
def test_an_error_on_one_rank_ends_the_command(what, where, small, tmp_path):
    good = {"net": small / "net", "X": small / "X", "Y": tmp_path / "Y"}
    wrong = good | {what: tmp_path / "no" / "where"}
    if what == "Y":  # a folder's parents would be made, a file is none
        (tmp_path / "no").write_text("a file")
    if what == "weights":  # damaged: it is found when a rank reads its layers
        wrong = good | {"net": tmp_path / "damaged"}
        shutil.copytree(small / "net", tmp_path / "damaged")
        shard = next((tmp_path / "damaged").glob("shard-*"))
        data = shard.read_bytes()
        header = 8 + int.from_bytes(data[:8], "little")
        shard.write_bytes(data[:header] + bytes(len(data) - header))
    each = []
    for rank in range(3):
        given = wrong if rank == where else good
        each.append([given["net"], given["X"], "-o", given["Y"], "--cuts", "1,3"])
        each[-1] += ["--nonsense"] if what == "option" and rank == where else []
    done = commands(*each)
    assert done.returncode == 2
    (line,) = told(done)
    assert "--nonsense" in line if what == "option" else f"gbdnn: rank {where}: " in line
    assert not (tmp_path / "Y").exists()


def test_the_shell_without_mpi(small, tmp_path):
    pytest.importorskip("typer")
    (tmp_path / "run.py").write_text(
        "import sys\nsys.modules['mpi4py'] = sys.modules['mpi4py.MPI'] = None\n"
        "from gbdnn.cli import main\nmain()\n"
    )
    arguments = ["infer", small / "net", small / "X", "-o", tmp_path / "Y", "--pipeline"]
    for done in (
        start(2, *arguments, script=tmp_path / "run.py"),
        subprocess.run(
            [sys.executable, tmp_path / "run.py", *map(str, arguments)],
            capture_output=True, text=True, check=False,
        ),
    ):  # fmt: skip
        assert done.returncode == 2
        (line,) = told(done)
        assert 'pip install "gbdnn[mpi]"' in line


def test_cuts_are_for_a_pipeline(small, tmp_path):
    pytest.importorskip("typer")
    arguments = ["infer", small / "net", small / "X", "-o", tmp_path / "Y", "--cuts", "3"]
    fails(*arguments, match="--cuts goes with --pipeline")


def test_benchmark(tmp_path):
    pytest.importorskip("typer")
    script = RANKS.parents[2] / "benchmarks" / "scale" / "pipeline.py"
    problem = ["--neurons", 1024, "--layers", 6, "--inputs", 300]
    options = ["--cuts", 2, "--rounds", 1, "--json", tmp_path / "found.json"]
    done = start(2, *problem, *options, script=script)
    assert done.returncode == 0, done.stderr
    assert "answers are equal" in done.stdout
    runs = json.loads((tmp_path / "found.json").read_text())["runs"]
    assert [run["name"] for run in runs] == ["one process", "cut by a sample", "cut at [2]"]
    assert [rank["layers"] for rank in runs[2]["ranks"]] == [[0, 2], [2, 6]]
    assert runs[2]["ranks"][0]["sent"] > 0


def test_cuts_are_balanced():
    assert balanced_cuts([5, 1, 1, 1, 1, 1], [0] * 7, 2) == (1,)
    assert balanced_cuts([1, 1, 1, 1, 1, 1], [0] * 7, 3) == (2, 4)
    # A cut behind layer 0 would move more than it saves.
    assert balanced_cuts([2, 1, 1], [0, 5, 0, 0], 2) == (2,)
    assert len(balanced_cuts([1.0], [0, 0], 4)) == 3
    rng = np.random.default_rng(0)
    seconds, moving = rng.random(9), rng.random(10) / 4
    cuts = balanced_cuts(seconds, moving, 3)

    def slowest(a, b):
        return max(seconds[i:j].sum() + moving[i] + moving[j] for i, j in ((0, a), (a, b), (b, 9)))

    assert slowest(*cuts) == min(slowest(a, b) for a in range(1, 8) for b in range(a + 1, 9))


def test_without_mpi4py(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", None)
    with pytest.raises(gbdnn.MissingPackageError, match=r'pip install "gbdnn\[mpi\]"'):
        gbdnn.pipeline([np.eye(2)], np.eye(2))
