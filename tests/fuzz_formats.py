"""Damaged files of every format: each is read right, or refused with a GbdnnError.

    python tests/fuzz_formats.py CASES SEED [FORMAT ...]
    python tests/fuzz_formats.py --case FORMAT SEED       a case that failed, once more

A case is a format and a seed. Other processes read the files, so that a crash or an endless loop is
a failure and not the end.
What is right is told by `fuzz_readers`, which share no code with gbdnn.
"""

import collections
import faulthandler
import importlib.util
import io
import json
import pathlib
import queue
import random
import selectors
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback

import fuzz_mutations as mutate
import fuzz_readers as judge
import numpy as np

SECONDS = 20.0  # for a case
MEMORY = 16 << 30  # bytes of address space
_FILES = {}  # what is damaged, made once in a process


class MisreadError(AssertionError):
    pass


def equal(got, expected):
    return np.shape(got) == np.shape(expected) and np.array_equal(got, expected)


def require_equal(got, expected):
    if not equal(got, expected):
        raise MisreadError(f"{got!r} is read, {expected!r} is there")


def require_same(got, expected):
    if got != expected:
        raise MisreadError(f"{got!r} is read, {expected!r} is there")


def layers_of(net):
    return [
        (
            layer.W.to_dense(fill_value=0).astype(float),
            np.asarray(layer.bias, float),
            layer.activation,
            layer.clip,
            layer.bias_rule,
        )
        for layer in net
    ]


def require_layers(got, expected, fields=5):
    require_equal(len(got), len(expected))
    for mine, its in zip(got, expected, strict=True):
        for k in range(fields):
            if k == 1:
                require_equal(*np.broadcast_arrays(mine[1], its[1]))
            elif k == 0:
                require_equal(mine[0], its[0])
            elif mine[k] != its[k]:
                raise MisreadError(f"{mine[k]!r} is read, {its[k]!r} is there")


def judged(read, expected, compare=require_equal):
    """Read, and compare with what is there if it is not refused."""
    import gbdnn

    try:
        got = read()
    except gbdnn.GbdnnError:
        return "refused"
    if got is None:
        return "read"
    try:
        right = expected()
    except Exception as err:
        raise MisreadError(f"{got!r} is read from what is damaged: {err!r}") from err
    compare(got, right)
    return "read"


def made(name, make):
    if name not in _FILES:
        _FILES[name] = make()
    return _FILES[name]


def some_matrix(rng, n=6, m=5):
    return np.round(rng.normal(0, 2, (n, m)) * (rng.random((n, m)) < 0.5), rng.integers(1, 9))


def a_network(dtype="FP64"):
    import gbdnn

    rng = np.random.default_rng(7)
    return gbdnn.Network(
        [
            gbdnn.Layer(some_matrix(rng), rng.normal(size=5).round(3), clip=2.5, dtype=dtype),
            gbdnn.Layer(some_matrix(rng, 5, 4), -0.25, dtype=dtype),
            gbdnn.Layer(np.eye(4) / 4, 0.5, activation="identity", dtype=dtype),
        ]
    )


def matrix_market_files():
    import scipy.io
    import scipy.sparse as sp

    import gbdnn

    files = []
    with tempfile.TemporaryDirectory() as folder:
        for dtype in ("FP32", "FP64"):
            gbdnn.io.write_matrix_market(a_network(dtype), folder)
            files += [path.read_bytes() for path in sorted(pathlib.Path(folder).iterdir())]
    rng = np.random.default_rng(8)
    A = rng.integers(-3, 4, (5, 5)).astype(float)
    for symmetry, B in (("general", A), ("symmetric", A + A.T), ("skew-symmetric", A - A.T)):
        for field in ("real", "integer"):
            for C in (B, sp.coo_array(B)):
                text = io.BytesIO()
                C = C if field == "real" else C.astype(np.int64)
                scipy.io.mmwrite(text, C, field=field, symmetry=symmetry)
                files.append(text.getvalue())
    for symmetry in ("general", "symmetric"):
        files.append(
            f"%%MatrixMarket matrix coordinate pattern {symmetry}\n3 3 2\n1 1\n3 2\n".encode()
        )
    files.append(b"%%MatrixMarket matrix coordinate real general\r\n2 2 1\r\n1 2 2.5e-1\r\n")
    return files


