"""The shell, as a user meets it: its output and its exit code."""

import io
import json
import re
import sys

import numpy as np
import pytest
from shell import as_process, fails, on_terminal, run

import gbdnn
from gbdnn.io import read_categories, read_tsv, write_categories, write_network, write_tsv
from gbdnn.kernels.fused import FUSED

BAR = "\N{BOX DRAWINGS HEAVY HORIZONTAL}\N{BOX DRAWINGS HEAVY LEFT}\N{BOX DRAWINGS HEAVY RIGHT}"


@pytest.fixture(scope="module")
def problem():
    from gbdnn import challenge

    return challenge.generated(1024, 8, inputs=200, seed=1)


@pytest.fixture(scope="module")
def folder(problem, tmp_path_factory):
    from gbdnn.challenge.scipy_check import scipy_categories

    root = tmp_path_factory.mktemp("files")
    write_network(problem.network, root / "neuron1024")
    write_tsv(problem.features, root / "sparse-images-1024.tsv")
    truth = scipy_categories(problem.network, problem.features)
    assert 0 < len(truth) < 200
    write_categories(truth, root / "neuron1024-l8-categories.tsv")
    return root


@pytest.mark.slow  # the README's first command is tried by itself
def test_the_default_problem_passes(tmp_path):
    report = tmp_path / "outcome.json"
    done = as_process("challenge", "--json", report)
    assert (done.returncode, done.stderr) == (0, "")
    facts = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert set(facts) >= {"problem", "machine", "edges", "seconds", "edge", "categories", "check"}
    assert facts["problem"].startswith("1024 neurons x 120 layers")
    assert facts["edges"].startswith("3,932,160 (x 1,797 inputs")
    assert facts["check"].startswith("PASSED")
    told = json.loads(report.read_text())
    assert told["check"] == "PASSED"
    assert int(facts["categories"].replace(",", "")) == len(told["categories"]) > 0


def test_options_do_what_they_say(tmp_path):
    report = tmp_path / "outcome.json"
    done = run("challenge", "--neurons", 4096, "--layers", 9, "--inputs", 50, "--seed", 4,
               "--nthreads", 1, "--repeat", 3, "--engine", "full", "--json", report)  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(report.read_text())
    assert told["problem"]["neurons"] == 4096
    assert told["problem"]["layers"] == 9
    assert told["problem"]["inputs"] == 50
    assert told["problem"]["seed"] == 4
    assert told["nthreads"] == 1
    assert len(told["seconds"]) == 3


def test_official_files(folder):
    done = run("challenge", "--data", folder, "--layers", 8)
    assert done.returncode == 0, done.stderr
    assert "PASSED (against the official categories)" in done.stdout
    done = run("challenge", "--data", folder, "--layers", 8, "--inputs", 100)
    assert "PASSED" in done.stdout


@pytest.mark.parametrize("options", [[], ["--compress"]])
def test_a_picture_of_the_run(options, tmp_path):
    few = ["challenge", "--layers", 6, "--inputs", 40]
    done = run(*few, *options, "--plot", tmp_path / "run.png")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["run.png"]
    # Before the work: which would be long.
    long = ["challenge", "--neurons", 65536, "--layers", 1920]
    fails(*long, "--plot", tmp_path / "run.jpg", match=".png, .svg or .pdf")
    fails(*long, "--plot", tmp_path / "no" / "run.png", match="does not exist")


def test_a_failed_check_is_exit_code_1(folder, tmp_path):
    for path in folder.iterdir():
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "neuron1024-l8-categories.tsv").unlink()
    write_categories([0], tmp_path / "neuron1024-l8-categories.tsv")
    done = run("challenge", "--data", tmp_path, "--layers", 8)
    assert done.returncode == 1
    assert "FAILED" in done.stdout
    assert done.stderr == ""


def test_own_files(folder, problem, tmp_path):
    out = tmp_path / "Y.tsv.gz"
    features = folder / "sparse-images-1024.tsv"
    done = run("infer", folder / "neuron1024", features, "-o", out, "--inputs", 200)
    assert done.returncode == 0, done.stderr
    Y = gbdnn.infer(problem.network, problem.features)
    assert read_tsv(out, nrows=200, ncols=1024).isequal(Y)
    assert f"{len(gbdnn.categories(Y))} of 200 inputs have a category" in done.stdout
    ids = tmp_path / "ids.tsv"
    done = run("infer", folder, features, "-o", ids, "--categories")
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(read_categories(ids), gbdnn.categories(Y))


