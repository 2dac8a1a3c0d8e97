"""Kills, Ctrl-C and full disks at random moments of the calls that write stores and checkpoints.

    python tests/stress/kills.py [CASES] [SEED]

What was whole before is whole afterwards, as the old content or the new, and the next call
finishes. A call runs in a forked child of a process that has not used GraphBLAS. The full disk is a
limit on the size of files.
"""

import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

import numpy as np

import gbdnn
from gbdnn import errors

INTERRUPTED = 130


def infer(root, out):
    """Write an answer of ten parts; a second call computes those that are missing."""
    net, X = gbdnn.load(root / "net"), gbdnn.io.open_features(root / "X")
    whole, reports = len(list(out.glob("part-*.json"))), []
    options = {"batch_size": 100, "engine": "full"}
    gbdnn.infer_to_store(net, X, out, progress=lambda *k: reports.append(k), **options)
    assert reports[0][0] in (100 * whole, 1000)


def replace_answer(root, out):
    """Replace a store by an answer."""
    net, X = gbdnn.load(root / "net"), gbdnn.io.open_features(root / "X")
    gbdnn.infer_to_store(net, X, out, batch_size=100, engine="full", replace=True)


def train(root, out):
    """Train with a checkpoint."""
    y = np.arange(1000) % 10
    net = gbdnn.training.initialized(gbdnn.training.erdos_renyi([1024, 64, 10], 0.1))
    X = np.random.default_rng(1).random((1000, 1024), np.float32)
    gbdnn.train(net, X, y, epochs=8, checkpoint=out, nthreads=1)


def save(root, out):
    """Save a network over another store."""
    gbdnn.save(gbdnn.load(root / "net", lazy=True), out, replace=True)


def convert(root, out):
    """Convert the challenge's files over another store."""
    gbdnn.io.convert(root / "files", out, replace=True)


def content(path):
    """Return something that is equal for equal content, None if nothing is there."""
    if not path.is_file() and not (path / "index.json").exists():
        return None
    if path.is_dir() and '"kind": "features"' in (path / "index.json").read_text():
        return [each.tobytes() for each in gbdnn.io.read_features(path).to_coo()]
    layers = gbdnn.load(path) if path.is_dir() else gbdnn.training.read_run(path).network
    return [(W.weights.to_coo()[2].tobytes(), np.asarray(W.bias).tobytes()) for W in layers]


def prepare(root):
    """Make what the calls read and replace."""
    net = gbdnn.gallery.radixnet(1024, 40)
    gbdnn.save(net, root / "net")
    gbdnn.save(net[:8], root / "files", "tsv")
    dense = np.random.default_rng(0).random((1000, 1024)) < 0.1
    gbdnn.io.write_features(dense.astype(np.float32), root / "X")
    gbdnn.save(gbdnn.gallery.radixnet(1024, 3, seed=7), root / "old")


def check(call, root, out, expected):
    """Raise AssertionError unless the output is whole, and the next call finishes."""
    old = content(root / "old") if call in (save, convert, replace_answer) else None
    now, new = content(out), content(expected)
    assert call is train or now in (old, new), "the output is damaged"
    call(root, out)
    assert content(out) == new, "the next call gave another result"
    if out.is_dir():
        assert not [path for path in out.iterdir() if "tmp" in path.name or "part" in path.name]


def remove(path):
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def child(function, *arguments, limit=None):
    """Run a function in a forked child; return the process id."""
    if pid := os.fork():
        return pid
    try:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        function(*arguments)
        os._exit(0)
    except KeyboardInterrupt:
        os._exit(INTERRUPTED)
    except errors.OutputError:
        os._exit(1)
    except BaseException:  # the parent must not go on twice
        traceback.print_exc()
        os._exit(2)


def ended(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def end(how, call, root, out, seconds, draw):
    """Run the call until it is ended at a random moment; return whether its end was expected."""
    if how == "full disk":
        return ended(child(call, root, out, limit=draw.randrange(4 << 20))) in (0, 1)
    pid = child(call, root, out)
    time.sleep(draw.uniform(0, seconds))
    os.kill(pid, how)  # it is not waited for before, so the number is not another process's
    return ended(pid) in (0, -how, INTERRUPTED)


def main(cases=200, seed=0):
    draw, faults = random.Random(seed), 0
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        assert ended(child(prepare, root)) == 0
        calls, seconds = (infer, replace_answer, train, save, convert), {}
        for call in calls:
            began, expected = time.monotonic(), root / f"{call.__name__}-expected"
            assert ended(child(call, root, expected)) == 0
            seconds[call] = time.monotonic() - began
        for case in range(cases):
            call = calls[case % len(calls)]
            how, out = draw.choice([signal.SIGKILL, signal.SIGINT, "full disk"]), root / "out"
            if call in (save, convert, replace_answer):
                shutil.copytree(root / "old", out)
            sound = end(how, call, root, out, seconds[call], draw)
            expected = root / f"{call.__name__}-expected"
            if not sound or ended(child(check, call, root, out, expected)) != 0:
                faults += 1
                print(f"case {case}: {call.__name__}, {how}: FAULT", flush=True)
            remove(out)
    print(f"{cases} cases, {faults} faults")
    return faults


if __name__ == "__main__":
    sys.exit(bool(main(*map(int, sys.argv[1:]))))
