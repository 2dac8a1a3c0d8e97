"""Networks from and to folders of Matrix Market files."""

import gzip

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from calls import raises
from matrices import assert_equal, dense

import gbdnn
from gbdnn import errors, io

HEAD = "%%MatrixMarket matrix"
EYE = f"{HEAD} coordinate real general\n2 2 2\n1 1 1\n2 2 1\n"
W0 = np.array([[1.0, 0.0, 2.0], [0.0, -3.0, 0.0]])
W1 = np.array([[0.5, 0.0], [0.0, 0.25], [-1.0, 1 / 3]])
NET = gbdnn.Network([W0, W1], bias=[[0.5, -0.5, 0.0], -0.3])


def write(folder, **files):
    for name, text in files.items():
        (folder / f"{name}.mtx").write_text(text)


def weights(net):
    return [dense(layer.weights).tolist() for layer in net]


def refused(error, match, paths, **options):
    raises(error, match, gbdnn.load, paths, "matrix-market", **options)


def test_files_come_in_the_order_of_their_numbers(tmp_path):
    square = [np.full((3, 3), float(k)) for k in range(1, 12)]
    net = gbdnn.Network(square)
    gbdnn.save(net, tmp_path, "matrix-market")
    assert (tmp_path / "n3-l11.mtx").exists()
    assert gbdnn.load(tmp_path, "matrix-market").isequal(net)
    for path in tmp_path.glob("*-bias.mtx"):
        path.unlink()
    assert gbdnn.load(tmp_path, "matrix-market").isequal(net)
    assert gbdnn.load(tmp_path, "matrix-market", bias=-0.5)[3].bias == -0.5
    assert gbdnn.load(tmp_path / "n3-l3.mtx").isequal(gbdnn.Network([square[2]]))


def test_a_folder_with_a_fault(tmp_path):
    gbdnn.save(NET, tmp_path, "matrix-market")
    refused(errors.ArgumentError, r"bias= cannot .*n2-l1-bias.mtx", tmp_path, bias=1.0)
    refused(errors.ArgumentError, r"^clip must be finite", tmp_path, clip=-1)
    write(tmp_path, other1=EYE)
    refused(errors.ArgumentError, "pass prefix=, one of 'n2-l', 'other'", tmp_path)
    assert gbdnn.load(tmp_path, "matrix-market", prefix="n2-l").isequal(NET)
    write(tmp_path, **{"n2-l01": EYE})
    same = "n2-l01.mtx and n2-l1.mtx have the same number"
    refused(errors.ArgumentError, same, tmp_path, prefix="n2-l")
    (tmp_path / "n2-l01.mtx").unlink()
    (tmp_path / "n2-l2.mtx").rename(tmp_path / "n2-l3.mtx")
    missing = "n2-l2.mtx is missing; the folder contains 2"
    refused(errors.MissingFileError, missing, tmp_path, prefix="n2-l")
    refused(errors.MissingFileError, "no layers; expected files", tmp_path, prefix="nothing")
    refused(errors.MissingFileError, "nowhere: no such file or folder", tmp_path / "nowhere")


def test_biases(tmp_path):
    gbdnn.save(NET, tmp_path, "matrix-market")
    write(tmp_path, **{"n2-l1-bias": f"{HEAD} array real general\n1 2\n1.0\n2.0\n"})
    refused(errors.ShapeError, r"n2-l1.mtx: bias has shape \(2,\)", tmp_path)
    write(tmp_path, **{"n2-l1-bias": f"{HEAD} array real general\n1 3\nnan\n2.0\n1\n"})
    refused(errors.FormatError, "n2-l1-bias.mtx, line 3: .* not a finite number", tmp_path)
    write(tmp_path, **{"n2-l1-bias": EYE})
    refused(errors.FormatError, r"one row or one column, not shape \(2, 2\)", tmp_path)
    write(tmp_path, **{"n2-l1-bias": f"{HEAD} coordinate real general\n3 1 1\n2 1 4\n"})
    assert gbdnn.load(tmp_path, "matrix-market")[0].bias.tolist() == [0, 4, 0]
    file = tmp_path / ("w" * 246 + "1.mtx")  # too long a name for a bias
    file.write_text(EYE)
    assert gbdnn.load(file)[0].edges == 2


