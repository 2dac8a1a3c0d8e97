"""Networks from and to SciPy: arrays in memory, Matrix Market folders."""

import gzip
import itertools
import subprocess
import sys

import graphblas as gb
import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import Dense, dense_inference

import gbdnn
from gbdnn import io
from gbdnn.io.files import whole_folder

FEW = settings(max_examples=25, deadline=None)
W0 = np.array([[1.0, 0.0, 2.0], [0.0, -3.0, 0.0]])
W1 = np.array([[0.5, 0.0], [0.0, 0.25], [-1.0, 1 / 3]])


@st.composite
def networks(draw):
    """Any values of either precision, empty layers and columns, numbers and vectors as biases."""
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = draw(st.lists(st.integers(1, 9), min_size=2, max_size=5))
    scale = draw(st.sampled_from([1.0, 1e-30, 1e30]))
    layers = []
    for n, m in itertools.pairwise(sizes):
        W = (random.standard_normal((n, m)) * scale).astype(dtype)
        W[random.random((n, m)) > draw(st.sampled_from([0.0, 0.3, 1.0]))] = 0
        vector = random.standard_normal(m).astype(dtype)
        layers.append((W, draw(st.sampled_from([0.0, float(dtype(-0.3)), vector]))))
    options = {
        "bias_rule": draw(st.sampled_from(["all", "entries"])),
        "clip": draw(st.sampled_from([None, 0.1, 32])),
        "last_activation": draw(st.sampled_from(["relu", "identity"])),
    }
    return layers, options


def assert_same(net, expected):
    """Equal to the last bit, but that a number may have become a vector of it, or back."""
    assert len(net) == len(expected)
    for mine, its in zip(net, expected, strict=True):
        assert mine.dtype == its.dtype
        assert mine.weights.isequal(its.weights, check_dtype=True)
        np.testing.assert_array_equal(
            np.broadcast_to(mine.bias, mine.ncols), np.broadcast_to(its.bias, its.ncols)
        )
        assert (mine.bias_rule, mine.activation) == (its.bias_rule, its.activation)
        assert mine.clip == its.clip


@FEW
@given(networks())
def test_round_trips_are_exact(tmp_path_factory, problem):
    layers, options = problem
    net = io.from_scipy(layers, **options)
    for layer, (W, b) in zip(net, layers, strict=True):
        np.testing.assert_array_equal(layer.weights.to_dense(fill_value=0), W)
        np.testing.assert_array_equal(layer.bias, b)
        assert layer.edges == np.count_nonzero(W)
    assert io.from_scipy(io.to_scipy(net), **options).isequal(net)
    folder = tmp_path_factory.mktemp("net")
    io.write_matrix_market(net, folder / "mtx")
    assert_same(io.read_matrix_market(folder / "mtx", **options), net)


def test_the_answer_is_the_textbooks():
    X = np.array([[1.0, 2.0], [0.0, 1.0], [3.0, -1.0]])
    b = np.array([0.5, 1.0, -0.25])
    net = io.from_scipy([(W0, b), (sp.coo_array(W1), -1)], clip=2.0, last_activation="identity")
    oracle = [Dense(W0, b, clip=2.0), Dense(W1, -1.0, activation="identity")]
    got = gbdnn.infer(net, X).to_dense(fill_value=0)
    np.testing.assert_allclose(got, dense_inference(oracle, X), rtol=1e-15)
    assert (got < 0).any()


def test_the_last_layer_alone_has_no_activation():
    net = io.from_scipy([W0, W1], clip=3, last_activation="identity")
    assert [(layer.activation, layer.clip) for layer in net] == [("relu", 3.0), ("identity", None)]
    assert {layer.activation for layer in io.from_scipy([W0, W1])} == {"relu"}


def test_bias_beside_bare_matrices():
    net = io.from_scipy([W0, W1], bias=[-0.5, [1.0, 2.0]], dtype="FP32")
    assert net[0].bias == -0.5
    assert net[1].bias.tolist() == [1, 2]
    assert net.dtype == np.float32
    assert io.from_scipy([(W0, None), W1])[0].bias == 0
    assert len(io.from_scipy([])) == 0


def test_to_scipy_gives_copies():
    net = io.from_scipy([(W0, [1.0, 2.0, 3.0])])
    [(W, b)] = io.to_scipy(net)
    W.data[:] = 9
    b[:] = 9
    assert net.isequal(io.from_scipy([(W0, [1.0, 2.0, 3.0])]))


