"""How the command ends: by signals, with its workers, and where what it says cannot be written."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from shell import GBDNN, run, well

import gbdnn
from gbdnn.io import write_categories, write_network, write_tsv

PATIENCE = 300  # seconds; nothing here takes a tenth of them: a process that hangs is a failure


def slow(number):
    return pytest.param(number, marks=pytest.mark.slow)


def started(*arguments, **options):
    """The command as a process of a group of its own, as a terminal would start it."""
    return subprocess.Popen(
        [*GBDNN, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True, **options,
    )  # fmt: skip


def wait_until(process, there):
    """Wait for what the process brings about."""

    def is_there():
        try:
            return there()
        except FileNotFoundError:  # a folder was renamed while it was searched
            return False

    while not is_there():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)


def ended(process):
    """Exit code and output, when all processes that have the streams have ended."""
    try:
        out, err = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return process.returncode, out, err


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    from sklearn.datasets import load_digits

    root = tmp_path_factory.mktemp("digits")
    X, y = load_digits(return_X_y=True)
    np.save(root / "X.npy", X.astype(np.float32))
    np.save(root / "y.npy", y)
    return root


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Official files of a small problem, whose categories are right or wrong; and a store."""
    from gbdnn import challenge

    root = tmp_path_factory.mktemp("made")
    problem = challenge.generated(1024, 8, inputs=200, seed=1)
    found = gbdnn.categories(gbdnn.infer(problem.network, problem.features))
    assert 0 < len(found) < 200
    for name, truth in (("right", found), ("wrong", found[1:])):
        write_network(problem.network, root / name / "neuron1024")
        write_tsv(problem.features, root / name / "sparse-images-1024.tsv")
        write_categories(truth, root / name / "neuron1024-l8-categories.tsv")
    gbdnn.save(problem.network, root / "net")
    return root


def training(digits, out, *options):
    few = ["--hidden", 32, "--nthreads", 1]
    return ["train", digits / "X.npy", digits / "y.npy", "-o", out, *few, *options]


# Signals.

SIGNALS = [
    (signal.SIGINT, 130, "gbdnn: interrupted\n"),
    (signal.SIGTERM, 143, "gbdnn: ended by SIGTERM\n"),
    (signal.SIGHUP, 129, "gbdnn: ended by SIGHUP\n"),
]


@pytest.mark.parametrize(("number", "code", "told"), SIGNALS)
def test_a_signal_ends_the_command(number, code, told, digits, tmp_path):
    process = started(*training(digits, tmp_path / "net", "--epochs", 10**6))
    assert process.stdout.readline().startswith("epoch")
    process.send_signal(number)
    found, out, err = ended(process)
    assert (found, err) == (code, told)
    assert all(line.startswith("epoch") for line in out.splitlines())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, slow(signal.SIGHUP)])
def test_a_signal_leaves_no_temporary_folder(number, tmp_path):
    process = started("generate", tmp_path / "net", "--layers", 50_000, "--to", "tsv")
    wait_until(process, lambda: any(tmp_path.glob("*/*-l1.tsv")))
    process.send_signal(number)
    process.send_signal(number)  # as a terminal does that is closed: its shell does, too
    assert ended(process)[0] in (128 + number, -number)  # a shell sees the same
    assert list(tmp_path.iterdir()) == []