def test_lagraphs_folder(tmp_path):
    """Its layout, names and comments: layers among images and categories, no file of biases."""
    comments = "%%GraphBLAS GrB_FP32\n% Synthetic Sparse Deep Neural Network, layer 1 of 1920.\n"
    entries = "4 4 3\n1 1 .0625\n2 1 .0625\n4 3 .0625\n"
    for k in range(1, 12):
        write(tmp_path, **{f"n4-l{k}": f"{HEAD} coordinate real general\n{comments}{entries}"})
    for name in ("sparse-images-4_subset", "neuron4-l120-categories_subset"):
        write(tmp_path, **{name: "not read"})
    net = gbdnn.load(tmp_path, "matrix-market", bias=-0.3, bias_rule="entries", clip=32)
    W = sp.coo_array(([0.0625] * 3, ([0, 1, 3], [0, 0, 2])), shape=(4, 4), dtype=np.float32)
    assert net.isequal(gbdnn.Network([W] * 11, bias=-0.3, bias_rule="entries", clip=32))


def test_files_of_every_kind(tmp_path):
    write(tmp_path, w1=f"{HEAD} coordinate pattern symmetric\n2 2 2\n1 1\n2 1\n",
        w2=f"{HEAD} coordinate integer general\n2 3 2\n1 1 -4\n2 3 5\n",
        w3=f"{HEAD} coordinate integer general\n3 1 1\n3 1 7\n")  # fmt: skip
    packed = gzip.compress(f"{HEAD} array real general\n1 2\n0.5\n0\n".encode())
    (tmp_path / "w4.mtx.gz").write_bytes(packed)
    write(tmp_path, **{"w4-bias": f"{HEAD} array real general\n2 1\n0.25\n-1\n"})
    net = gbdnn.load(tmp_path, "matrix-market", dtype="FP32")
    expected = [[[1, 1], [1, 0]], [[-4, 0, 0], [0, 0, 5]], [[0], [0], [7]], [[0.5, 0]]]
    assert weights(net) == expected
    assert [np.ndim(layer.bias) for layer in net] == [0, 0, 0, 1]
    assert net[3].bias.tolist() == [0.25, -1]


def test_blanks_and_line_ends(tmp_path):
    text = f"{HEAD} coordinate real general\n% a comment\n2 3 2\n1 1 0.5\n2 3 -1e-1\n"
    for other in (
        text, text.replace("\n", "\r\n"), text.replace(" ", "  \t"), text.replace("\n", "\n\n"),
        text.replace("\n1", "\n  1").replace("\n", " \n"),
        text.replace("matrix coordinate real", "MATRIX Coordinate rEaL"),
        text.replace("%%MatrixMarket", "%%MATRIXMARKET").replace("\n2 3 -", "\n% b\n2 3 -"),
    ):  # fmt: skip
        (tmp_path / "w1.mtx").write_bytes(other.encode())
        found = weights(gbdnn.load(tmp_path, "matrix-market"))
        assert found == [[[0.5, 0, 0], [0, 0, -0.1]]], other


@pytest.mark.parametrize(("value", "dtype"), [(2**24, "FP32"), (2**24 + 1, "FP64")])
def test_integers_are_read_exactly(tmp_path, value, dtype):
    write(tmp_path, w1=f"{HEAD} coordinate integer general\n2 2 1\n2 1 -{value}\n")
    (layer,) = gbdnn.load(tmp_path, "matrix-market")
    assert layer.dtype == gbdnn.Layer(np.eye(2), dtype=dtype).dtype
    assert layer.weights.to_coo()[2].tolist() == [-value]
    if dtype == "FP64":
        gbdnn.load(tmp_path, "matrix-market", dtype="FP64")
        refused(errors.ArgumentError, r"-16777217 is above 2\*\*24", tmp_path, dtype="FP32")
        assert io.read_features(tmp_path / "w1.mtx").dtype == "INT64"