def test_own_files_with_other_options(folder, problem, tmp_path):
    out = tmp_path / "Y.tsv"
    features = folder / "sparse-images-1024.tsv"
    done = run("infer", folder, features, "-o", out, "--layers", 3, "--bias", "-0.2", "--bias-rule",
               "all", "--no-clip", "--dtype", "FP64", "--nthreads", 1)  # fmt: skip
    assert done.returncode == 0, done.stderr
    Ws = [layer.weights for layer in problem.network[:3]]
    Y = gbdnn.infer(Ws, problem.features, bias=-0.2, dtype="FP64")
    assert Y.nvals > 0
    assert read_tsv(out, nrows=200, ncols=1024, dtype="FP64").isequal(Y)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["challenge", "--nonsense"], "--nonsense"),
        (["challenge", "--neurons", "1000"], "the challenge has 1024, 4096"),
        (["challenge", "--neurons", "many"], "--neurons"),
        (["challenge", "--nthreads", "0"], "nthreads"),
        (["challenge", "--layers", "0"], "layers"),
        (["challenge", "--repeat", "0"], "repeat"),
        (["challenge", "--data", "nowhere"], "nowhere: the folder does not exist"),
        (["challenge", "--images", "nothing.idx"], "nothing.idx"),
        (
            ["challenge", "--json", "nowhere/outcome.json"],
            "nowhere/outcome.json: cannot be written",
        ),
        (["dance"], "dance"),
        (["infer"], "NETWORK"),
        (["infer", "nowhere", "X.tsv", "-o", "Y.tsv"], "nowhere: the folder does not exist"),
    ],
)
def test_bad_usage(arguments, match, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fails(*arguments, match=match)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_folder_tells_the_layout(tmp_path):
    fails("challenge", "--data", tmp_path, match="sparse-images-1024.tsv")
    fails("infer", tmp_path, "X.tsv", "-o", tmp_path / "Y.tsv", match="n<neurons>-l1.tsv")


def test_a_malformed_line_is_named_and_nothing_is_written(folder, tmp_path):
    features = tmp_path / "X.tsv"
    features.write_text("1\t5\t1\n2\tfive\t1\n")
    out = tmp_path / "Y.tsv"
    out.write_text("old\n")
    fails("infer", folder, features, "-o", out, "--force", match="X.tsv, line 2")
    assert out.read_text() == "old\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["X.tsv", "Y.tsv"]


def test_an_unwritable_output_is_told_before_the_work(folder, tmp_path):
    features = folder / "sparse-images-1024.tsv"
    fails("infer", folder, features, "-o", tmp_path, "--to", "tsv", match="is a folder")
    fails("infer", folder, features, "-o", folder, match="is not empty")
    fails("infer", folder, features, "-o", tmp_path / "no" / "Y.tsv", match="does not exist")


def test_version_and_help():
    assert as_process("--version").stdout == f"gbdnn {gbdnn.__version__}\n"
    helped = run("challenge", "--help")
    assert helped.returncode == 0
    assert "--json" in helped.stdout


@pytest.mark.parametrize(
    ("arguments", "shown", "last"),
    [
        pytest.param(
            ["challenge", "--layers", "20", "--inputs", "300"],
            ["inference", "checking", "20/20"],
            "check       PASSED (against SciPy in FP64), ",
            marks=pytest.mark.slow,
        ),
        (
            ["generate", "net", "--layers", "40", "--force"],
            ["writing layers", "40/40"],
            "net: store, 40 layers, 1024 inputs to 1024 outputs, 1310720 edges",
        ),
    ],
)
def test_progress_only_for_a_terminal(arguments, shown, last, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    quiet = as_process(*arguments)
    assert (quiet.returncode, quiet.stderr) == (0, "")
    assert "\x1b" not in quiet.stdout
    code, written, left = on_terminal(*arguments)
    assert code == 0
    assert all(each in written for each in shown)
    assert left[-1].startswith(last)
    assert not any(each in line for each in shown for line in left)


@pytest.mark.slow
def test_compiling_is_told_once(tmp_path, monkeypatch):
    """And done before the clock starts: the first run is in the fused form."""
    monkeypatch.setenv("GBDNN_CACHE_DIR", str(tmp_path / "code"))
    small = ("challenge", "--layers", 6, "--inputs", 50, "--no-check")
    assert as_process(*small).stderr == ""
    assert len(list((tmp_path / "code").iterdir())) == 1
    monkeypatch.setenv("GBDNN_CACHE_DIR", str(tmp_path / "other"))
    for shown in (True, False):
        code, written, left = on_terminal(*small)
        assert code == 0
        assert ("compiling for this processor, once" in written) == shown
        assert sum("compiling" in line for line in left) == shown
        assert sum("compiled now" in line for line in left) == shown
        assert ("gbdnn info --machine --compile" in "".join(left)) == shown


@pytest.fixture(scope="module")
def compiled():
    """Code on disk: what follows says nothing of compiling."""
    FUSED.load(np.dtype(np.float32))


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize(
    "options",
    [
        [],
        pytest.param(["--to", "store"], marks=pytest.mark.slow),
        pytest.param(["--to", "store", "--workers", "2"], marks=pytest.mark.slow),
    ],
)
def test_a_bar_leaves_the_result(options, problem, folder, tmp_path):
    """Drawn over what is written below it, it would be gone when the bar is."""
    gbdnn.save(problem.network, tmp_path / "net")
    X, Y = folder / "sparse-images-1024.tsv", tmp_path / "Y"
    command = ["infer", tmp_path / "net", X, "-o", Y, "--inputs", 200, *options]
    living = len(gbdnn.categories(gbdnn.infer(problem.network, problem.features)))
    code, written, left = on_terminal(*command, columns=300)
    assert code == 0
    assert "\x1b[2K" in written  # there was a bar
    summary, *more = left
    assert summary.startswith(f"{Y}: {living} of 200 inputs have a category")
    if "--workers" in options:
        assert more.pop(0).startswith("1 batch on 1 worker, busy ")
    [more] = more
    assert more.startswith("computed in ")
    if "--to" in options:
        code, _, again = on_terminal(*command, columns=300)
        assert code == 0
        assert again[0] == f"{Y}: is complete: nothing was left to compute"
        assert again[1] == summary


SIZES = {"80 x 24": (80, 24), "40 x 10": (40, 10)}


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("environment", [{}, {"NO_COLOR": "1"}], ids=["", "NO_COLOR"])
@pytest.mark.parametrize(
    "workers", [[], pytest.param(["--workers", 2], marks=pytest.mark.slow)], ids=["", "workers"]
)
def test_a_terminal_of_any_size_shows_all_of_a_bar_and_keeps_the_result(
    size, environment, workers, problem, folder, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    gbdnn.save(problem.network, tmp_path / "net")
    columns, rows = size
    X = folder / "sparse-images-1024.tsv"
    command = ["infer", "net", X, "-o", "Y", "--batch", 10, "--inputs", 200, *workers]
    code, written, left = on_terminal(*command, columns=columns, rows=rows, **environment)
    assert code == 0, written
    living = len(gbdnn.categories(gbdnn.infer(problem.network, problem.features)))
    assert "".join(left).startswith(f"Y: {living} of 200 inputs have a category, ")
    assert not workers or " workers, busy for " in "".join(left)
    assert "computed in the " in "".join(left)
    colors = re.findall(r"\x1b\[[\d;]*m", written)
    assert all("3" not in each for each in colors) if environment else colors
    drawn = re.split(r"[\r\n]+", re.sub(r"\x1b\[[?\d;]*[A-Za-z]", "", written))
    bars = [line for line in drawn if "\N{BOX DRAWINGS HEAVY HORIZONTAL}" in line]
    assert {line.split()[0] for line in bars} >= {"batches" if workers else "inference", "inputs"}
    assert max(map(len, drawn[: drawn.index(bars[-1]) + 1])) <= columns
    assert not any("\N{HORIZONTAL ELLIPSIS}" in line for line in bars)
    # What, bar, how much of it, for how long, how long still.
    layout = rf"[a-z ]+ [{BAR} ]+ (\d+%|\d+/\d+)? *\d+:\d\d( left \d+:\d\d)? *"
    assert not [line for line in bars if not re.fullmatch(layout, line)]
    assert any(re.search(r" 200/200 +\d:\d\d *$", line) for line in bars)


def test_times_of_bars():
    from types import SimpleNamespace

    from gbdnn.cli.bars import _clock, _left

    assert [_clock(each) for each in (0.9, 61, 3599, 36_061)] == [
        "0:00",
        "1:01",
        "59:59",
        "10:01:01",
    ]
    for finished, seconds, shown in [(False, 5, "left 0:05"), (False, None, ""), (True, 0, "")]:
        assert _left(SimpleNamespace(finished=finished, time_remaining=seconds)) == shown


def test_the_result_is_there_before_the_check(folder, tmp_path, monkeypatch):
    """A check by SciPy takes longer than the run; who interrupts it loses nothing."""
    from gbdnn.challenge import outcome

    told = io.StringIO()

    def interrupted(*_, **__):
        assert "\ncategories  " in told.getvalue()
        raise KeyboardInterrupt

    few = ["challenge", "--layers", 6, "--inputs", 40, "--json", tmp_path / "outcome.json"]
    streams = [told, io.StringIO()]
    monkeypatch.setattr(outcome, "scipy_categories", interrupted)
    done = run(*few, stream=lambda: streams.pop(0))
    assert (done.returncode, done.stderr) == (130, "gbdnn: interrupted\n")
    facts = json.loads((tmp_path / "outcome.json").read_text())
    assert (facts["check"], facts["check_seconds"]) == ("NOT CHECKED", None)
    assert "check " not in done.stdout


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ("sparse", "sparse, computed in the sparse form\n"),
        ("full", "full, computed in the full form\n"),
        ("fused", "fused, computed in the fused form\n"),
    ],
)
def test_the_report_names_the_form_that_computed(engine, words, tmp_path):
    few = ["challenge", "--layers", 6, "--inputs", 40, "--no-check", "--engine", engine]
    done = run(*few, "--json", tmp_path / "outcome.json")
    assert f"engine      {words}" in done.stdout
    facts = json.loads((tmp_path / "outcome.json").read_text())
    assert (facts["forms"], facts["compile_seconds"]) == ({engine: 1.0}, 0.0)


def test_two_forms_have_their_parts():
    from gbdnn.cli.terminal import computed_in

    words = computed_in({"fused": 300, "sparse": 100, "full": 1}, 0.0)
    assert words == "computed in the fused form (75 %) and the sparse form (25 %)"
    words = computed_in({"fused": 1.0}, 6.78)
    assert words.startswith("computed in the fused form; compiled now, in 6.8 s, ")
    assert "gbdnn info --machine --compile" in words


@pytest.fixture
def small(tmp_path):
    """A network of two layers of 3 neurons, each passed on times 10, and 2 inputs."""
    for k in (1, 2):
        lines = "".join(f"{i}\t{i}\t10\n" for i in (1, 2, 3))
        (tmp_path / f"n3-l{k}.tsv").write_text(lines)
    (tmp_path / "X.tsv").write_text("1\t1\t1\n2\t3\t0.1\n")
    return tmp_path


def answer(folder, *options, features="X.tsv", dtype="FP32"):
    """What `gbdnn infer` writes for a folder's own files."""
    out = folder / "Y.tsv"
    done = run("infer", folder, folder / features, "-o", out, "--dtype", dtype, "--force", *options)
    assert (done.returncode, done.stderr) == (0, "")
    return read_tsv(out, dtype=dtype)


def test_nthreads_is_passed_on(small, monkeypatch):
    from typer.testing import CliRunner

    from gbdnn import cli

    seen, infer = [], gbdnn.infer

    def recorded(*arguments, **options):
        seen.append(options["nthreads"])
        return infer(*arguments, **options)

    monkeypatch.setattr(gbdnn, "infer", recorded)
    command = ["infer", str(small), str(small / "X.tsv"), "-o", str(small / "Y.tsv"), "--force"]
    for options in ([], ["--nthreads", "1"]):
        CliRunner().invoke(cli.app, command + options, catch_exceptions=False)
    assert seen == [None, 1]


def test_an_empty_last_input_is_an_input(small):
    Y = answer(small, "--inputs", 4, "--bias", 1, "--bias-rule", "all")
    assert Y.nrows == 4
    assert Y[3, :].new().to_dense().tolist() == [11, 11, 11]


def test_features_are_read_in_the_dtype_of_the_run(small):
    assert answer(small, dtype="FP64")[1, 2].new().value == 0.1 * 10 * 10


def test_clip_and_no_clip(small):
    assert answer(small)[0, 0].new().value == 32
    assert answer(small, "--clip", 50)[0, 0].new().value == 50
    assert answer(small, "--no-clip")[0, 0].new().value == 100


def test_a_bias_of_0_is_not_the_default(folder):
    features, out = folder / "sparse-images-1024.tsv", folder / "Y.tsv"
    nvals = []
    for options in ([], ["--bias", 0]):
        assert run("infer", folder, features, "-o", out, "--force", *options).returncode == 0
        nvals.append(read_tsv(out).nvals)
    assert nvals[0] < nvals[1]


def test_faults_of_the_run_are_one_line(small):
    def refused(match, *options, features="X.tsv"):
        fails("infer", small, small / features, "-o", small / "Y.tsv", *options, match=match)

    refused("--no-clip beside --clip", "--clip", 3, "--no-clip")
    refused("clip: 1e+39 does not fit float32", "--clip", "1e39")
    refused("row pointers alone need", "--inputs", 10**15)
    refused("nthreads is at most", "--nthreads", 2**31)
    refused("cannot be read: File name too long", features="x" * 300)
    (small / "wide.tsv").write_text("1\t5\t1\n")
    refused("line 1: the column '5' is past the number of columns, 3", features="wide.tsv")
    (small / "big.tsv").write_text("1\t1\t3e38\n")
    refused("layer 0: Y W + b leaves the range", "--no-clip", features="big.tsv")
    fails("challenge", "--data", small, "--seed", 1, match="--seed beside --data")
    fails("challenge", "--images", small, match="is a folder")
    fails("challenge", "--images", "x" * 300, match="File name too long")
    # The output's fault comes before what the work would find.
    (small / "n3-l1.tsv").write_text("nonsense\n")
    fails("infer", small, small / "X.tsv", "-o", small / "no" / "Y.tsv", match="cannot be written")


def test_without_a_command_there_is_help():
    done = run()
    assert (done.returncode, done.stderr) == (0, "")
    assert "Commands:\n" in done.stdout


def test_memory_that_runs_out_is_one_line(small, monkeypatch, capsys):
    import graphblas as gb

    from gbdnn import cli

    monkeypatch.setattr(
        sys,
        "argv",
        ["gbdnn", "infer", str(small), str(small / "X.tsv"), "-o", str(small / "Y.tsv")],
    )
    for error in (MemoryError, gb.exceptions.OutOfMemory):

        def fail(*_, error=error, **__):
            raise error

        monkeypatch.setattr(gbdnn, "infer", fail)
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert ended.value.code == 2
        assert capsys.readouterr().err == "gbdnn: out of memory: fewer inputs need less\n"


def test_a_compressed_run_tells_the_edges_really_processed(tmp_path):
    report = tmp_path / "outcome.json"
    done = run("challenge", "--layers", 60, "--inputs", 900, "--compress", "--json", report)
    assert done.returncode == 0, done.stderr
    assert "EFFECTIVE" in done.stdout
    told = json.loads(report.read_text())
    assert told["compress"] is True
    assert 0 < told["edges_processed"] < told["problem"]["edges"] * 900
    plain = run("challenge", "--layers", 6, "--inputs", 50, "--json", report)
    assert "EFFECTIVE" not in plain.stdout
    told = json.loads(report.read_text())
    assert 0 < told["edges_processed"] <= told["problem"]["edges"] * 50
    assert f"; processed {told['edges_processed']:.4g} edges, " in plain.stdout


def test_info_tells_the_machine_and_the_compiled_code():
    found = json.loads(run("info", "--machine", "--json").stdout)
    assert found["machine"]["cores"] >= 1
    assert set(found["fused form"]) == {"float32", "float64"}
    assert "fused form" in run("info", "--machine").stdout
    fails("info", match="a PATH is needed, or --machine")
