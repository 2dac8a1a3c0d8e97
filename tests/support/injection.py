"""Every writer, with its n-th operation on the file system failing, for every n.

    python tests/support/injection.py [WRITER ...] [--every K]

A writer is run once, and its operations below the output's folder are counted: it opens, reads,
asks for its state, writes, flushes, renames, makes, locks and removes. Then it is run once for each
of them and each fault: the operation fails with an error of the system (a full disk, once or from
then on; no more descriptors), with a KeyboardInterrupt before or after it was done, with a
MemoryError; the process is killed before or after it; or it is stopped there, another process does
the same from beginning to end, and it goes on. Runs begin with nothing, beside something old, and
with what a killed run has left.

After each: what was complete is there and right, nothing else is taken for complete, the error is
one of gbdnn's, and the same call again finishes with the right result, without computing again what
was complete.

Every run is a forked child (`children`); GraphBLAS is initialised before, with one thread, which a
fork survives. With ``--every K`` only every K-th case is run.
"""

import argparse
import builtins
import contextlib
import errno
import fcntl
import io
import os
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import polars
import safetensors.numpy
import scipy.io
import scipy.sparse
import xxhash
from children import INTERRUPTED, Child, command, run_bytes

import gbdnn
import gbdnn.distributed.executors.parts
import gbdnn.io.store.parts
import gbdnn.training
from gbdnn.distributed.executors import checkpoint
from gbdnn.kernels.compiled.library import Library

IMPORTED = (polars, scipy.io, scipy.sparse, safetensors.numpy, xxhash, onnx)  # once, not in each
LAYERS, INPUTS, BATCH, EPOCHS = 3, 300, 100, 3
WINDOWS = 8 << 20  # bytes: a layer each
DONE = 10**9

# Faults: of what changes files, and of what only looks.
CHANGES = [
    "no space", "full from here", "interrupted", "interrupted after", "out of memory", "killed",
    "killed after", "stopped",
]  # fmt: skip
LOOKS = ["no descriptors", "interrupted", "out of memory", "stopped"]


