"""What commands write to, and what they tell: the shell in this process."""

import gzip
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from shell import fails, run, well

import gbdnn
from gbdnn.cli.examples import EXAMPLES


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a network and features, each in a store."""
    from gbdnn.gallery import digits, features_from_images

    root = tmp_path_factory.mktemp("made")
    gbdnn.save(gbdnn.radixnet(1024, 8, seed=1), root / "net")
    gbdnn.save(features_from_images(digits(), 1024, inputs=200), root / "X")
    return root


def held(path):
    """All that a file or a folder holds."""
    files = [path] if path.is_file() else sorted(path.rglob("*"))
    return {file: file.read_bytes() for file in files if file.is_file()}


def test_what_holds_nothing_is_written_to(made, tmp_path):
    (tmp_path / "empty.tsv").write_text("")
    (tmp_path / "folder").mkdir()
    well("infer", made / "net", made / "X", "-o", tmp_path / "empty.tsv", "--categories")
    well("generate", tmp_path / "folder", "--layers", 1)
    well("infer", made / "net", made / "X", "-o", "/dev/null")
    out = tmp_path / "out.tsv"
    out.write_text("before\n")
    command = [sys.executable, "-m", "gbdnn", "infer", made / "net", made / "X", "--categories"]
    with out.open("a") as file:
        done = subprocess.run([*command, "-o", "/dev/stdout"], stdout=file, check=False)
    assert done.returncode == 0
    assert out.read_text().startswith("before\n")


# What is told


def test_more_threads_than_cores_are_warned_of(made, tmp_path, monkeypatch):
    from gbdnn.cli import options

    monkeypatch.setattr(options, "machine", lambda: {"cores": 2})
    done = run("infer", made / "net", made / "X", "-o", tmp_path / "a.tsv", "--nthreads", 3)
    assert done.returncode == 0
    assert done.stderr.startswith("gbdnn: warning: --nthreads 3: this machine has 2 cores")
    assert len(done.stderr.splitlines()) == 1
    few = ["challenge", "--layers", 2, "--inputs", 20, "--no-check"]
    assert "--nthreads 64: " in run(*few, "--nthreads", 64).stderr
    assert run(*few, "--nthreads", 2).stderr == run(*few).stderr == ""
    options.warn_of_threads(2, 2)


def test_threads_of_all_workers_are_counted(monkeypatch, capsys):
    from gbdnn.cli import options

    monkeypatch.setattr(options, "machine", lambda: {"cores": 4})
    for nthreads, workers, warned in [(2, 2, False), (2, 3, True), (None, 9, False)]:
        options.warn_of_threads(nthreads, workers)
        assert bool(capsys.readouterr().err) == warned


def test_an_ending_that_nobody_knows(made, tmp_path):
    match = "(in the shell --to) says it, or one of .mtx, .mtx.gz, .onnx, .pt, .pth; "
    for name in ("net.xyz", "net.tsv", "net.h5"):
        fails("generate", tmp_path / name, "--layers", 1, match=match)
        fails("convert", made / "net", tmp_path / name, match=match)
    few = ["--features", "digits", "--inputs", 2]
    fails("generate", tmp_path / "X.npy", *few, match="--to) says it, or .tsv, .tsv.gz; ")
    assert not list(tmp_path.iterdir())
    for name in ("net.xyz", "net-0.3"):
        to = ["--to", "store"] if name == "net.xyz" else []
        well("generate", tmp_path / name, "--layers", 1, *to)
        well("generate", tmp_path / name, "--layers", 2, "--force")  # it is a store already
        assert len(gbdnn.load(tmp_path / name)) == 2


def test_errors_recommend_options_of_the_command(made, tmp_path):
    lost = fails("generate", tmp_path / "f", "--radices", "2,2", "--to", "tsv", match="no place")
    assert "--lossy" not in lost
    assert "--lossy" in fails("convert", made / "net", tmp_path / "f", "--to", "matrix-market",
                              match="no place")  # fmt: skip
    (tmp_path / "net.xyz").write_text("?")
    said = fails("train", "X.npy", "y.npy", "-o", tmp_path / "net.onnx", match="NET is a store")
    assert "--to" not in said
    with pytest.raises(gbdnn.FormatError, match=r"format\? format= \(gbdnn convert --from"):
        gbdnn.load(tmp_path / "net.xyz")


def test_info_takes_what_its_help_says(made, tmp_path):
    gbdnn.io.write_tsv(gbdnn.load(made / "X"), tmp_path / "X.tsv.gz")
    gbdnn.io.write_categories([3, 5, 8], tmp_path / "ids.tsv")
    told = well("info", tmp_path / "X.tsv.gz")
    assert "kind        features\nlast input  200\nlast neuron 827\nentries     31,018\n" in told
    facts = json.loads(well("info", tmp_path / "ids.tsv", "--json"))
    assert (facts["kind"], facts["categories"], facts["format"]) == ("categories", 3, "tsv")
    assert facts["bytes"] == (tmp_path / "ids.tsv").stat().st_size
    fails("info", tmp_path / "ids.tsv", "--check", match="--check: ")
    (tmp_path / "bad.tsv").write_text("one\n")
    fails("info", tmp_path / "bad.tsv", match="bad.tsv, line 1")


def damaged(data, how):
    """The bytes of a gzip file after an accident."""
    middle = len(data) // 2
    return {
        "another text": b"no numbers\n",
        "nothing": b"",
        "a cut header": data[:5],
        "cut": data[:middle],
        "no checksum": data[:-8],
        "a wrong checksum": data[:-8] + bytes(8),
        "a damaged stream": data[:20] + bytes(100) + data[120:],
        "more": data + b"more",
    }[how]


@pytest.mark.parametrize("name", ["X.tsv.gz", "ids.tsv.gz"])
@pytest.mark.parametrize(
    "how",
    [
        "another text", "nothing", "a cut header", "cut", "no checksum", "a wrong checksum",
        "a damaged stream", "more",
    ],
)  # fmt: skip
def test_a_damaged_input_is_an_error_about_it(name, how, made, tmp_path):
    file = tmp_path / name
    if name == "X.tsv.gz":
        gbdnn.io.write_tsv(gbdnn.load(made / "X"), file)
        commands = [
            ["info", file],
            ["infer", made / "net", file, "-o", tmp_path / "Y"],
            ["train", file, tmp_path / "labels.txt", "-o", tmp_path / "Y"],
        ]
        (tmp_path / "labels.txt").write_text("0\n" * 200)
    else:
        gbdnn.io.write_categories(np.arange(0, 1000, 3), file)
        commands = [
            ["info", file],
            ["train", made / "X", file, "-o", tmp_path / "Y"],
        ]
    file.write_bytes(damaged(file.read_bytes(), how))
    for command in commands:
        fails(*command, match=f"gbdnn: {file}")
    assert not (tmp_path / "Y").exists()


def test_info_reads_what_is_not_compressed_after_all(made, tmp_path):
    file = tmp_path / "X.tsv.gz"
    gbdnn.io.write_tsv(gbdnn.load(made / "X"), file)
    file.write_bytes(gzip.decompress(file.read_bytes()))
    facts = json.loads(well("info", file, "--json"))
    assert (facts["kind"], facts["last input"]) == ("features", 200)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_takes_no_other_outcome_away(tmp_path):
    pytest.importorskip("matplotlib")
    for name in ("plot.png", "full.json"):
        (tmp_path / name).symlink_to("/dev/full")
    few = ["challenge", "--layers", 2, "--inputs", 20]
    plotted = [*few, "--plot", tmp_path / "plot.png", "--json", tmp_path / "outcome.json"]
    for arguments in (plotted, [*few, "--json", tmp_path / "full.json"]):
        done = run(*arguments)
        assert done.returncode == 2
        assert "\ncheck       PASSED" in done.stdout
        assert "No space left on device" in done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert json.loads((tmp_path / "outcome.json").read_text())["check"] == "PASSED"


class Terminal(io.StringIO):
    """What is written to a terminal."""

    def isatty(self):
        return True


def test_no_timed_run_has_a_callback(monkeypatch):
    from gbdnn.challenge import outcome

    infer, options = outcome.infer, []

    def watched(*arguments, **given):
        options.append(given)
        return infer(*arguments, **given)

    monkeypatch.setattr(outcome, "infer", watched)
    done = run("challenge", "--layers", 6, "--inputs", 50, "--repeat", 3, stream=Terminal)
    assert done.returncode == 0
    assert len(options) == 3
    assert all(each.get("callback") is None for each in options)


def test_a_bar_tells_the_work_done_and_is_full_when_nothing_is_left(monkeypatch):
    from types import SimpleNamespace

    from gbdnn.cli import bars
    from gbdnn.engine.progress import current

    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setattr(sys, "stderr", Terminal())
    with bars.Bars() as bars, bars.inference(2):
        work, seen = current(), []

        def look():
            list(bars.get_renderables())
            (task,) = bars.tasks
            seen.append((task.visible, task.total, task.completed, task.description))

        look()
        for _ in range(3):
            work.begin([SimpleNamespace(edges=10)] * 2, {0: 4})
            look()
            for k in (0, 1):
                work.computed(k, [4], 4)
                look()
            work.end()
            look()
    first, *runs = seen
    assert first[:2] == (True, None)
    for number in range(3):
        begun, half, nearly, ended = runs[4 * number : 4 * number + 4]
        assert begun[:2] == (True, None)  # nobody knows yet: weights are read and prepared
        assert half[:3] == (True, 1.0, 0.5)
        assert nearly[:3] == (True, 1.0, 0.99)
        assert not ended[0]
        assert begun[3] == (f"inference {number + 1} of 2" if number < 2 else "inference")


def test_help_is_not_cut_off(monkeypatch):
    for columns in ("80", "40"):
        monkeypatch.setenv("COLUMNS", columns)
        told = well("--help")
        assert "..." not in told.split("Commands:")[1]
        words = " ".join(told.split())
        assert "neural network inference and training in the language" in words
        for name in EXAMPLES:
            first = getattr(gbdnn.cli.entry, name).__doc__.split("\n\n")[0]
            assert first.strip(".") in words


def test_both_helps_say_why_equal_inputs_are_computed_once_or_not():
    assert "(default: no: the edge rate would be an effective one" in " ".join(
        well("challenge", "--help").split()
    )
    assert "the answer is the same" in " ".join(well("infer", "--help").split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["challenge", "--engine", "cuda"], "'--engine': 'cuda' is not one of 'auto', "),
        (["generate", "net", "--neurons", 1000], "gbdnn.gallery.radix_layers (gbdnn generate"),
        (
            ["convert", "NET", "net", "--to", "torch"],
            "clip 32 (all layers), the activation relu (l",
        ),
        (["generate", "net", "--radices", "2,2", "--to", "tsv"], "unbounded activations (all l"),
    ],
)
def test_messages_in_plain_words(arguments, message, made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = fails(*[made / "net" if each == "NET" else each for each in arguments], match=message)
    assert "Value error" not in told


def test_one_of_a_thing_has_no_s():
    from gbdnn.cli.terminal import counted

    assert [counted(n, "layer") for n in (0, 1, 1200)] == ["0 layers", "1 layer", "1,200 layers"]
    assert [counted(n, "batch") for n in (1, 2)] == ["1 batch", "2 batches"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_help_has_examples_whose_options_there_are(name):
    told = well(name, "--help")
    lines = [f"  {line}" for line in EXAMPLES[name].strip().splitlines()]
    assert "Examples:\n" + "\n".join(f"  {line}" for line in lines) in told
    options = told.split("Examples:")[0]
    for line in lines:
        assert f"gbdnn {name}" in line
        for word in line.split():
            assert not word.startswith("-n") or word == "-n"
            assert not word.startswith("--") or f" {word} " in options, line


def test_the_shell_completes():
    def completed(words, at):
        told = {"_GBDNN_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(at)}
        done = subprocess.run(
            [sys.executable, "-m", "gbdnn"], env={**os.environ, **told}, capture_output=True,
            text=True, check=False,
        )  # fmt: skip
        return done.stdout.split()

    assert completed("gbdnn ch", 1) == ["challenge"]
    assert completed("gbdnn convert a b --to o", 5) == ["onnx"]