def case_matrix_market(rng, folder):
    import gbdnn

    data = rng.choice(made("matrix_market", matrix_market_files))
    data = mutate.packed_or_plain(data, rng, mutate.TEXT)
    path = folder / "w1.mtx"
    path.write_bytes(data)

    def compare(got, expected):
        W, dtype = got
        require_equal(W, expected.astype(dtype))

    def read():
        layer = gbdnn.io.read_matrix_market([path])[0]
        return layer.W.to_dense(fill_value=0), layer.dtype

    return judged(read, lambda: judge.matrix_market(data), compare)


def case_tsv(rng, folder):
    import gbdnn

    numbers = np.random.default_rng(rng.randrange(2**32))
    n = rng.randint(1, 12)
    rows = numbers.permutation(20)[:n] + 1
    text = "".join(f"{r}\t{numbers.integers(1, 9)}\t{numbers.normal():.6g}\n" for r in rows)
    data = mutate.packed_or_plain(text.encode(), rng, mutate.TEXT)
    path = folder / "w.tsv"
    path.write_bytes(data)

    def read():
        A = gbdnn.io.read_tsv(path)
        rows, cols, values = A.to_coo()
        at = zip((rows + 1).tolist(), (cols + 1).tolist(), strict=True)
        return A.shape, dict(zip(at, values.tolist(), strict=True))

    return judged(read, lambda: judge.tsv(data), require_same)


def case_categories(rng, folder):
    import gbdnn

    text = "".join(f"{n}\n" for n in rng.sample(range(1, 3000), rng.randint(1, 15)))
    data = mutate.packed_or_plain(text.encode(), rng, mutate.TEXT)
    path = folder / "c.tsv"
    path.write_bytes(data)
    return judged(lambda: gbdnn.io.read_categories(path), lambda: judge.categories(data))


def case_idx(rng, folder):
    import gbdnn

    kind, letter = rng.choice([(8, "u1"), (9, "i1"), (11, ">i2"), (12, ">i4"), (13, ">f4")])
    shape = rng.choice([(3, 4), (5,), (2, 3, 2), (0, 3), ()])
    array = np.arange(np.prod(shape, dtype=int)).astype(letter)
    data = bytes([0, 0, kind, len(shape)]) + np.array(shape, ">u4").tobytes() + array.tobytes()
    data = mutate.packed_or_plain(data, rng, [*mutate.BINARY, mutate.header, mutate.header])
    path = folder / "x.idx"
    path.write_bytes(data)

    def compare(got, expected):
        if not (got.shape == expected.shape and np.array_equal(got, expected, equal_nan=True)):
            raise MisreadError(f"{got!r} is read, {expected!r} is there")

    return judged(lambda: gbdnn.io.read_idx(path), lambda: judge.idx(data), compare)


def case_labels(rng, folder):
    import gbdnn

    values = [rng.randrange(12) for _ in range(rng.randint(1, 12))]
    if rng.random() < 0.7:
        data = "".join(f"{n}\n" for n in values).encode()
        data = mutate.packed_or_plain(data, rng, mutate.TEXT)
        path, judge_of = folder / "y.txt", judge.labels
    else:
        data, path, judge_of = io.BytesIO(), folder / "y.npy", judge.npy
        np.save(data, np.array(values, rng.choice(["u1", "<i8", ">i4"])))
        data = mutate.other_npy(data.getvalue(), rng)
    path.write_bytes(data)
    return judged(lambda: gbdnn.io.read_labels(path), lambda: judge_of(data))


def some_arrays():
    rng = np.random.default_rng(5)
    for kind in ("<f4", "<f8", ">f8", "<f2", "|u1", "<i4", ">i8", "<u8", "|b1"):
        A = np.asarray(rng.integers(0, 2 if kind == "|b1" else 99, (3, 4))).astype(kind)
        yield from (A, np.asfortranarray(A), A.reshape(3, 2, 2), A[:0])
    yield np.array([[None, 1]])
    yield np.ones((2, 2), complex)


def numpy_files():
    files = []
    for array in some_arrays():
        file = io.BytesIO()
        np.save(file, array, allow_pickle=True)
        files.append(file.getvalue())
    return files


