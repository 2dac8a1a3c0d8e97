"""Kills and Ctrl-C at random moments of every command that writes a store, and of what resumes.

    python tests/stress/kills.py COUNT SEED

A run is ended by SIGKILL, SIGINT or SIGTERM. What is there afterwards is the old store, or the new
one, or one that can be resumed: it is never taken for a finished one, and what it holds never
becomes less. In the end the store is, bit for bit, that of an uninterrupted run, and no complete
part has been computed twice.

Every run is a forked child (`children`).
"""

import os
import random
import shutil
import signal
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import safetensors.numpy
import scipy.sparse
import xxhash
from children import INTERRUPTED, Child
from children import command as run_command

import gbdnn
import gbdnn.distributed.executors.parts
import gbdnn.io.store.parts
from gbdnn.distributed.executors import checkpoint

NEURONS, LAYERS, INPUTS, BATCH = 1024, 24, 4096, 256
MEMORY = 32 << 20  # windows of 6 layers
IMPORTED = (safetensors.numpy, scipy.sparse, xxhash)  # once, and not in every child
AGAIN = 0.7  # probability that a run that goes on is killed, too
SHARD = 300_000  # bytes: a layer or two
SIGNALS = [signal.SIGKILL, signal.SIGINT, signal.SIGTERM]
TERMINATED = 128 + signal.SIGTERM


def command(*arguments):
    if (code := run_command(*arguments)) in (INTERRUPTED, TERMINATED):
        return code
    if code:
        raise RuntimeError(f"{arguments}: exit code {code}")
    return 0


def log(path, number):
    """Add a number to the list of what was computed; a kill may come right after."""
    with path.open("a") as file:
        file.write(f"{number}\n")


def numbers(path):
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def to_store(root, out, seen, **options):
    net, X = gbdnn.load(root / "net", lazy=True), gbdnn.io.open_features(root / "X")
    gbdnn.infer_to_store(
        net, X, out, engine="full", batch=BATCH, stats=lambda each: log(seen, each.batch), **options
    )


def with_threads(root, out, seen):
    with ThreadPoolExecutor(2) as pool:
        to_store(root, out, seen, executor=pool)


def with_processes(root, out, seen):
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        to_store(root, out, seen, executor=pool)


def streamed(root, out, seen):
    checkpoint._WORTH = 0
    stored = gbdnn.load(root / "net", lazy=True)

    def read(k):
        log(seen, k)
        return stored[k]

    net = gbdnn.Network.lazy(stored.infos, read, reopen=stored.source.reopen)
    X = gbdnn.io.open_features(root / "X")
    gbdnn.infer_to_store(net, X, out, engine="full", memory=MEMORY)


def infer(root, out, seen):
    return command(
        "infer", root / "net", root / "X", "-o", out, "--to", "store", "--engine", "full",
        "--batch", BATCH, "--force",
    )  # fmt: skip


def generate(root, out, seen):
    return command("generate", out, "--layers", LAYERS, "--force")


def convert(root, out, seen):
    return command("convert", root / "net", out, "--force")


def convert_tsv(root, out, seen):
    return command("convert", root / "files", out, "--force")


def save(root, out, seen):
    gbdnn.save(gbdnn.load(root / "Y"), out)


def categories(root, out, seen):
    return command(
        "infer", root / "net", root / "X", "-o", out, "--to", "store", "--categories", "--force"
    )


# Each run: what the store holds in the end, and whether a killed run is gone on with.
RUNS = {
    generate: ("net", True),
    convert: ("net", True),
    convert_tsv: ("net", True),
    infer: ("Y", True),
    to_store: ("Y", True),
    with_threads: ("Y", True),
    streamed: ("Y", True),
    save: ("Y", False),
    categories: ("ids", False),
    with_processes: ("Y", True),
}


def prepare(root):
    """Make what the runs read, and what they write in the end."""
    from gbdnn.gallery import digits, features_from_images

    net = gbdnn.radixnet(NEURONS, LAYERS)
    gbdnn.save(net, root / "net")
    (root / "files").mkdir()
    gbdnn.io.write_network(net, root / "files")
    gbdnn.save(features_from_images(digits(), NEURONS, inputs=INPUTS), root / "X")
    Y = gbdnn.infer(net, gbdnn.load(root / "X"), engine="full")
    gbdnn.save(Y, root / "Y")
    gbdnn.save(gbdnn.categories(Y), root / "ids")
    gbdnn.save(np.arange(3), root / "old")
    gbdnn.infer(net, gbdnn.load(root / "X"))  # what is compiled is compiled


