"""`gbdnn challenge`, and what all commands share: help, completion, wrong usage."""

import json
import re

import numpy as np
import pytest
from calls import raising
from shell import fails, run, well

import gbdnn
from gbdnn.io import read_categories, write_categories, write_features
from gbdnn.runtime.cores import cores

COMMANDS = ("challenge", "infer", "train", "generate", "convert", "info")
FEW = ["challenge", "--layers", 6, "--inputs", 40]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Official files of a small problem; the truth is SciPy's."""
    from gbdnn import challenge
    from gbdnn.challenge.scipy_check import scipy_categories

    problem = challenge.generate(1024, 8, inputs=200, seed=1)
    truth = scipy_categories(problem.network, problem.features)
    assert 0 < len(truth) < 200
    root = tmp_path_factory.mktemp("files")
    gbdnn.save(problem.network, root / "neuron1024", "tsv")
    write_features(problem.features, root / "sparse-images-1024.tsv")
    write_categories(truth, root / "neuron1024-l8-categories.tsv")
    return root


def test_what_is_printed():
    facts = dict(re.match(r"(.{11}) (.*)", line).groups() for line in well(*FEW).splitlines())
    assert facts["problem    "].startswith("1024 neurons x 6 layers")
    assert facts["edges      "].startswith("196,608 (x 40 inputs")
    assert facts["first call "].endswith(" s, includes preparation")
    assert facts["seconds    "].endswith(", median of 3")
    assert facts["check      "].startswith("PASSED (against SciPy in FP64)")


def test_several_numbers_of_threads(tmp_path):
    pytest.importorskip("matplotlib")
    report, plot = tmp_path / "outcome.json", tmp_path / "threads.svg"
    printed = well(*FEW, "--nthreads", "1,3", "--repeat", 2, "--json", report, "--plot", plot)
    assert re.search(r"^auto +strong +1 .* 1 \(1, 1\) ", printed, re.MULTILINE)
    assert re.search(r"^auto +strong +3[* ] ", printed, re.MULTILINE)
    outcome = json.loads(report.read_text())
    assert (outcome["nthreads"], len(outcome["seconds"]), outcome["check"]) == (3, 2, "PASSED")
    study = gbdnn.thread_scaling.Scaling.from_json(outcome["scaling"])
    assert {(run.threads, run.round) for run in study.runs} == {(1, 0), (1, 1), (3, 0), (3, 1)}
    assert len(study.runs) == 4
    assert [run.seconds for run in study.runs if run.threads == 3] == outcome["seconds"]
    assert "<svg" in plot.read_text()
    fails(*FEW, "--nthreads", "1,2", "--workers", 2, match="cannot be combined with workers")
    fails(*FEW, "--nthreads", "1,,2", match="separated by commas, such as 1,2,4, not '1,,2'")


def test_options_of_the_challenge(tmp_path):
    report = tmp_path / "outcome.json"
    well("challenge", "--neurons", 4096, "--layers", 9, "--inputs", 50, "--seed", 4,
         "--nthreads", 1, "--repeat", 3, "--engine", "full", "--json", report)  # fmt: skip
    outcome = json.loads(report.read_text())
    problem = outcome["problem"]
    assert [problem[each] for each in ("neurons", "layers", "inputs", "seed")] == [4096, 9, 50, 4]
    assert (outcome["nthreads"], len(outcome["seconds"])) == (1, 3)
    assert outcome["kernels"] == {"full": 1.0}
    well(*FEW, "--no-check", "--nthreads", -1, "--json", report, "--force")
    assert json.loads(report.read_text())["nthreads"] == cores()
    printed = well(*FEW, "--engine", "sparse", "--no-check", "--deduplicate")
    assert "engine      sparse, kernels sparse 100%\n" in printed
    assert "EFFECTIVE: equal inputs computed once" in printed
    assert printed.endswith("check       NOT CHECKED\n")


def test_official_files(folder):
    printed = well("challenge", "--data", folder, "--layers", 8)
    assert "PASSED (against the given categories)" in printed