def test_iso_weights_come_out_whole():
    W = gb.Matrix.from_coo([0, 1], [1, 2], 0.25, nrows=2, ncols=3)
    [(A, _)] = io.to_scipy(gbdnn.Network([gbdnn.Layer(W)]))
    np.testing.assert_array_equal(A.toarray(), [[0, 0.25, 0], [0, 0, 0.25]])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: io.from_scipy([W0, W0]), gbdnn.ShapeError, "layer 1: weights are 2 x 3"),
        (lambda: io.from_scipy([W0, W1 * np.nan]), gbdnn.ArgumentError, "layer 1: .*nan"),
        (lambda: io.from_scipy([W0, W1 * 1j]), gbdnn.ArgumentTypeError, "layer 1: .*complex"),
        (lambda: io.from_scipy([(W0, [1.0])]), gbdnn.ShapeError, "layer 0: bias has shape"),
        (lambda: io.from_scipy([(W0, 1)], bias=1), gbdnn.ArgumentTypeError, "bias= beside pairs"),
        (lambda: io.from_scipy(W0), gbdnn.ArgumentTypeError, "a list, not one"),
        (lambda: io.from_scipy([gbdnn.Layer(W0)]), gbdnn.ArgumentTypeError, "layer 0 is a Layer"),
        (lambda: io.from_scipy(3), gbdnn.ArgumentTypeError, "list of matrices or of pairs"),
        (
            lambda: io.from_scipy([W0], last_activation="tanh"),
            gbdnn.ArgumentError,
            "last_activation is 'relu' or 'identity', not 'tanh'",
        ),
        (lambda: io.to_scipy([W0]), gbdnn.ArgumentTypeError, "a Network is needed"),
        (lambda: io.write_matrix_market([W0], "x"), gbdnn.ArgumentTypeError, "a Network is needed"),
    ],
)
def test_bad_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call()


NET = io.from_scipy([(W0, [0.5, -0.5, 0.0]), (W1, -0.3)])


def test_files_come_in_the_order_of_their_numbers(tmp_path):
    square = [np.full((3, 3), float(k)) for k in range(1, 12)]
    net = io.from_scipy(square)
    io.write_matrix_market(net, tmp_path)
    assert (tmp_path / "n3-l11.mtx").exists()
    assert io.read_matrix_market(tmp_path).isequal(net)
    for path in tmp_path.glob("*-bias.mtx"):
        path.unlink()
    assert io.read_matrix_market(tmp_path).isequal(net)
    assert io.read_matrix_market(tmp_path, bias=-0.5)[3].bias == -0.5
    files = [tmp_path / "n3-l3.mtx", tmp_path / "n3-l1.mtx"]
    assert io.read_matrix_market(files).isequal(io.from_scipy([square[2], square[0]]))
    with pytest.raises(TypeError, match="prefix= beside a list of files"):
        io.read_matrix_market(files, prefix="n3-l")


def test_every_format_of_scipy(tmp_path):
    layers = []
    for k, form in enumerate(["csr", "csc", "coo", "bsr", "dia"]):
        sp.save_npz(tmp_path / f"w{k}.npz", sp.coo_array(np.diag([1.0, k, 3.0])).asformat(form))
        layers.append(sp.load_npz(tmp_path / f"w{k}.npz"))
    net = io.from_scipy([*layers, sp.csr_matrix(np.eye(3))])
    assert [layer.weights.to_dense(fill_value=0)[1, 1] for layer in net] == [0, 1, 2, 3, 4, 1]
    A = sp.csr_array(W0)
    A.indices[0] = 10**6
    with pytest.raises(gbdnn.ArgumentError, match="corrupt"):
        io.from_scipy([A])


def test_a_folder_with_a_fault(tmp_path):
    io.write_matrix_market(NET, tmp_path)
    with pytest.raises(gbdnn.ArgumentError, match=r"bias= beside .*n2-l1-bias.mtx"):
        io.read_matrix_market(tmp_path, bias=1.0)
    with pytest.raises(gbdnn.OutputError, match=r"holds n2-l2.mtx of another network"):
        io.write_matrix_market(NET[:1], tmp_path)
    eye = "%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 1\n2 2 1\n"
    write(tmp_path, other1=eye)
    with pytest.raises(gbdnn.ArgumentError, match="prefix= says which: 'n2-l', 'other'"):
        io.read_matrix_market(tmp_path)
    assert io.read_matrix_market(tmp_path, prefix="n2-l").isequal(NET)
    write(tmp_path, **{"n2-l01": eye})
    with pytest.raises(gbdnn.ArgumentError, match=r"n2-l01.mtx and n2-l1.mtx have one number"):
        io.read_matrix_market(tmp_path, prefix="n2-l")
    (tmp_path / "n2-l01.mtx").unlink()
    (tmp_path / "n2-l2.mtx").rename(tmp_path / "n2-l3.mtx")
    with pytest.raises(gbdnn.MissingFileError, match=r"n2-l2.mtx is missing; the folder has 2"):
        io.read_matrix_market(tmp_path, prefix="n2-l")
    with pytest.raises(gbdnn.MissingFileError, match=r"no layers; expected files"):
        io.read_matrix_market(tmp_path, prefix="nothing")
    with pytest.raises(gbdnn.MissingFileError, match="nowhere: no such file or folder"):
        io.read_matrix_market(tmp_path / "nowhere")
    with pytest.raises(gbdnn.MissingFileError, match="no such file"):
        io.read_matrix_market([tmp_path / "nowhere.mtx"])