def archives():
    import scipy.sparse as sp

    files = []
    for k, array in enumerate(some_arrays()):
        file = io.BytesIO()
        (np.savez, np.savez_compressed)[k % 2](file, array)
        files.append((file.getvalue(), array))
    A = some_matrix(np.random.default_rng(6), 6, 4)
    for form in ("csr", "csc", "coo", "bsr", "dia"):
        for kind in (sp.csr_array, sp.csr_matrix):
            for compressed in (False, True):
                file = io.BytesIO()
                sp.save_npz(file, kind(A).asformat(form), compressed=compressed)
                files.append((file.getvalue(), A))
    return files


def numbers_read(path, before, expected):
    """Features are what the judge says; or what was there, if the damage is in none of it."""
    import gbdnn

    def read():
        X = gbdnn.io.read_features(path)
        if max(X.shape) > 10**4:  # right, and too large to look at
            return None
        return X if isinstance(X, np.ndarray) else X.toarray()

    def compare(got, right):
        for each in (before, right):
            if each is not None and each.ndim >= 2 and each.dtype.kind in "biuf":
                each = each.reshape(len(each), np.prod(each.shape[1:], dtype=int))
                if got.shape == each.shape and np.array_equal(got, each, equal_nan=True):
                    return
        raise MisreadError(f"{got!r} is read, {right!r} is there")

    def judgement():
        try:
            return expected()
        except Exception:
            return None

    return judged(read, judgement, compare)


def case_npy(rng, folder):
    data = rng.choice(made("npy", numpy_files))
    data = mutate.other_npy(data, rng)
    path = folder / "x.npy"
    path.write_bytes(data)
    return numbers_read(path, None, lambda: judge.npy(data))


def case_npz(rng, folder):
    data, array = rng.choice(made("npz", archives))
    before = array
    if rng.random() < 0.7:
        data, before = mutate.other_zip(data, rng, mutate.other_npy), None
    else:
        data = mutate.damaged(data, rng, mutate.BINARY)
    path = folder / "x.npz"
    path.write_bytes(data)
    return numbers_read(path, before, lambda: judge.npz(data))


def stores():
    import graphblas as gb

    import gbdnn

    rng = np.random.default_rng(9)
    found = []
    iso = gb.Matrix.from_coo([0, 1, 3], [0, 1, 3], 0.5, nrows=4, ncols=4)
    for x in (
        a_network("FP32"),
        a_network(),
        gbdnn.Network([gbdnn.Layer(iso, -0.3, bias_rule="entries", clip=32)]),
        some_matrix(rng, 9, 6),
        np.array([3, 5, 9, 1000]),
    ):
        with tempfile.TemporaryDirectory() as folder:
            gbdnn.save(x, folder)
            found.append({path.name: path.read_bytes() for path in pathlib.Path(folder).iterdir()})
    return found


def signed(fields):
    """The bytes of an index under a checksum that is right."""
    import xxhash

    text = json.dumps({**fields, "checksum": "0" * 16}).encode()
    digest = xxhash.xxh3_64_hexdigest(text)
    return text.replace(b'"checksum": "' + b"0" * 16, b'"checksum": "' + digest.encode(), 1)


def case_store(rng, folder):
    import gbdnn

    files = dict(rng.choice(made("stores", stores)))
    before = json.loads(files["index.json"])
    content = before
    if rng.random() < 0.7:  # an index that somebody else wrote
        content = mutate.other_json(before, rng)
        files["index.json"] = signed(content)
    else:
        name = rng.choice(sorted(files))
        kinds = mutate.TEXT if name.endswith("json") else mutate.BINARY
        files[name] = mutate.damaged(files[name], rng, kinds)
    expected = dict(files) if content is not before else dict(_FILES["stores"][_whose(before)])
    path = folder / "store"
    path.mkdir()
    for name, data in files.items():
        (path / name).write_bytes(data)

    def read():
        found = gbdnn.load(path)
        layers = found.infos if isinstance(found, gbdnn.Network) else [found]
        if (
            max((max(each.shape) for each in layers), default=0) > 10**4
        ):  # right, and too large to look at
            return None
        if isinstance(found, gbdnn.Network):
            return layers_of(found)
        return found if isinstance(found, np.ndarray) else found.to_dense(fill_value=0)

    def compare(got, expected):
        (require_layers if isinstance(got, list) else require_equal)(got, expected)

    return judged(read, lambda: judge.store(content, expected), compare)