def test_a_failed_check_is_exit_code_1(folder, tmp_path):
    for path in folder.iterdir():
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "neuron1024-l8-categories.tsv").unlink()
    truth = read_categories(folder / "neuron1024-l8-categories.tsv")
    write_categories(np.arange(26), tmp_path / "neuron1024-l8-categories.tsv")
    assert truth[0] >= 26
    done = run("challenge", "--data", tmp_path, "--layers", 8)
    assert (done.returncode, done.stderr) == (1, "")
    (tmp_path / "neuron1024-l8-categories.tsv").unlink()
    fails("challenge", "--data", tmp_path, "--layers", 8, match="; pass --no-check to run without")
    unexpected = ", ".join(str(each) for each in truth + 1)  # the files count from 1
    assert (
        "FAILED (against the given categories); 26 missing (ids from 1): 1, 2, 3, 4, 5, 6, 7, 8,"
        f" 9, 10, ...; {len(truth)} unexpected (ids from 1): {unexpected};"
    ) in done.stdout


def test_a_plot_of_the_run(tmp_path):
    pytest.importorskip("matplotlib")
    well(*FEW, "--plot", tmp_path / "run.png")
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
    # Reported before the work, which would take long.
    long = ["challenge", "--neurons", 65536, "--layers", 1920]
    fails(*long, "--plot", tmp_path / "run.jpg", match=".png, .svg or .pdf")
    fails(*long, "--plot", tmp_path / "no" / "run.png", match="does not exist")
    fails(*long, "--json", tmp_path / "no" / "outcome.json", match="does not exist")


def test_the_outcome_is_saved_before_the_check(tmp_path, monkeypatch):
    monkeypatch.setattr(gbdnn.challenge.Outcome, "checked", raising(KeyboardInterrupt))
    done = run(*FEW, "--json", tmp_path / "outcome.json")
    assert (done.returncode, done.stderr) == (130, "gbdnn: interrupted\n")
    assert "categories  " in done.stdout
    assert json.loads((tmp_path / "outcome.json").read_text())["check"] == "NOT CHECKED"


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["challenge", "--nonsense"], "No such option: --nonsense"),
        (["challenge", "--layers", "0"], "layers"),
        (["challenge", "--data", "nowhere", "--seed", "1"], "--data and --seed are mutually"),
        (["challenge", "--engine", "cuda"], "'cuda' is not one of 'auto', "),
        (["challenge", "--memory", "1XB"], "'1XB' is not a size such as"),
        (["challenge", "--workers", "2", "--mpi"], "--workers and --mpi are mutually exclusive"),
        (["challenge", "--mpi"], "mpiexec -n 5 python -m mpi4py.futures"),
        (["infer"], "NETWORK"),
        (["infer", "nowhere", "X.tsv", "-o", "Y.tsv"], "nowhere: no such file or folder"),
        (["info"], "missing argument PATH"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_wrong_usage(arguments, match, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fails(*arguments, match=match)
    assert list(tmp_path.iterdir()) == []


def test_version_and_help(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")  # a narrow terminal shortens the commands' sentences
    assert well("--version") == f"gbdnn {gbdnn.__version__}\n"
    for printed in (well(), well("--help")):
        words = printed.partition("Commands:")[2].split()
        assert set(COMMANDS) < set(words)
        assert not any(word.endswith("...") for word in words)


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_of_the_help_have_options_that_exist(name):
    examples, options = well(name, "--help").partition("Examples:\n")[2].split("\n\n", 1)
    assert f"    gbdnn {name}" in examples
    for option in re.findall(r" (--?[a-z-]+)", examples):
        assert re.search(rf"^  .*{option}\b", options, re.MULTILINE), option


@pytest.mark.parametrize(("words", "found"), [("ch", "challenge"), ("convert a b --to o", "onnx")])
def test_the_shell_completes(words, found, monkeypatch):
    monkeypatch.setenv("_GBDNN_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"gbdnn {words}")
    monkeypatch.setenv("COMP_CWORD", str(len(words.split())))
    assert run().stdout.split() == [found]