def test_a_name_too_long_for_a_bias_beside_it(tmp_path):
    file = tmp_path / ("w" * 246 + "1.mtx")
    file.write_text("%%MatrixMarket matrix coordinate real general\n2 2 1\n1 1 4\n")
    assert io.read_matrix_market([file])[0].edges == 1


def test_names_that_no_file_can_have(tmp_path):
    for name in ("x" * 300, "a\0b"):
        with pytest.raises(gbdnn.OutputError), whole_folder(tmp_path / name):
            pass
        with pytest.raises(gbdnn.OutputError):
            io.write_matrix_market(NET, tmp_path / name)


def test_shapes_and_options(tmp_path):
    io.write_matrix_market(NET, tmp_path)
    write(tmp_path, **{"n2-l1-bias": f"{HEAD} array real general\n1 2\n1.0\n2.0\n"})
    with pytest.raises(gbdnn.ShapeError, match=r"n2-l1.mtx: bias has shape \(2,\)"):
        io.read_matrix_market(tmp_path)
    write(tmp_path, **{"n2-l1-bias": f"{HEAD} array real general\n1 3\nnan\n2.0\n1\n"})
    with pytest.raises(gbdnn.FormatError, match=r"n2-l1-bias.mtx, line 3: .* values are finite"):
        io.read_matrix_market(tmp_path)
    with pytest.raises(gbdnn.ArgumentError, match=r"^clip is finite"):
        io.read_matrix_market(tmp_path, clip=-1)


def write(folder, **files):
    for name, text in files.items():
        (folder / f"{name}.mtx").write_text(text)


HEAD = "%%MatrixMarket matrix"


def test_lagraphs_folder(tmp_path):
    """Its layout, names and comments: layers among images and categories, no file of biases."""
    comments = "%%GraphBLAS GrB_FP32\n% Synthetic Sparse Deep Neural Network, layer 1 of 1920.\n"
    entries = "4 4 3\n1 1 .0625\n2 1 .0625\n4 3 .0625\n"
    for k in range(1, 12):
        write(tmp_path, **{f"n4-l{k}": f"{HEAD} coordinate real general\n{comments}{entries}"})
    write(tmp_path, **{"sparse-images-4_subset": "not read"})
    write(tmp_path, **{"neuron4-l120-categories_subset": "not read"})
    net = io.read_matrix_market(tmp_path, bias=-0.3, bias_rule="entries", clip=32)
    W = sp.coo_array(([0.0625] * 3, ([0, 1, 3], [0, 0, 2])), shape=(4, 4), dtype=np.float32)
    assert net.isequal(io.from_scipy([W] * 11, bias=-0.3, bias_rule="entries", clip=32))


def test_matrix_market_of_every_kind(tmp_path):
    write(
        tmp_path,
        w1=f"{HEAD} coordinate pattern symmetric\n2 2 2\n1 1\n2 1\n",
        w2=f"{HEAD} coordinate integer general\n2 3 2\n1 1 -4\n2 3 5\n",
        w3=f"{HEAD} coordinate integer general\n3 1 1\n3 1 7\n",
    )
    (tmp_path / "w4.mtx.gz").write_bytes(
        gzip.compress(f"{HEAD} array real general\n1 2\n0.5\n0\n".encode())
    )
    write(tmp_path, **{"w4-bias": f"{HEAD} array real general\n2 1\n0.25\n-1\n"})
    net = io.read_matrix_market(tmp_path, dtype="FP32")
    expected = [[[1, 1], [1, 0]], [[-4, 0, 0], [0, 0, 5]], [[0], [0], [7]], [[0.5, 0]]]
    assert [layer.weights.to_dense(fill_value=0).tolist() for layer in net] == expected
    assert [np.ndim(layer.bias) for layer in net] == [0, 0, 0, 1]
    assert net[3].bias.tolist() == [0.25, -1]


