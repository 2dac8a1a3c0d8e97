"""Damaged files of matrices, arrays, features and labels; SciPy's arrays in memory."""

import io
import pathlib
import tempfile

import fuzz_mutations as mutate
import fuzz_readers as judge
import numpy as np
from fuzz_cases import (
    MisreadError,
    a_network,
    judged,
    made,
    require_same,
    some_matrix,
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
    data = mutate.other_banner(data, rng) if rng.random() < 0.4 else data
    data = mutate.packed_or_plain(data, rng, mutate.TEXT)
    path = folder / "w1.mtx"
    path.write_bytes(data)

    def read():
        layer = gbdnn.io.read_matrix_market([path])[0]
        if np.prod(layer.shape, dtype=float) > 10**6:  # right, and too large to look at
            return None
        return layer.W.to_dense(fill_value=0)

    return judged(read, lambda: judge.matrix_market(data))


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
        data, path, judge_of = io.BytesIO(), folder / "y.npy", lambda _: np.load(path)
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
        files.append(file.getvalue())
    A = some_matrix(np.random.default_rng(6), 6, 4)
    for form in ("csr", "csc", "coo", "bsr", "dia"):
        for kind in (sp.csr_array, sp.csr_matrix):
            for compressed in (False, True):
                file = io.BytesIO()
                sp.save_npz(file, kind(A).asformat(form), compressed=compressed)
                files.append(file.getvalue())
    return files


def features_read(path, expected):
    """Features are what the judge says, as rows of numbers."""
    import gbdnn

    def read():
        X = gbdnn.io.read_features(path)
        if np.prod(X.shape, dtype=float) > 10**6:  # right, and too large to look at
            return None
        return X.to_dense(fill_value=0)

    def compare(got, right):
        if right.ndim > 2:
            right = right.reshape(len(right), np.prod(right.shape[1:], dtype=int))
        if got.shape != right.shape or not np.array_equal(got, right, equal_nan=True):
            raise MisreadError(f"{got!r} is read, {right!r} is there")

    return judged(read, expected, compare)


def case_npy(rng, folder):
    data = mutate.other_npy(rng.choice(made("npy", numpy_files)), rng)
    path = folder / "x.npy"
    path.write_bytes(data)
    return features_read(path, lambda: np.load(path, allow_pickle=False))


def case_npz(rng, folder):
    data = rng.choice(made("npz", archives))
    if rng.random() < 0.7:
        data = mutate.other_zip(data, rng, mutate.other_npy)
    else:
        data = mutate.damaged(data, rng, mutate.BINARY)
    path = folder / "x.npz"
    path.write_bytes(data)
    return features_read(path, lambda: judge.npz(data))


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
            errors=("ArgumentError",),
        )
    return judged(
        lambda: gbdnn.infer([np.eye(A.shape[1])], A).to_dense(fill_value=0),
        lambda: np.maximum(judge.compressed(form, *arrays, A.shape), 0),
        errors=("ArgumentError",),
    )