def _whose(index):
    shards = {shard["file"] for shard in index["shards"]}
    return next(k for k, files in enumerate(_FILES["stores"]) if shards <= set(files))


def onnx_files():
    import gbdnn

    files = []
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "net.onnx")
        for sparse in (False, True):
            for dtype in ("FP32", "FP64"):
                gbdnn.io.write_onnx(a_network(dtype), path, sparse=sparse)
                files.append(path.read_bytes())
    return files


def case_onnx(rng, folder):
    import gbdnn

    files = made("onnx", onnx_files)
    which = rng.randrange(len(files))
    data = mutate.damaged(files[which], rng, mutate.BINARY)
    path = folder / "net.onnx"
    path.write_bytes(data)
    X = np.abs(np.random.default_rng(1).normal(size=(3, 6)))
    X = X.astype([np.float32, np.float64][which % 2])
    before = layers_of(a_network(["FP32", "FP64"][which % 2]))

    def compare(got, expected):
        if len(got) == len(before) and all(
            equal(a, b)
            for mine, its in zip(got, before, strict=True)
            for a, b in zip(mine, its, strict=True)
        ):
            return
        Y = X.astype(float)
        with np.errstate(all="ignore"):
            for W, b, activation, clip, _ in got:
                Y = Y @ W + b if Y.shape[1] == len(W) else np.full((3, 1), np.nan)
                Y = np.maximum(Y, 0) if activation == "relu" else Y
                Y = Y if clip is None else np.minimum(Y, clip)
        Z = expected()
        if Z is None or not np.isfinite(Y).all() or np.abs(Y).max(initial=0) > 1e30:
            return
        scale = max(1.0, *(np.abs(each[0]).max(initial=0) for each in got)) ** len(got)
        if Y.shape != Z.shape or np.abs(Y - Z).max(initial=0) > 1e-4 * scale:
            raise MisreadError(f"answers {Y} where the model answers {Z}")

    def evaluated():
        try:
            return judge.onnx_answer(data, X)
        except Exception:  # what does not matter here, an operator set of the year 3000
            return None

    return judged(lambda: layers_of(gbdnn.io.read_onnx(path)), lambda: evaluated, compare)


def torch_files():
    import torch

    import gbdnn

    files = []
    for layout in ("strided", "sparse_csr"):
        for zipped in (True, False):
            state = gbdnn.io.to_torch(a_network("FP32"), layout=layout).state_dict()
            file = io.BytesIO()
            torch.save(state, file, _use_new_zipfile_serialization=zipped)
            files.append(file.getvalue())
    return files


def case_torch(rng, folder):
    import gbdnn

    data = rng.choice(made("torch", torch_files))
    if data[:2] == b"PK" and rng.random() < 0.5:
        data = mutate.other_zip(data, rng)
    else:
        data = mutate.damaged(data, rng, mutate.BINARY)
    path = folder / "net.pt"
    path.write_bytes(data)
    return judged(
        lambda: layers_of(gbdnn.io.read_torch(path)),
        lambda: judge.torch_state(data),
        lambda got, expected: require_layers(got, expected, 2),
    )


def case_scipy(rng, folder):
    """Arrays in memory, whose indices are damaged."""
    del folder
    import scipy.sparse as sp

    import gbdnn

    form = rng.choice(["csr", "csc"])
    numbers = np.random.default_rng(rng.randrange(2**32))
    dense = some_matrix(numbers, rng.randint(1, 6), rng.randint(1, 6))
    A = (sp.csr_array if form == "csr" else sp.csc_array)(dense)
    for _ in range(rng.randint(1, 2)):
        name = rng.choice(["indptr", "indptr", "indices"])
        array = getattr(A, name)
        if len(array):
            array[rng.randrange(len(array))] = rng.choice(
                [0, 1, 2, 3, 4, 5, 6, 9, -1, 100, 2**31 - 1, -(2**31)]
            )

    arrays = (A.indptr.tolist(), A.indices.tolist(), A.data.tolist())
    if rng.random() < 0.5:
        return judged(
            lambda: gbdnn.Layer(A).W.to_dense(fill_value=0),
            lambda: judge.compressed(form, *arrays, A.shape),
        )
    return judged(
        lambda: gbdnn.infer([np.eye(A.shape[1])], A).to_dense(fill_value=0),
        lambda: np.maximum(judge.compressed(form, *arrays, A.shape), 0),
    )