class Injector:
    """Counts operations on files below a folder, and makes one of them fail."""

    def __init__(self, folder, n=0, fault=None):
        self.folder, self.n, self.fault = str(folder), n, fault
        self.kinds = []
        self._is_on = False

    def __enter__(self):
        self._saved = [(module, name, getattr(module, name)) for module, name, _, _ in WATCHED]
        for module, name, kind, changes in WATCHED:
            setattr(module, name, self._watched(getattr(module, name), kind, changes))
        self._is_on = True
        return self

    def __exit__(self, *_):
        self._is_on = False
        for module, name, function in self._saved:
            setattr(module, name, function)

    def _watched(self, function, kind, changes):
        def call(*args, **kwargs):
            if not self._is_on or not self._is_ours(args, kwargs):
                return function(*args, **kwargs)
            if kind == "fdopen":
                return self._opened(*args, **kwargs)
            if kind == "save_file":
                return self._operation("write", True, lambda: function(*args, **kwargs))
            is_change = changes(args, kwargs) if callable(changes) else changes
            return self._operation(kind, is_change, lambda: function(*args, **kwargs))

        return call

    def _is_ours(self, args, kwargs):
        for each in (*args[:2], kwargs.get("dir_fd"), kwargs.get("filename")):
            if isinstance(each, int) and not isinstance(each, bool):
                with contextlib.suppress(OSError):
                    each = os.readlink(f"/proc/self/fd/{each}")  # noqa: PTH115
            if isinstance(each, str | os.PathLike) and os.fspath(each).startswith(self.folder):
                return True
        return False

    def _opened(self, descriptor, mode="r", *args, **kwargs):
        injector = self

        class Raw(io.FileIO):
            def write(self, data):
                plain = super().write
                half = memoryview(data).cast("B")[: memoryview(data).nbytes // 2]
                return injector._operation(
                    "write", True, lambda: plain(data), partly=lambda: plain(half)
                )

            def readall(self):
                plain = super().readall
                return injector._operation("read", False, plain)

            def readinto(self, buffer):
                plain = super().readinto
                return injector._operation("read", False, lambda: plain(buffer))

        kind = io.BufferedWriter if mode.startswith("w") else io.BufferedReader
        return kind(Raw(descriptor, mode))

    def _operation(self, kind, changes, do, partly=lambda: None):
        if not self._is_on:
            return do()
        self.kinds.append((kind, changes))
        n, fault = len(self.kinds), self.fault
        if fault is None or n < self.n or (n > self.n and fault != "full from here"):
            return do()
        if fault == "full from here":
            if kind in ("write", "mkdir", "fsync", "rename", "create"):
                partly()
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return do()
        if fault in ("no space", "no descriptors"):
            partly()
            number = errno.ENOSPC if changes else errno.EMFILE if kind == "open" else errno.EIO
            raise OSError(number, os.strerror(number))
        if fault == "out of memory":
            raise MemoryError
        if fault == "interrupted":
            partly()
            raise KeyboardInterrupt
        if fault == "interrupted after":
            with contextlib.suppress(OSError):
                do()
            raise KeyboardInterrupt
        if fault == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
            return do()
        (partly if fault == "killed" else do)()
        os.kill(os.getpid(), signal.SIGKILL)
        return None


def _creates(args, kwargs):
    flags = kwargs.get("flags", args[1] if len(args) > 1 else 0)
    return bool(flags & os.O_CREAT)


WATCHED = [
    (os, "open", "open", _creates),
    (os, "fdopen", "fdopen", True),
    (os, "fsync", "fsync", True),
    (os, "rename", "rename", True),
    (os, "replace", "rename", True),
    (os, "link", "link", True),
    (os, "mkdir", "mkdir", True),
    (os, "unlink", "unlink", True),
    (os, "rmdir", "unlink", True),
    (os, "fchmod", "chmod", True),
    (os, "chmod", "chmod", True),
    (os, "stat", "stat", False),
    (os, "lstat", "stat", False),
    (os, "listdir", "list", False),
    (os, "scandir", "list", False),
    (fcntl, "flock", "flock", True),
    (io, "open", "open", False),
    (builtins, "open", "open", False),
    (safetensors, "safe_open", "open", False),
    (safetensors.numpy, "save_file", "save_file", True),
]
PLAIN = {name: getattr(module, name) for module, name, _, _ in WATCHED}


@dataclass
class Outcome:
    """What a run has told of itself."""

    error: BaseException | None = None
    code: int = 0
    computed: list = field(default_factory=list)


class Writer:
    """A writer: what it writes, and how one sees what is there.

    `run(root, out, computed)` writes into the folder `out`, and lists what it computes;
    `look(root, out)` returns how much is complete, `DONE` if all, or raises an AssertionError.
    """

    starts = ("new", "old")
    may_raise = ()  # without memory
    runs_again_at_once = True  # in the process in which it failed

    def __init__(self, name):
        self.name = name

    def old(self, root, out):
        """Put something old in the place of the output."""

    def finishes(self, root, before, computed):
        """Check what the last run has computed."""


# Stores


class Store(Writer):
    wanted = "net"

    def old(self, root, out):
        shutil.copytree(root / "ids", out / "S")

    def finished(self, root, out):
        """Put there what a run leaves that is killed when it is finished and cleans up."""
        shutil.copytree(root / self.name / "S", out / "S")
        for folder in (out / "S", out / "S" / ".gbdnn-0123456789abcdef.tmp"):
            folder.mkdir(exist_ok=True)
            (folder / "shard-0123456789abcdef-00000.safetensors").write_bytes(b"old")

    def look(self, root, out):
        path = out / "S"
        left = gbdnn.io.find_unfinished(path)
        if (path / "index.json").exists():
            if same(path, root / self.wanted):
                return DONE
            assert same(path, root / "ids"), "neither the old store nor the new one"
        else:
            try:
                gbdnn.load(path)
            except gbdnn.MissingFileError:
                pass
            else:
                raise AssertionError("what is not finished was loaded")
        return 0 if left is None else 1000 * left.done + (left.layer or 0)

    def leftovers(self, out):
        names = {shard["file"] for shard in index_of(out / "S")["shards"]} | {"index.json"}
        return sorted({each.name for each in (out / "S").iterdir()} - names)


class Saved(Store):
    def run(self, root, out, computed):
        gbdnn.save(gbdnn.load(root / "net", lazy=True), out / "S")


class SavedFeatures(Store):
    wanted = "X"

    def run(self, root, out, computed):
        X = gbdnn.io.open_features(root / "X")
        gbdnn.io.write_features((rows.matrix() for rows in X.batches(BATCH)), out / "S")


class SavedRun(Store):
    wanted = "run"

    def run(self, root, out, computed):
        gbdnn.save(gbdnn.load(root / "run"), out / "S")


class Converted(Store):
    starts = ("new", "begun", "begun over old", "finished")

    def run(self, root, out, computed):
        return command("convert", root / "files", out / "S", "--force")


class Generated(Converted):
    def run(self, root, out, computed):
        return command("generate", out / "S", "--layers", LAYERS, "--force")


class Answer(Store):
    starts = ("new", "begun", "begun over old", "finished")
    wanted = "Y"

    def run(self, root, out, computed):
        net, X = gbdnn.load(root / "net", lazy=True), gbdnn.io.open_features(root / "X")
        gbdnn.infer_to_store(
            net, X, out / "S", engine="full", batch=BATCH, nthreads=1,
            stats=lambda record: computed.append(record.inputs),
        )  # fmt: skip

    def finishes(self, root, before, computed):
        done = 0 if before == 0 else INPUTS if before == DONE else before // 1000
        assert sum(computed) == INPUTS - done, f"computed {computed}, of {done} complete inputs"


class Streamed(Store):
    """A network that is read window by window, with a checkpoint after each."""

    starts = ("new", "begun")
    wanted = "Y"

    def run(self, root, out, computed):
        checkpoint._WORTH = 0
        stored = gbdnn.load(root / "net", lazy=True)

        def read(k):
            computed.append(k)
            return stored[k]

        net = gbdnn.Network.lazy(stored.infos, read, reopen=stored.source.reopen)
        X = gbdnn.io.open_features(root / "X")
        gbdnn.infer_to_store(net, X, out / "S", engine="full", memory=WINDOWS, nthreads=1)

    def finishes(self, root, before, computed):
        first = before % 1000 if before < DONE else LAYERS
        assert min(computed, default=first) >= first, f"read {computed}, from {first}"


# Files


class Files(Writer):
    """Files that are replaced one by one: each is the old one or the new one."""

    made = ("Y.tsv",)

    def old(self, root, out):
        for name in self.made:
            (out / name).parent.mkdir(exist_ok=True)
            (out / name).write_bytes(b"old")

    def look(self, root, out):
        there = 0
        for name in self.made:
            path = out / name
            if not path.exists() or path.read_bytes() == b"old":
                continue
            assert path.read_bytes() == (root / self.name / name).read_bytes(), f"{name}: cut off"
            there += 1
        return DONE if there == len(self.made) else 0

    def leftovers(self, out):
        found = {str(each.relative_to(out)) for each in out.rglob("*") if each.is_file()}
        return sorted(found - set(self.made))


class Tsv(Files):
    made = ("Y.tsv", "Y.tsv.gz")

    def run(self, root, out, computed):
        Y = gbdnn.load(root / "Y")
        for name in self.made:
            gbdnn.io.write_tsv(Y, out / name)


class TsvNetwork(Files):
    """A folder that is renamed when all files are in it."""

    starts = ("new",)
    made = tuple(f"N/n1024-l{k}.tsv" for k in range(1, LAYERS + 1))

    def run(self, root, out, computed):
        code = command("convert", root / "net", out / "N", "--to", "tsv")
        # What is complete is not replaced.
        return 0 if code == 2 and self.look(root, out) == DONE else code

    def look(self, root, out):
        found = super().look(root, out)
        assert found == DONE or not (out / "N").exists(), "a folder that is not complete"
        return found


class MatrixMarket(Files):
    made = tuple(f"n32-l{k}{end}.mtx" for k in range(1, LAYERS + 1) for end in ("", "-bias"))

    def run(self, root, out, computed):
        weights = np.eye(32, dtype=np.float32)
        gbdnn.io.write_matrix_market(gbdnn.Network([gbdnn.Layer(weights, -0.5)] * LAYERS), out)


class Onnx(Files):
    made = ("net.onnx",)

    def run(self, root, out, computed):
        gbdnn.io.write_onnx(gbdnn.load(root / "net", lazy=True), out / "net.onnx", sparse=True)


class Training(Writer):
    """A checkpoint after each epoch."""

    starts = ("new", "begun")

    def run(self, root, out, computed):
        net = gbdnn.training.erdos_renyi([64, 32, 10], density=0.2, seed=0)
        X, y = training_data()
        run = gbdnn.train(
            net, X, y, epochs=EPOCHS, batch_size=100, nthreads=1, checkpoint=out / "run",
            callback=lambda record: computed.append(record.epoch),
        )  # fmt: skip
        assert network_bytes(run.network) == (root / "trained").read_bytes(), "trained differently"

    def look(self, root, out):
        # How far it is, and that it belongs to the call, a run tells: see `finishes`.
        if not (out / "run").exists():
            return 0
        tensors = safetensors.safe_open(out / "run", framework="np").metadata()
        epochs = len(__import__("json").loads(tensors["gbdnn"])["history"])
        return DONE if epochs == EPOCHS else epochs

    def finishes(self, root, before, computed):
        first = EPOCHS if before == DONE else before
        assert computed == list(range(first, EPOCHS)), f"epochs {computed}, {first} were complete"

    def leftovers(self, out):
        return sorted(each.name for each in out.iterdir() if each.name != "run")


class CompiledCode(Writer):
    """Machine code in the cache; what is compiled was compiled before, once.

    Code that could not be loaded is told as numba's error, and is not tried again in this process.
    """

    may_raise = (gbdnn.MissingPackageError,)
    runs_again_at_once = False

    def run(self, root, out, computed):
        plain = Library.compile

        def compiled(library):
            computed.append(library.file.name)
            kept = root / library.file.name
            if not kept.exists():
                kept.write_bytes(plain(library))
            return kept.read_bytes()

        os.environ["GBDNN_CACHE_DIR"] = str(out)
        Library.compile = compiled
        net, X = gbdnn.load(root / "net", lazy=True), gbdnn.load(root / "X")
        Y = gbdnn.infer(net, X, engine="fused", nthreads=1)
        if (root / "Y").exists():
            assert Y.isequal(gbdnn.load(root / "Y")), "computed another answer"

    def old(self, root, out):
        """Put a damaged file there."""
        for each in root.glob("kernels-*"):
            (out / each.name).write_bytes(b"damaged")
            (out / each.name).chmod(0o600)

    def look(self, root, out):
        return 0

    def leftovers(self, out):
        return []


ALL = {
    "network": Saved,
    "features": SavedFeatures,
    "training-run": SavedRun,
    "conversion": Converted,
    "generation": Generated,
    "answer": Answer,
    "streamed": Streamed,
    "tsv": Tsv,
    "tsv-network": TsvNetwork,
    "matrix-market": MatrixMarket,
    "onnx": Onnx,
    "training": Training,
    "compiled": CompiledCode,
}


def training_data():
    random = np.random.default_rng(0)
    X = random.random((300, 64), np.float32)
    return X, (X[:, :10].argmax(axis=1)).astype(np.int64)


def network_bytes(net):
    arrays = [each for layer in net for each in layer.W.to_coo()] + [layer.bias for layer in net]
    return b"".join(np.ascontiguousarray(each).tobytes() for each in arrays)


def index_of(path):
    from gbdnn.io.store.index import read_index

    return read_index(path)


def same(one, other):
    a, b = gbdnn.load(one), gbdnn.load(other)
    if type(a) is not type(b):
        return False
    if isinstance(a, gbdnn.training.TrainingRun):
        return run_bytes(a) == run_bytes(b)
    return np.array_equal(a, b) if isinstance(a, np.ndarray) else a.isequal(b)


# Children


def prepare(root, names):
    """Make what writers read, and what they write in the end."""
    from gbdnn.gallery import digits, features_from_images

    net = gbdnn.radixnet(1024, LAYERS)
    gbdnn.save(net, root / "net")
    if "conversion" in names:
        (root / "files").mkdir()
        gbdnn.io.write_network(net, root / "files")
    gbdnn.save(features_from_images(digits(), 1024, inputs=INPUTS), root / "X")
    gbdnn.save(gbdnn.infer(net, gbdnn.load(root / "X"), engine="full"), root / "Y")
    gbdnn.save(np.arange(3), root / "ids")
    X, y = training_data()
    if {"training", "training-run"} & set(names):
        begin = gbdnn.training.erdos_renyi([64, 32, 10], density=0.2, seed=0)
        run = gbdnn.train(begin, X, y, epochs=EPOCHS, batch_size=100, nthreads=1)
        gbdnn.save(run, root / "run")
        (root / "trained").write_bytes(network_bytes(run.network))
    for name in names:
        (root / name).mkdir()
        ALL[name](name).run(root, root / name, [])


def outcome_of(writer, root, out):
    found = Outcome()
    try:
        found.code = writer.run(root, out, found.computed) or 0
    except BaseException as err:
        found.error = err
    return found


def count(writer, root, out, told):
    """Run without a fault, and write down the operations."""
    with Injector(out) as injector:
        found = outcome_of(writer, root, out)
    assert found.error is None and found.code == 0, repr(found)  # noqa: PT018
    assert writer.look(root, out) in (DONE, 0 if isinstance(writer, CompiledCode) else DONE)
    told.write_text("\n".join(f"{kind} {int(changes)}" for kind, changes in injector.kinds))


def killed(writer, root, out, n, fault):
    """Run until the fault, which ends the process, or stops it for a while."""
    with Injector(out, n, fault):
        found = outcome_of(writer, root, out)
    if found.error is None:
        return found.code
    if isinstance(found.error, gbdnn.OutputError) and "another process" in str(found.error):
        return 2
    raise found.error


def failing(writer, root, out, n, fault, before):
    """Run with the fault, look, and run again, all in one process."""
    with Injector(out, n, fault) as injector:
        found = outcome_of(writer, root, out)
    after = writer.look(root, out)
    assert after >= before, f"{after} is complete, {before} was"
    went_well = found.error is None and found.code == 0
    if went_well:
        assert after == DONE or isinstance(writer, CompiledCode), "ended well, and is not complete"
    if fault in ("no space", "full from here", "no descriptors"):
        expected, code = gbdnn.GbdnnError, 2
    elif fault == "out of memory":
        expected, code = (MemoryError, *writer.may_raise), 2
    else:
        expected, code = KeyboardInterrupt, INTERRUPTED
        assert not went_well or n > len(injector.kinds), "an interrupt was swallowed"
    assert found.error is None or isinstance(found.error, expected), f"raised {found.error!r}"
    assert found.code in (0, code), f"ended with {found.code}"
    sys.stdout.flush()
    told = Path("/proc/self/fd/1").read_text() if Path("/proc/self/fd/1").is_file() else ""
    assert "Traceback" not in told, "a traceback"
    assert "standard output cannot be written" not in told, "a file's error is told as the shell's"
    # What fails when it is removed stays for the next process.
    cleans = injector.kinds[n - 1][0] not in ("unlink", "open", "list", "stat", "flock")
    if cleans and after < DONE and not isinstance(writer, Store | CompiledCode):
        left = [each for each in writer.leftovers(out) if ".tmp" in each]
        assert not left, f"left behind: {left}"
    if writer.runs_again_at_once:
        again(writer, root, out, after, leftovers=False)


def again(writer, root, out, before, *, leftovers=True):
    """Run once more, and check that all is there."""
    found = outcome_of(writer, root, out)
    if found.error is not None:
        raise found.error
    assert found.code == 0, f"the next run ended with {found.code}"
    assert writer.look(root, out) == (0 if isinstance(writer, CompiledCode) else DONE)
    writer.finishes(root, before, found.computed)
    if leftovers:
        left = writer.leftovers(out)
        assert not left, f"left behind: {left}"


def after_kill(writer, root, out, before):
    """Look at what a kill has left, and run once more, in another process."""
    after = writer.look(root, out)
    assert after >= before, f"{after} is complete, {before} was"
    again(writer, root, out, after)


def measured(writer, root, out, told):
    told.write_text(str(writer.look(root, out)))


# The parent


def begun(writer, root, start, errors, *, over_old):
    """Leave what a killed run leaves: half of it is complete."""
    told = root / "told"
    start.mkdir()
    kinds = operations(writer, root, start, errors, told)
    for n in range(len(kinds) * 2 // 3, 0, -1):
        shutil.rmtree(start)
        start.mkdir()
        if over_old:
            writer.old(root, start)
        Child(errors, killed, writer, root, start, n, "killed", shard_bytes=0).ended()
        Child(errors, measured, writer, root, start, told).well()
        if 0 < int(told.read_text()) < DONE:
            return
    raise AssertionError(f"{writer.name}: no kill leaves anything")


def operations(writer, root, start, errors, told):
    """Return the operations of a run that begins with `start`."""
    out = root / "counted"
    shutil.copytree(start, out)
    Child(errors, count, writer, root, out, told, shard_bytes=0).well()
    shutil.rmtree(out)
    lines = [line.split() for line in told.read_text().splitlines()]
    return [(kind, changes == "1") for kind, changes in lines]


def one_case(writer, root, start, errors, n, fault, before):
    out = root / "out"
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(start, out)
    if fault == "stopped":
        first = Child(errors, killed, writer, root, out, n, fault, shard_bytes=0)
        if first.wait(stopped=True) == -signal.SIGSTOP:
            second = Child(root / "second.txt", killed, writer, root, out, 0, None, shard_bytes=0)
            code = second.ended()
            os.kill(first.pid, signal.SIGCONT)
            first_code = first.ended()
            told = errors.read_text() + (root / "second.txt").read_text()
            assert {code, first_code} <= {0, 2}, f"{first_code}, {code}: {told[-2000:]}"
    elif fault.startswith("killed"):
        code = Child(errors, killed, writer, root, out, n, fault, shard_bytes=0).ended()
        assert code in (0, -signal.SIGKILL), f"ended with {code}: {errors.read_text()[-2000:]}"
    else:
        Child(errors, failing, writer, root, out, n, fault, before, shard_bytes=0).well()
        if writer.runs_again_at_once:
            return
    Child(errors, after_kill, writer, root, out, before, shard_bytes=0).well()


def warm_up(root):
    """Import and initialise what every child would; polars starts threads, and is left out."""
    import graphblas

    graphblas.init()
    graphblas.ss.config["nthreads"] = 1
    gbdnn.save([gbdnn.Layer(np.eye(3, dtype=np.float32))], root / "warm net")
    net = gbdnn.load(root / "warm net", lazy=True)
    gbdnn.infer_to_store(net, np.ones((2, 3)), root / "warm answer", engine="full")


def attack(root, names, every):
    """Run all cases of some writers; return how many, and the faults."""
    errors, told = root / "errors.txt", root / "told"
    warm_up(root)
    Child(errors, prepare, root, names, shard_bytes=0).well(600)
    cases, faults, seen = 0, [], 0
    for name in names:
        writer, of_writer, began = ALL[name](name), 0, time.monotonic()
        for begin in writer.starts:
            start = root / f"{name} {begin}"
            if begin.startswith("begun"):
                begun(writer, root, start, errors, over_old="old" in begin)
            else:
                start.mkdir()
                if begin != "new":
                    getattr(writer, begin)(root, start)
            Child(errors, measured, writer, root, start, told).well()
            before = int(told.read_text())
            kinds = operations(writer, root, start, errors, told)
            for n, (kind, changes) in enumerate(kinds, 1):
                for fault in CHANGES if changes else LOOKS:
                    seen += 1
                    if seen % every:
                        continue
                    of_writer += 1
                    try:
                        one_case(writer, root, start, errors, n, fault, before)
                    except AssertionError as err:
                        last = str(err).strip().splitlines()[-1]
                        faults.append(
                            f"{name}, {begin}: {n} of {len(kinds)} ({kind}), {fault}: {last}"
                        )
        cases += of_writer
        seconds = time.monotonic() - began
        sys.stderr.write(f"{name}: {of_writer} cases, {seconds:.0f} s, {len(faults)} faults\n")
    return cases, faults


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("writers", nargs="*", default=list(ALL))
    options.add_argument("--every", type=int, default=1)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        total, found = attack(Path(folder), given.writers, given.every)
    print("\n".join([*found, f"{total} cases, {len(found)} faults"]))  # noqa: T201
    sys.exit(bool(found))
