"""How a command ends: by a signal, with its workers, and when its output is not read."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from shell import GBDNN, fails, run, well

import gbdnn
from gbdnn import cli

SIGNALS = [
    (signal.SIGINT, 130, "gbdnn: interrupted\n"),
    (signal.SIGTERM, 143, ""), (signal.SIGHUP, 129, ""),
]  # fmt: skip


@pytest.fixture
def files(tmp_path):
    """Features and labels."""
    np.save(tmp_path / "X.npy", np.random.default_rng(0).random((40, 8), np.float32))
    np.save(tmp_path / "y.npy", np.arange(40) % 4)
    return tmp_path


def training(files, *options):
    few = ["--hidden-layer-sizes", 8, "--density", 0.5, "--nthreads", 1, *options]
    return ["train", files / "X.npy", files / "y.npy", "-o", files / "net", *few]


def started(*command, **options):
    pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([*map(str, command)], text=True, **pipes, **options)


def test_ctrl_c_ends_the_command(files):
    process = started(*GBDNN, *training(files, "--epochs", 10**9))
    assert process.stdout.readline().startswith("epoch")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert (process.returncode, err) == (130, "gbdnn: interrupted\n")
    assert all(line.startswith("epoch") for line in out.splitlines())
    assert sorted(path.name for path in files.iterdir()) == ["X.npy", "y.npy"]


def test_a_killed_command_continues_from_its_checkpoint(files):
    command = training(files, "--epochs", 90)
    kept = [*command, "--checkpoint", files / "run.safetensors"]
    # The pipe holds fewer lines than there are epochs: the command waits for its reader.
    process = started(*GBDNN, *kept, pipesize=4096)
    for _ in range(3):
        assert process.stdout.readline().startswith("epoch")
    process.kill()
    process.communicate()
    assert not (files / "net").exists()
    printed = well(*kept)
    assert 1 < len(printed.splitlines()) < 90
    assert "epoch  89" in printed
    assert "epochs      90\n" in well("info", files / "run.safetensors")
    fails(*kept, "--force", "--seed", 1, match="seed")
    net = gbdnn.load(files / "net").loaded()
    well(*command, "--force")
    assert gbdnn.load(files / "net").isequal(net)


@pytest.mark.slow
def test_nohup_ignores_the_end_of_the_terminal(files):
    """SIGTERM still ends the command."""
    process = started(
        *GBDNN, *training(files, "--epochs", 10**9),
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )  # fmt: skip
    process.stdout.readline()
    process.send_signal(signal.SIGHUP)
    for _ in range(3):
        assert process.stdout.readline().startswith("epoch")
    process.terminate()
    process.communicate()
    assert process.returncode == 143


@pytest.fixture
def handlers():
    """Keep the handlers of this process."""
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP)}
    for each in before:
        signal.signal(each, signal.SIG_DFL)
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("to", ["tsv", "store"])
@pytest.mark.parametrize(("number", "code", "message"), SIGNALS)
def test_a_signal_leaves_nothing_half_written(number, code, message, to, tmp_path, monkeypatch):
    def show(_bar, done, _total):
        if done == 3:
            signal.raise_signal(number)
            pytest.fail("the signal did not end the command")

    monkeypatch.setattr(cli.terminal.Bar, "show", show)
    done = run("generate", tmp_path / "net", "--layers", 6, "--to", to)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", message)
    assert not [path for path in tmp_path.rglob("*") if path.name != "net"]


WAITING = """
import os, signal
from gbdnn.cli.workers import executor

if __name__ == "__main__":
    with executor(1, None, False) as pool:
        pool.submit(os.getpid).result()
        print("ready", flush=True)
        pool.submit(signal.pause).result()
"""


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)]
)
def test_workers_end_with_the_command(number, tmp_path):
    (tmp_path / "waiting.py").write_text(WAITING)
    process = started(sys.executable, tmp_path / "waiting.py", start_new_session=True)
    assert process.stdout.readline() == "ready\n"
    # A terminal sends Ctrl-C to workers, too.
    os.kill(process.pid, number) if number == signal.SIGKILL else os.killpg(process.pid, number)
    _, err = process.communicate()  # returns when the worker has closed the streams, too
    assert process.returncode == -number
    assert "KeyboardInterrupt" in err or number == signal.SIGKILL


STARTING = """
import signal
import numpy as np
from gbdnn.cli.entry import _end
from gbdnn.cli.workers import executor

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)
    with executor(2, None, False) as pool:
        tasks = [pool.submit(np.sum, np.ones(10**6)) for _ in range(8)]  # the pipe is full
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            print(sum([each.cancel() for each in tasks]), flush=True)
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
"""


def test_a_command_ends_while_its_workers_start(tmp_path):
    """The pool has tasks that nobody will read, and others that were cancelled."""
    (tmp_path / "starting.py").write_text(STARTING)
    process = started(sys.executable, tmp_path / "starting.py", start_new_session=True)
    try:
        out, _ = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    assert process.returncode == 143
    assert int(out) > 0


def test_a_closed_pipe_does_not_lose_the_result(files):
    reader, writer = os.pipe()
    os.close(reader)
    command = [*GBDNN, *map(str, training(files, "--epochs", 3))]
    process = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (process.returncode, process.stderr) == (0, b"")
    assert len(gbdnn.load(files / "net")) == 2


@pytest.mark.slow
def test_closed_standard_streams(files):
    command = " ".join(map(str, [*GBDNN, *training(files, "--epochs", 1)]))
    done = subprocess.run(f"{command} >&- 2>&-", shell=True, capture_output=True, check=False)  # noqa: S602
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert len(gbdnn.load(files / "net")) == 2


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")  # noqa: PTH110
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_an_error(files, unbuffered, monkeypatch):
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    gbdnn.save(gbdnn.gallery.radixnet(1024, 1), files / "net")
    command = [*GBDNN, "info", str(files / "net")]
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 2
    assert b"No space left on device" in done.stderr