def equal(one, other):
    a, b = gbdnn.load(one), gbdnn.load(other)
    if type(a) is not type(b):
        return False
    return np.array_equal(a, b) if isinstance(a, np.ndarray) else a.isequal(b)


def look(root, out, wanted, before, after):
    """Check what a kill has left; write what is done into a file."""
    old = "none" if not (out / "index.json").exists() else "new"
    if old == "none":
        try:
            gbdnn.load(out)
        except gbdnn.MissingFileError:
            pass
        else:
            raise AssertionError("what is not finished was loaded")
    elif equal(out, root / "old"):
        old = "old"
    else:
        assert equal(out, root / wanted), "neither the old store nor the new one"
    left = gbdnn.io.find_unfinished(out)
    done = 0 if left is None else 1000 * left.done + (left.layer or 0)
    if old == "new":
        done = 10**9
    assert done >= before, f"{done} is done, {before} was"
    after.write_text(str(done))


def attack(root, count, seed, runs):
    """End so many runs; return one line."""
    chance = random.Random(seed)
    errors = root / "errors.txt"
    Child(errors, prepare, root).well()
    kills, chains, longest, resumed = 0, 0, {}, 0
    faults = []
    order = []
    while kills < count:
        order = order or chance.sample(runs, len(runs))
        run = order.pop()
        if run not in longest:
            began = time.monotonic()
            Child(errors, run, root, root / "out", root / "first", shard_bytes=SHARD).well()
            longest[run] = time.monotonic() - began
            shutil.rmtree(root / "out")
        wanted, goes_on = RUNS[run]
        chains += 1
        out, seen, after = root / f"out{chains}", root / f"seen{chains}", root / "after"
        if chance.random() < 0.5:
            shutil.copytree(root / "old", out)
        done = 0
        try:
            while True:
                child = Child(errors, run, root, out, seen, shard_bytes=SHARD)
                code = child.wait(longest[run] * chance.uniform(0.2, 1.1))
                if code is None:
                    code = end(child, chance)
                    kills += 1
                elif code:
                    raise AssertionError(f"ended with {code}: {errors.read_text()[-2000:]}")
                Child(errors, look, root, out, wanted, done, after).well()
                done = int(after.read_text()) if goes_on else 0
                resumed += bool(done)
                child.end_group()
                if code == 0 or chance.random() > AGAIN or kills >= count:
                    break
            Child(errors, finish, run, root, out, wanted, seen, shard_bytes=SHARD).well()
        except AssertionError as err:
            faults.append(f"{run.__name__} (seed {seed}, chain {chains}): {err}")
        shutil.rmtree(out, ignore_errors=True)
    line = f"{kills} kills of {chains} runs, {resumed} resumed, {len(faults)} faults"
    return "\n".join([*faults, line])


def end(child, chance):
    """End a run by a signal; return 0 if it had come to its end."""
    sent = chance.choice(SIGNALS)
    to_all = chance.random() < 0.5  # as a terminal does
    (os.killpg if to_all and sent != signal.SIGKILL else os.kill)(child.pid, sent)
    code = child.ended()
    if sent == signal.SIGKILL and to_all:
        child.end_group()
    if code not in (0, -sent, INTERRUPTED, TERMINATED):
        raise AssertionError(f"{sent.name}: ended with {code}: {child.errors.read_text()[-2000:]}")
    return code


def finish(run, root, out, wanted, seen):
    """Go on to the end, and check what is there."""
    left = gbdnn.io.find_unfinished(out)
    before = numbers(seen)
    run(root, out, seen)
    assert equal(out, root / wanted), "another answer than that of an uninterrupted run"
    assert gbdnn.io.find_unfinished(out) is None
    names = [path.name for path in out.iterdir() if path.name.endswith(".tmp")]
    assert not names, f"left behind: {names}"
    told = numbers(seen)
    if run is streamed:
        layers = told[len(before) :]
        first = 0 if left is None else left.layer or 0
        assert min(layers, default=first) >= first, f"read {layers}, from {left}"
    else:
        assert len(told) == len(set(told)), f"computed twice: {sorted(told)}"
        assert left is None or not told or len(told) - len(before) <= left.parts - left.parts_done


if __name__ == "__main__":
    quick = len(sys.argv) > 3
    chosen = [run for run in RUNS if not (quick and run is with_processes)]
    with tempfile.TemporaryDirectory() as folder:
        found = attack(Path(folder), int(sys.argv[1]), int(sys.argv[2]), chosen)
    print(found)
    sys.exit("0 faults" not in found)