NEEDS = {
    "matrix_market": ("scipy", "polars"),
    "tsv": ("polars",),
    "categories": ("polars",),
    "idx": (),
    "labels": (),
    "npy": (),
    "npz": ("scipy",),
    "store": ("safetensors", "xxhash"),
    "onnx": ("onnx", "scipy"),
    "torch": ("torch",),
    "scipy": ("scipy",),
}
CASES = {name: globals()[f"case_{name}"] for name in NEEDS}


# To see that the worker and its judge see them.
CASES["crash"] = lambda *_: faulthandler._sigsegv()
CASES["hang"] = lambda *_: time.sleep(1000)
CASES["misreading"] = lambda *_: judged(lambda: np.ones(3), lambda: np.zeros(3))


def formats():
    """The formats whose packages are installed."""
    return [name for name, needs in NEEDS.items() if all(map(importlib.util.find_spec, needs))]


def run_case(name, seed):
    """Return ``read`` or ``refused``, or raise."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gbdnn-fuzz-"))
    try:
        return CASES[name](random.Random(f"{name} {seed}"), folder)  # noqa: S311 -- a seed is wanted
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def work():
    """Read cases from standard input, and answer each with a line."""
    import resource
    import warnings

    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    out, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        name, seed = line.split()
        try:
            answer = run_case(name, int(seed))
        except BaseException as err:
            last = traceback.extract_tb(err.__traceback__)[-1]
            answer = f"FAILED {type(err).__name__}: {err} ({last.filename}:{last.lineno})"
        print(" ".join(answer.split())[:400], file=out, flush=True)


class Worker:
    """A process that reads cases one by one; another one takes its place when it dies."""

    def __init__(self):
        self._process = None

    def ask(self, name, seed):
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, __file__, "--work"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            )  # fmt: skip
            self._selector = selectors.DefaultSelector()
            self._selector.register(self._process.stdout, selectors.EVENT_READ)
        try:
            self._process.stdin.write(f"{name} {seed}\n")
            self._process.stdin.flush()
            # The first case waits for packages to be imported.
            if not self._selector.select(SECONDS):
                self.close()
                return "FAILED hangs"
            answer = self._process.stdout.readline().strip()
        except BrokenPipeError:
            answer = ""
        if not answer:
            code = self._process.wait()
            self.close()
            return f"FAILED the process ended with {code}"
        return answer

    def close(self):
        if self._process is not None:
            self._selector.close()
            self._process.kill()
            self._process.wait()
            self._process.stdin.close()
            self._process.stdout.close()
            self._process = None


def fuzz(cases, seed, names=None, workers=2):
    """Run cases; return counts of what came of them, and the failures."""
    names = names or formats()
    todo = queue.SimpleQueue()
    for k in range(cases):
        todo.put((names[k % len(names)], seed * 10**7 + k))
    counts, failures = collections.Counter(), []

    def take():
        worker = Worker()
        while True:
            try:
                case = todo.get_nowait()
            except queue.Empty:
                break
            answer = worker.ask(*case)
            if answer.startswith("FAILED"):
                failures.append((*case, answer))
                counts["failed"] += 1
            else:
                counts[answer] += 1
        worker.close()

    threads = [threading.Thread(target=take) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return counts, failures


def say(line):
    sys.stdout.write(f"{line}\n")


def main(arguments):
    if arguments[:1] == ["--work"]:
        return work()
    if arguments[:1] == ["--case"]:
        return say(run_case(arguments[1], int(arguments[2])))
    cases, seed, *names = arguments
    started = time.perf_counter()
    counts, failures = fuzz(int(cases), int(seed), names)
    for name, number, what in failures:
        say(f"{name} {number}: {what}")
    say(
        f"{cases} cases, seed {seed}, {len(names or formats())} formats: {counts['read']} read,"
        f" {counts['refused']} refused, {counts['failed']} failed,"
        f" {time.perf_counter() - started:.0f} s"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
