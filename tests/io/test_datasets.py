"""Features and labels from the formats of data sets; how much a file may unpack to."""

import io as bytes_io
import struct
import zipfile

import numpy as np
import pytest
from calls import raises
from matrices import assert_equal

from gbdnn import io
from gbdnn.errors import FormatError

A = np.arange(12, dtype=np.float32).reshape(3, 4)


def header(array=A, **fields):
    """An array's .npy file, with other fields in its header."""
    known = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape} | fields
    text = f"{known!r}\n".encode()
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text


def archive(path, compression=zipfile.ZIP_STORED, **members):
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)


def saved(array):
    file = bytes_io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.mark.parametrize("kind", ["<f4", ">f8", "<f2", "|u1", ">i8", "|b1"])
@pytest.mark.parametrize("save", [np.save, np.savez, np.savez_compressed])
@pytest.mark.parametrize("order", "CF")
def test_arrays(tmp_path, kind, save, order):
    path = tmp_path / ("x.npy" if save is np.save else "x.npz")
    want = np.asarray((A > 5) if kind == "|b1" else A, kind, order=order)
    save(path, want)
    found = io.read_features(path)
    np.testing.assert_array_equal(found.to_dense(), want)
    assert found.dtype.np_type == (np.float32 if kind == "<f2" else want.dtype.newbyteorder("="))
    assert found.ss.format == "fullr"


def test_dimensions_behind_the_first_become_one(tmp_path):
    np.save(tmp_path / "x.npy", A.reshape(3, 2, 2))
    np.testing.assert_array_equal(io.read_features(tmp_path / "x.npy").to_dense(), A)
    np.save(tmp_path / "x.npy", A.reshape(3, 2, 2)[:0])
    assert io.read_features(tmp_path / "x.npy", nrows=0).shape == (0, 4)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr", "dia"])
def test_sparse_matrices(tmp_path, form):
    sp = pytest.importorskip("scipy.sparse")
    sp.save_npz(tmp_path / "x.npz", sp.csr_array(A).asformat(form))
    assert_equal(io.read_features(tmp_path / "x.npz"), A)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"indptr": np.array([0, 1])}, "index pointer size 2 should be 3"),
        ({"indices": np.array([0, 2**32])}, "indices must be < 2"),
        ({"data": None}, "KeyError: 'data"),
        ({"data": np.ones(2, complex)}, "real numbers of at most 64 bits, not .* complex128"),
        pytest.param(
            {"data": np.ones(2, np.longdouble)}, "real numbers of at most 64 bits",
            marks=pytest.mark.skipif(np.finfo(np.longdouble).bits == 64, reason="has 64 bits"),
        ),
    ],
)  # fmt: skip
def test_damaged_sparse_matrices(tmp_path, change, fault):
    pytest.importorskip("scipy.sparse")
    eye = {
        "format": np.array(b"csr"), "shape": np.array([2, 2]), "data": np.ones(2),
        "indices": np.arange(2), "indptr": np.arange(3),
    }  # fmt: skip
    np.savez(tmp_path / "x.npz", **eye)
    assert_equal(io.read_features(tmp_path / "x.npz"), np.eye(2))
    np.savez(tmp_path / "x.npz", **{k: v for k, v in (eye | change).items() if v is not None})
    raises(FormatError, rf"x\.npz: .*{fault}", io.read_features, tmp_path / "x.npz")


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"1\t1\t1\n", "not a file of NumPy arrays$"),
        (saved(A)[:-1], "not fully written|expected 48 bytes got 47|cannot reshape"),
        (header(shape=(1 << 40, 1 << 40)), "cannot reshape array of size 0"),
        (header(descr="|O"), "Object arrays cannot be loaded"),
        (header(descr=[("a", "<f4")]) + bytes(48), "not values of dtype"),
        (b"\x93NUMPY\4\0" + saved(A)[8:], "we only support format version"),
        (saved(A).replace(b" \n", b"\xa0\n"), "Cannot parse header"),  # a blank of Latin-1
    ],
)
@pytest.mark.parametrize("ending", ["npy", "npz"])
def test_damaged_arrays(tmp_path, data, fault, ending):
    path = tmp_path / f"x.{ending}"
    if ending == "npy":
        path.write_bytes(data)
    elif data.startswith(b"\x93"):
        archive(path, x=data)
    else:
        pytest.skip("of .npy alone")
    raises(FormatError, rf"x\.{ending}: .*{fault}", io.read_features, path)


@pytest.mark.parametrize("save", [np.save, np.savez, np.savez_compressed, "scipy"])
def test_bytes_that_nobody_reads(tmp_path, save):
    """Two calls with one file: NumPy returns the first array of a .npy, the last of a .npz."""
    path = tmp_path / ("x.npy" if save is np.save else "x.npz")
    if save == "scipy":
        sparse = pytest.importorskip("scipy.sparse")
        save = lambda file, x: sparse.save_npz(file, sparse.csr_array(x))  # noqa: E731
    for rest in (b"", b"\0", None):
        with path.open("wb") as file:
            save(file, A)
            if rest is None:
                save(file, 2 * A)
            file.write(rest or b"")
        if rest == b"":
            assert io.read_features(path).shape == A.shape
            continue
        for read in (io.read_features, io.read_labels):
            raises(FormatError, r"x.np[yz]: the file has bytes (after|before)", read, path)


def test_damaged_archives(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, A)
    whole = path.read_bytes()
    at = whole.index(A.tobytes())
    path.write_bytes(whole[: at + 4] + b"\1" + whole[at + 5 :])
    raises(FormatError, "CRC-32", io.read_features, path)
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        raises(FormatError, None, io.read_features, path)
    archive(path)
    raises(FormatError, "contains 0 arrays", io.read_features, path)


def test_what_is_none_of_the_other_formats_is_tab_separated(tmp_path):
    (tmp_path / "features").write_text("1\t2\t0.5\n")
    assert io.read_features(tmp_path / "features", nrows=3, ncols=4).shape == (3, 4)
    (tmp_path / "images-idx3").write_text("1\t2\t0.5\n")
    raises(FormatError, "not an IDX file", io.read_features, tmp_path / "images-idx3")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (b"1\n2_0\n", "not one integer per line: .*'2_0'"),
        (b"1\n-2\n", "labels must not be negative, as -2"),
        (saved(np.array([1, -2])), "labels must not be negative, as -2"),
        (saved(np.array([1.0])), "labels must be integers, not float64"),
    ],
)
def test_damaged_labels(tmp_path, text, fault):
    path = tmp_path / ("y.npy" if text.startswith(b"\x93") else "y.txt")
    path.write_bytes(text)
    raises(FormatError, fault, io.read_labels, path)