REAL, INTEGER = f"{HEAD} coordinate real general\n", f"{HEAD} coordinate integer general\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{HEAD} coordinate complex general\n2 2 1\n1 1 1 2\n", "line 1: unsupported .*complex"),
        (f"{HEAD} coordinate real skew-symmetric\n2 2 1\n2 2 1\n", "no entry in row 2, column 2"),
        (f"{HEAD} coordinate real general\n2 2 1\n% c\n2 x 1\n", "line 4"),
        (f"{HEAD} array pattern general\n1 1\n1\n", "does not support the field pattern"),
        (f"{HEAD} coordinate real symmetric\n4 7 0\n", "matrix must be square, not 4 x 7"),
        (f"{REAL}%\n4 4 0 0\n", "line 3: expected the size line"),
        (f"{REAL}4 {2**80} 0\n", "line 2: expected the size line"),
        (f"{REAL}4 {2**61} 0\n", "line 2: shape .* exceeds"),
        # SciPy's parser ends the process at the first of these.
        (f"{REAL}5 4 1\n5 4 2e", "w1.mtx: the file ends inside line 3"),
        (f"{REAL}5 4 1\n5 4 1 2\n", "line 3: 4 fields .*; expected 3"),
        (f"{REAL}5 4 1\n\n6 4 1\n", "line 4: the row '6' exceeds the number of rows, 5"),
        (f"{REAL}%%GraphBLAS type float\n1 1 1\n1 1 1e39\n", "line 4: .* too large for float32"),
        (f"{REAL}5 4 2\n5 4 1\n", "found 1 entries, but the size line states 2"),
        (f"{REAL}2 2 3\n2 1 1\n1 1 1\n2 1 0\n", "w1.mtx: duplicate entry in row 2, column 1"),
        (f"{HEAD} array real general\n20000000 100000000\n1\n", "states 2000000000000000"),
        (f"{INTEGER}2 2 1\n1 1 2.5\n", "a value is not an integer"),
        (f"{INTEGER}2 2 1\n1 1 {2**53 + 1}\n", "a value is not an integer below 2.53"),
    ],
)  # fmt: skip
def test_files_with_a_fault(tmp_path, text, message):
    write(tmp_path, w1=text)
    refused(errors.FormatError, message, tmp_path)


@pytest.mark.parametrize("name", ["n3-l1.mtx", "n3-l1-bias.mtx"])
def test_a_file_truncated_at_every_byte(tmp_path, name):
    rng = np.random.default_rng(5)
    net = gbdnn.Network([gbdnn.Layer(rng.normal(size=(3, 4)), rng.normal(size=4))])
    gbdnn.save(net, tmp_path, "matrix-market")
    assert gbdnn.load(tmp_path, "matrix-market").isequal(net)
    data = (tmp_path / name).read_bytes()
    for length in range(len(data)):
        (tmp_path / name).write_bytes(data[:length])
        refused(errors.FormatError, name, tmp_path)


@pytest.mark.parametrize("symmetry", ["general", "symmetric", "skew-symmetric"])
@pytest.mark.parametrize("field", ["real", "integer"])
@pytest.mark.parametrize("sparse", [False, True])
def test_every_symmetry_that_scipy_writes(symmetry, field, sparse, tmp_path):
    mirrored = {"general": 0, "symmetric": 1, "skew-symmetric": -1}[symmetry]
    A = np.tril(np.random.default_rng(0).integers(-3, 4, (5, 5)), -(mirrored < 0))
    A = A + mirrored * np.tril(A, -1).T
    held = sp.coo_array(A) if sparse else A
    scipy.io.mmwrite(tmp_path / "w1.mtx", held.astype(float), field=field, symmetry=symmetry)
    assert_equal(gbdnn.load(tmp_path, "matrix-market")[0].weights, A)


@pytest.mark.parametrize(
    "text",
    [
        "%%MatrixMarket matrix coordinate unsigned-integer general\n2 2 1\n2 1 15\n",
        "%MatrixMarket matrix coordinate real general\n2 2 1\n2 1 15\n",
        "  %%MatrixMarket matrix coordinate real general\n  2 2 1\n  2 1 15\n",
        "%%MatrixMarket matrix coordinate real general\n2 2 1\n2 1 1.5D+01\n",
        "%%MatrixMarket matrix array real general\n2 2\n0\n 1.5d1\n0\n0\n",
    ],
)
def test_files_of_other_writers(tmp_path, text):
    (tmp_path / "x.mtx").write_text(text)
    assert_equal(io.read_features(tmp_path / "x.mtx"), [[0, 0], [15, 0]])


def test_layers_counted_from_zero_or_one(tmp_path):
    for first in (0, 1):
        folder = tmp_path / str(first)
        folder.mkdir()
        for k in range(2):
            scipy.io.mmwrite(folder / f"n1-l{first + k}.mtx", np.array([[k + 1.0]]))
        assert weights(gbdnn.load(folder, "matrix-market")) == [[[1]], [[2]]]