def test_what_is_written_others_read(tmp_path):
    io.write_matrix_market(NET, tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "n2-l1-bias.mtx", "n2-l1.mtx", "n2-l2-bias.mtx", "n2-l2.mtx",
    ]  # fmt: skip
    np.testing.assert_array_equal(scipy.io.mmread(tmp_path / "n2-l2.mtx").toarray(), W1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "w1.mtx, line 1: .*banner.*an empty file"),
        ("hello\n", "w1.mtx, line 1: .*banner.*hello"),
        # Another parser ends the process at some of these, and reads others as other numbers.
        (f"{HEAD} coordinate real general\n2 2 2\n1 1 1\n1 2 2e", "w1.mtx: ends inside line 4"),
        (
            f"{HEAD} coordinate real general\n2 2 1\n1 1 2e-\n",
            "w1.mtx, line 3: the value '2e-' is not a number",
        ),
        (
            f"{HEAD} coordinate real general\n2 2 1\n1 1 2\0\n",
            r"w1.mtx, line 3: the value '2.x00' is not a n",
        ),
        (
            f"{HEAD} coordinate real general\n2 2 1\n1 1 -1.fl\n",
            "w1.mtx, line 3: the value '-1.fl' is no",
        ),
        (
            f"{HEAD} coordinate integer general\n2 2 1\n1 1 1e400\n",
            "w1.mtx, line 3: .* not a whole number",
        ),
        (
            f"{HEAD} coordinate integer general\n2 2 1\n1 1 2.5\n",
            "w1.mtx, line 3: .* not a whole number",
        ),
        (
            f"{HEAD} coordinate integer general\n2 2 1\n1 1 18\r44\n",
            "w1.mtx, line 3: .* not a whole",
        ),
        (
            f"{HEAD} coordinate real general\n2 2 2\n1 1 1\n",
            "w1.mtx: 1 entries; its line of sizes promises 2: cut off",
        ),
        (f"{HEAD} coordinate real general\n2 2 1\n3 1 1\n", "w1.mtx, line 3: the row '3' is past"),
        (
            f"{HEAD} coordinate real general\n2 2 1\n1 1 nan\n",
            "w1.mtx, line 3: .*values are finite",
        ),
        (
            f"{HEAD} coordinate real general\n2 2 1\n1 1 1e999\n",
            "w1.mtx, line 3: .*too large for f",
        ),
        (f"{HEAD} coordinate complex general\n2 2 1\n1 1 1 2\n", "w1.mtx, line 1: no .* banner"),
        (
            f"{HEAD} coordinate real general\n2 2 3\n2 1 1\n1 1 1\n2 1 0\n",
            "w1.mtx: a second entry in row 2, column 1",
        ),
        (
            f"{HEAD} coordinate real general\n%%GraphBLAS type float\n1 1 1\n1 1 1e39\n",
            "w1.mtx, line 4: the value '1e39' is too large for float32",
        ),
    ],
)
def test_matrix_market_with_a_fault(tmp_path, text, message):
    write(tmp_path, w1=text)
    with pytest.raises(gbdnn.FormatError, match=message):
        io.read_matrix_market(tmp_path)
    (tmp_path / "w1.mtx.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "w1.mtx").unlink()
    with pytest.raises(gbdnn.FormatError, match=message.replace(".mtx", ".mtx.gz")):
        io.read_matrix_market(tmp_path)


def test_matrix_market_cut_off_or_too_large(tmp_path):
    io.write_matrix_market(NET, tmp_path)
    whole = gzip.compress((tmp_path / "n2-l1.mtx").read_bytes())
    (tmp_path / "n2-l1.mtx").unlink()
    (tmp_path / "n2-l1.mtx.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(gbdnn.FormatError, match=r"n2-l1.mtx.gz: "):
        io.read_matrix_market(tmp_path)
    huge = f"{HEAD} array real general\n20000000 100000000\n1\n"
    (tmp_path / "n2-l1.mtx.gz").write_bytes(gzip.compress(huge.encode()))
    with pytest.raises(gbdnn.TooLargeError, match=r"n2-l1.mtx.gz: "):
        io.read_matrix_market(tmp_path)
    square = f"{HEAD} array real general\n2 2\n1\n2\n3\n4\n"
    (tmp_path / "n2-l1.mtx.gz").write_bytes(whole)
    write(tmp_path, **{"n2-l1-bias": square})
    with pytest.raises(gbdnn.FormatError, match=r"n2-l1-bias.mtx: 2 x 2; a bias is one row"):
        io.read_matrix_market(tmp_path)


def test_formats_bring_in_their_packages_when_they_are_used():
    code = "import sys, gbdnn.io; print({'scipy', 'torch', 'onnx', 'polars'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize(
    ("package", "call"),
    [
        ("scipy.sparse", lambda folder: io.to_scipy(NET)),
        ("scipy.sparse", lambda folder: io.read_matrix_market(folder)),
        ("torch", lambda folder: io.to_torch(NET)),
        ("onnx", lambda folder: io.write_onnx(NET, folder / "net.onnx")),
    ],
)
def test_a_package_that_is_not_there(tmp_path, monkeypatch, package, call):
    monkeypatch.setitem(sys.modules, package, None)
    if "." in package:  # else the attribute of the package around it would do
        monkeypatch.delattr("scipy.sparse", raising=False)
    with pytest.raises(gbdnn.MissingPackageError, match=r'pip install "gbdnn\['):
        call(tmp_path)