def test_a_signal_that_is_ignored_stays_so(digits, tmp_path):
    """As ``nohup`` starts it."""
    process = started(
        *training(digits, tmp_path / "net", "--epochs", 10**6),
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    process.stdout.readline()
    process.send_signal(signal.SIGHUP)
    for _ in range(3):
        assert process.stdout.readline().startswith("epoch")
    process.send_signal(signal.SIGTERM)
    assert ended(process)[0] == 143


@pytest.mark.parametrize(("number", "code", "told"), SIGNALS)
def test_a_signal_that_python_drops_comes_again(number, code, told, made, tmp_path, monkeypatch):
    """As it does with one that arrives while an object is deleted."""

    class Deleted:
        def __del__(self):
            os.kill(os.getpid(), number)

    def infer(*_, **__):
        Deleted()
        for _ in range(10**9):
            pass

    monkeypatch.setattr(gbdnn, "infer", infer)
    X = made / "right" / "sparse-images-1024.tsv"
    done = run("infer", made / "net", X, "-o", tmp_path / "Y.tsv")
    assert (done.returncode, done.stdout, done.stderr) == (code, "", told)


# Workers.


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    """A network and features for some minutes of work, in batches of less than a second."""
    root = tmp_path_factory.mktemp("long")
    W = sp.random_array((1024, 1024), density=1 / 32, rng=0, dtype=np.float32, format="csr")
    W.data[:] = 1 / 32
    layers = [gbdnn.Layer(W, activation="identity") for _ in range(20)]
    gbdnn.save(gbdnn.Network(layers), root / "net")
    ids = np.arange(400_000)
    X = sp.csr_array((np.ones(len(ids), np.float32), (ids, ids % 1024)))
    gbdnn.save(X, root / "X")
    return root


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_workers_end_with_the_command(number, long, tmp_path):
    process = started(
        "infer", long / "net", long / "X", "-o", tmp_path / "Y", "--to", "store", "--workers", 2,
        "--nthreads", 1, "--batch", 500, "--engine", "full", "--no-compress",
    )  # fmt: skip
    wait_until(process, lambda: any(tmp_path.glob("Y/part-*.json")))
    process.send_signal(number)
    # The streams are the workers', too: they are closed when the last of them has ended.
    code, out, err = ended(process)
    assert out == ""
    if number == signal.SIGKILL:
        assert code == -number
        assert "Traceback" not in err
    else:
        assert (code, err) == next((code, told) for each, code, told in SIGNALS if each == number)
    assert not (tmp_path / "Y" / "index.json").exists()


STARTING = """
import os, pathlib, sys, time
if "--multiprocessing-fork" in sys.orig_argv:
    folder = pathlib.Path(os.environ["STARTING"])
    (folder / str(os.getpid())).touch()
    while not (folder / "go").exists():
        time.sleep(0.01)
"""


def test_ctrl_c_while_workers_start_is_one_line(long, tmp_path):
    """A terminal sends it to all processes."""
    (tmp_path / "sitecustomize.py").write_text(STARTING)
    (tmp_path / "workers").mkdir()
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    process = started(
        "infer", long / "net", long / "X", "-o", tmp_path / "Y", "--to", "store", "--workers", 2,
        env={**os.environ, "PYTHONPATH": path, "STARTING": str(tmp_path / "workers")},
    )  # fmt: skip
    wait_until(process, lambda: len(list((tmp_path / "workers").iterdir())) == 2)
    os.killpg(process.pid, signal.SIGINT)
    (tmp_path / "workers" / "go").touch()
    assert ended(process) == (130, "", "gbdnn: interrupted\n")


# What is said cannot be written.


class Closed(io.StringIO):
    """A pipe that nobody reads."""

    def write(self, text):
        raise BrokenPipeError(32, "Broken pipe")


class Full(io.StringIO):
    """A file on a full disk: it takes what is written, and cannot keep it."""

    def flush(self):
        raise OSError(28, "No space left on device")


def commands(made, digits, out):
    """A command of each kind: its arguments, its exit code, and whether it makes `out`."""
    challenge = ["challenge", "--layers", 8, "--data"]
    features = ["--features", "digits", "--inputs", 5]
    return [
        (["--version"], 0, False),
        (["--help"], 0, False),
        (["info", made / "net"], 0, False),
        ([*challenge, made / "right", "--json", out], 0, True),
        ([*challenge, made / "wrong", "--json", out], 1, True),
        (["infer", made / "net", made / "right" / "sparse-images-1024.tsv", "-o", out], 0, True),
        (training(digits, out, "--epochs", 3), 0, True),
        (["generate", out, "--layers", 3], 0, True),
        (["generate", out, *features], 0, True),
        (["convert", made / "net", out], 0, True),
    ]


@pytest.mark.parametrize("k", range(10))
@pytest.mark.parametrize("stream", [Closed, Full])
def test_a_command_does_its_work_though_nobody_reads(k, stream, made, digits, tmp_path):
    arguments, code, makes = commands(made, digits, tmp_path / "out")[k]
    errors = io.StringIO()
    streams = [stream(), errors]
    done = run(*arguments, stream=lambda: streams.pop(0))
    told = "gbdnn: standard output cannot be written: No space left on device\n"
    if stream is Closed:
        assert (done.returncode, done.stderr) == (code, "")
    else:
        assert (done.returncode, done.stderr) == (code or 2, told)
    assert [each.name for each in tmp_path.iterdir()] == ["out"] * makes


@pytest.mark.parametrize("stream", [Closed, Full])
def test_errors_have_their_code_though_nobody_reads(stream, tmp_path):
    streams = [io.StringIO(), stream()]
    assert run("info", tmp_path / "no", stream=lambda: streams.pop(0)).returncode == 2


def test_a_reader_that_leaves_early_is_no_error(digits, tmp_path):
    for arguments in (["--version"], training(digits, tmp_path / "net", "--epochs", 2)):
        reader, writer = os.pipe()
        os.close(reader)
        process = subprocess.run(
            [*GBDNN, *map(str, arguments)], stdout=writer, stderr=subprocess.PIPE, check=False
        )
        os.close(writer)
        assert (process.returncode, process.stderr) == (0, b"")
    assert len(gbdnn.load(tmp_path / "net")) == 2


def test_a_terminal_that_goes_away_does_not_stop_the_work(digits, tmp_path):
    """``nohup`` or ``disown`` leave it running; bars are drawn there, too."""
    import pty

    watcher, terminal = pty.openpty()
    process = subprocess.Popen(
        [*GBDNN, *map(str, training(digits, tmp_path / "net", "--epochs", 300))],
        stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )  # fmt: skip
    os.close(terminal)
    written = b""
    while b"epoch" not in written:
        written += os.read(watcher, 4096)
    os.close(watcher)
    assert process.wait(PATIENCE) == 2
    assert len(gbdnn.load(tmp_path / "net")) == 2


def test_words_have_one_door():
    from gbdnn import cli

    for file in Path(cli.__file__).parent.glob("*.py"):
        assert "echo" not in file.read_text() or file.name == "terminal.py"


def test_an_answer_whose_reader_leaves_is_an_error(made, tmp_path):
    """What was asked for is not there, and nothing has failed a check."""
    os.mkfifo(tmp_path / "Y")
    X = made / "right" / "sparse-images-1024.tsv"
    command = ["infer", made / "net", X, "--layers", 1]
    answer = tmp_path / "Y.tsv"
    well(*command, "-o", answer)
    assert answer.stat().st_size > 2**17  # more than the FIFO holds
    reader = threading.Thread(target=lambda: (tmp_path / "Y").open("rb").close())
    reader.start()
    done = run(*command, "-o", tmp_path / "Y")
    reader.join()
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"gbdnn: {tmp_path / 'Y'}: cannot be written: Broken pipe\n"


@pytest.mark.parametrize("kind", [KeyError, EOFError, RuntimeError])
def test_a_fault_of_its_own_is_none_of_the_other_codes(kind, made, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise kind("it is broken")

    monkeypatch.setattr(gbdnn, "infer", fail)
    X = made / "right" / "sparse-images-1024.tsv"
    done = run("infer", made / "net", X, "-o", tmp_path / "Y.tsv")
    assert (done.returncode, done.stdout) == (3, "")
    assert "Traceback" in done.stderr
    last = done.stderr.splitlines()[-1]
    assert re.fullmatch(rf"gbdnn: a fault of gbdnn \S+: {kind.__name__}: .*it is broken.*", last)


def shell(line):
    """A line for the shell, `gbdnn` in it standing for the command."""
    command = line.replace("gbdnn", f"{sys.executable} -m gbdnn", 1)
    return subprocess.run(command, shell=True, capture_output=True, text=True, check=False)  # noqa: S602


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")  # noqa: PTH110
def test_standard_streams_that_take_nothing(tmp_path):
    few = "gbdnn challenge --layers 2 --inputs 20"
    done = shell(f"{few} --json {tmp_path}/full.json > /dev/full")
    assert done.returncode == 2
    assert done.stderr == "gbdnn: standard output cannot be written: No space left on device\n"
    done = shell(f"{few} --json {tmp_path}/closed.json >&-")
    assert (done.returncode, done.stderr) == (0, "")
    for name in ("full.json", "closed.json"):
        assert json.loads((tmp_path / name).read_text())["check"] == "PASSED"
    assert shell("gbdnn challenge --layers 0 2>&-").returncode == 2
    done = shell(f"{few} --no-check 2>&-")
    assert done.returncode == 0
    assert done.stdout.endswith("check       NOT CHECKED\n")
