"""The challenge's files: what is written is read, and what is wrong is named by file and line."""

import gzip
import math
import re

import graphblas as gb
import numpy as np
import pytest
from calls import raises
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gbdnn
from gbdnn import Layer, Network
from gbdnn.errors import (
    ArgumentError,
    ArgumentTypeError,
    FormatError,
    MissingFileError,
    OutputError,
    ShapeError,
)  # fmt: skip
from gbdnn.io import read_categories, read_features, write_categories, write_features
from gbdnn.io.challenge.layout import find_categories, find_features, find_layers

TYPES = {"FP32": np.float32, "FP64": np.float64}
# tmp_path is one folder for all examples; each writes its file anew.
FILES = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def file(tmp_path):
    return tmp_path / "some.tsv"


def entries(A):
    """{(row, column): value's bits} of a matrix."""
    rows, cols, values = A.to_coo()
    found = {(int(i), int(j)): x.tobytes() for i, j, x in zip(rows, cols, values, strict=True)}
    assert len(found) == A.nvals
    return found


INDEX = re.compile(r"[+-]?\d+", re.ASCII)
VALUE = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def parse(text):
    """{(row, column): value} of a text in the format, 0-based; None if it is not."""
    found = {}
    lines = text.split("\n")
    if lines.pop() or not lines:
        return None
    for line in lines:
        fields = line.removesuffix("\r").split("\t")
        if len(fields) != 3:
            return None
        if not (INDEX.fullmatch(fields[0]) and INDEX.fullmatch(fields[1])):
            return None
        place = int(fields[0]) - 1, int(fields[1]) - 1
        if place in found or not all(0 <= x < 2**60 for x in place):
            return None
        if not VALUE.fullmatch(fields[2]) or not math.isfinite(float(fields[2])):
            return None
        found[place] = float(fields[2])
    return found


def nonzero(found):
    return {place: value for place, value in found.items() if value != 0}


@st.composite
def matrices(draw, dtype):
    """Draw a shape, {(row, column): nonzero finite value}."""
    nrows, ncols = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    width = 8 * np.dtype(TYPES[dtype]).itemsize
    values = st.floats(width=width, allow_nan=False, allow_infinity=False).filter(bool)
    if draw(st.booleans()):
        values = st.just(draw(values))
    places = st.tuples(st.integers(0, nrows - 1), st.integers(0, ncols - 1))
    return (nrows, ncols), draw(st.dictionaries(places, values, max_size=20))


def to_matrix(shape, items, dtype, orientation="rowwise"):
    A = gb.Matrix(dtype, *shape)
    A.ss.config["format"] = "by_row" if orientation == "rowwise" else "by_col"
    if items:
        A.build([i for i, _ in items], [j for _, j in items], list(items.values()))
    return A


# --- round trips


@pytest.mark.parametrize("dtype", TYPES)
@FILES
@given(drawn=st.data(), held=st.sampled_from(["rowwise", "columnwise"]))
def test_read_what_was_written(file, dtype, drawn, held):
    shape, items = drawn.draw(matrices(dtype))
    A = to_matrix(shape, items, dtype, held)
    before = entries(A)
    write_features(A, file, replace=True)
    assert entries(A) == before
    assert A.ss.orientation == held
    B = read_features(file, nrows=shape[0], ncols=shape[1], dtype=dtype)
    assert (B.shape, B.dtype) == (shape, dtype)
    assert entries(B) == before
    assert B.ss.orientation == "rowwise"
    if len(set(before.values())) == 1 and gb.ss.about["library_version"] < (10,):
        assert B.ss.is_iso
    written = parse(file.read_text())
    assert {place: TYPES[dtype](x) for place, x in nonzero(written).items()} == items
    assert list(written) == sorted(written)


def test_fp32_is_rounded_once(file):
    # Just above the midpoint of 1 and the next float32; as float64 it is the midpoint.
    above = "1.000000059604644775390626"
    for row in ("1", "0" * 50 + "1"):  # many zeros in an index change nothing
        file.write_text(f"{row}\t1\t{above}\n1\t2\t0.5\n")
        assert read_features(file)[0, 0].new().value == np.nextafter(np.float32(1), np.float32(2))


@pytest.mark.parametrize("dtype", ["BOOL", "INT8", "INT64", "UINT8", "UINT64"])
def test_integers_and_bool(file, dtype):
    A = gb.Matrix.from_coo([0, 2], [1, 0], [1, 1], dtype=dtype, nrows=3, ncols=2)
    write_features(A, file)
    assert file.read_text() == "1\t2\t1.0\n3\t1\t1.0\n"


@pytest.mark.parametrize("dtype", ["BOOL", "INT32", "FP32", "FP64"])
@pytest.mark.parametrize("zeros", [False, True])
def test_no_entries_keep_the_shape(file, dtype, zeros):
    A = gb.Matrix(dtype, 5, 7)
    if zeros:
        A[1, 1] = 0
    write_features(A, file)
    assert file.read_text() == "5\t7\t0\n"
    for shape in [{}, {"nrows": 5, "ncols": 7}]:
        B = read_features(file, **shape)
        assert (B.shape, B.nvals) == ((5, 7), 0)


def test_huge_indices(file):
    file.write_text(f"{2**60}\t1\t1\n1\t{2**60}\t2\n")
    A = read_features(file)
    assert A.shape == (2**60, 2**60)
    assert set(entries(A)) == {(2**60 - 1, 0), (0, 2**60 - 1)}


def test_the_content_shows_the_compression_not_the_name(tmp_path):
    (tmp_path / "name.gz").write_text("2\t1\t0.5\n")
    assert read_features(tmp_path / "name.gz").shape == (2, 1)


# --- bad files: the message names file and line


BAD = {
    "two fields": ("1\t1\t1\n1\t2\n", 2, "2 fields in '1.t2'; expected 3: row, column, value"),
    "blank line": ("1\t1\t1\n\n1\t2\t1\n", 2, "a blank line"),
    "header": ("row\tcolumn\tvalue\n1\t1\t1\n", 1, "the row 'row' is not an integer"),
    "column 0": ("1\t1\t1\n1\t0\t1\n", 2, "the column is '0'; indices start at 1"),
    "row -1": ("-1\t1\t1\n", 1, "the row is '-1'; indices start at 1"),
    "index of 2^64 + 1": (f"1\t{2**64 + 1}\t1\n", 1, "exceeds the largest index, 1152921504"),
    "5000 digits": ("1\t1\t1\n" + "9" * 5000 + "\t1\t1\n", 2, "exceeds the largest index"),
    "nan": ("1\t1\t1\n1\t2\tnan\n", 2, "the value 'nan' is not a finite number"),
    "1e400": ("1\t1\t1\n1\t2\t1e400\n", 2, "the value '1e400' is too large for float"),
    "lone CR": ("1\t1\t1\r1\t2\t1\n", 1, "5 fields"),
    "byte order mark": ("\ufeff1\t1\t1\n", 1, r"the row '.ufeff1' is not an integer"),
    "NUL": ("1\t1\t1\n1\t2\t1\0\n", 2, r"the value '1.x00' is not a finite number"),
    "duplicate zeros": ("1\t1\t2\n1\t2\t0\n1\t2\t-0\n", 3, "the first is in line 2"),
    "two duplicates": (
        "2\t2\t1\n1\t1\t1\n2\t2\t1\n1\t1\t1\n", 3,
        "duplicate entry in row 2, column 2; the first is in line 1",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "line", "message"), BAD.values(), ids=BAD.keys())
def test_bad_line(file, text, line, message):
    for content in (text.encode(), gzip.compress(text.encode())):
        file.write_bytes(content)
        with pytest.raises(FormatError, match=rf"some\.tsv, line {line}: .*{message}") as caught:
            read_features(file)
        assert len(str(caught.value)) < 300 + len(str(file))


def test_a_long_file(file, monkeypatch):
    """More bytes than are parsed at once."""
    monkeypatch.setattr("gbdnn.io.challenge.table._PIECE", 1 << 14)
    n = 5_000
    A = gb.Matrix.from_coo(np.arange(n), np.arange(n) % 4, np.arange(n) % 7 + 0.5)
    write_features(A, file)
    assert read_features(file, dtype="FP64").isequal(A)
    lines = file.read_bytes().splitlines(keepends=True)
    lines[n - 9] = b"1\tx\t1\n"
    file.write_bytes(b"".join(lines))
    raises(FormatError, rf"some\.tsv, line {n - 8}: the column 'x'", read_features, file)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ({"nrows": 2}, "line 2: the row '3' exceeds the number of rows, 2"),
        ({"ncols": 4}, "line 3: the column '5' exceeds the number of columns, 4"),
    ],
)
def test_index_past_the_shape(file, shape, message):
    file.write_text("1\t4\t1\n3\t1\t1\n1\t5\t1\n")
    assert read_features(file, nrows=3, ncols=5).shape == (3, 5)
    raises(FormatError, rf"some\.tsv, {message}", read_features, file, **shape)


@pytest.mark.parametrize("end", ["2\t1\t6.25e-0", "2\t1", "2", "2\t1\t6.25e-02\r"])
def test_truncated_in_a_line(file, end):
    file.write_text("1\t1\t6.25e-02\n" + end, newline="")
    raises(FormatError, r"some\.tsv: the file ends inside line 2", read_features, file)


# --- the readers agree with a line parser that shares nothing with them

rare = st.sampled_from(
    ["", "0", "-1", "-0", "+", "1.0", "1e0", " 1", "1 ", "1_0", "nan", '"1"', "#1", "٣", "+-1"]
)
odd_values = st.one_of(
    st.sampled_from(["0", "-0.0", ".5", "5.", "1e5", "1E+5", "5.e3", ".e3", "+1", "0e999"]),
    st.sampled_from([".", "e5", "1e", "+-1", "1.2.3", "1e5.5", "-.", "inf", "1e400", "1e-400"]),
)
index_texts = st.one_of(*[st.integers(1, 12).map(str)] * 12, rare, st.text("0+12-", min_size=1))
value_texts = st.one_of(
    *[st.floats(allow_nan=False).map(repr)] * 5, odd_values, odd_values, rare, st.text("0.1e+-")
)
good_line = st.tuples(index_texts, index_texts, value_texts).map("\t".join)
any_line = st.one_of(*[good_line] * 20, st.lists(value_texts, max_size=5).map("\t".join))
ends = st.sampled_from(["\n"] * 20 + ["\r\n"] * 4 + ["\r", "\n\n", "\r\r\n", ""])
texts = st.one_of(*[st.lists(st.tuples(any_line, ends).map("".join), max_size=5).map("".join)] * 4,
    st.text("\t\t\t\n\n\r0123.e-+ ", max_size=12))  # fmt: skip


@settings(FILES, max_examples=80)
@given(text=texts)
def test_accepts_what_a_line_parser_accepts(file, text):
    expected = parse(text)
    file.write_bytes(text.encode())
    if expected is None:
        raises(FormatError, None, read_features, file, dtype="FP64")
    else:
        A = read_features(file, dtype="FP64")
        found = {place: np.frombuffer(bits)[0] for place, bits in entries(A).items()}
        assert found == nonzero(expected)
        assert A.shape == tuple(max(place[k] for place in expected) + 1 for k in (0, 1))


# --- writing


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_write_refuses_what_read_would(file, bad):
    file.write_text("1\t1\t1\n")
    with pytest.raises(ArgumentError, match=f"features: contains {bad} in row 1, column 1"):
        write_features(gb.Matrix.from_coo([0, 1], [0, 1], [1.0, bad]), file)
    raises(ArgumentTypeError, "complex128", write_features, gb.Matrix.from_dense([[1j]]), file)
    with pytest.raises(ArgumentError, match="at least one row and one column"):
        write_features(gb.Matrix("FP32", 0, 3), file)
    assert file.read_text() == "1\t1\t1\n"


# --- categories


@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz"])
@FILES
@given(rows=st.sets(st.integers(0, 2**60 - 1) | st.integers(0, 9), max_size=20))
def test_categories_round_trip(tmp_path, name, rows):
    write_categories(list(rows), tmp_path / name, replace=True)
    found = read_categories(tmp_path / name, allow_empty=True)
    assert found.dtype == np.int64
    assert found.tolist() == sorted(rows)
    some = read_categories(tmp_path / name, inputs=5, allow_empty=True)
    assert some.tolist() == [x for x in sorted(rows) if x < 5]


def test_categories_are_1_based_in_the_file(file):
    write_categories(np.array([4, 0], np.uint32), file)
    assert file.read_text() == "1\n5\n"
    file.write_text("5\r\n1\r\n")
    assert read_categories(file).tolist() == [0, 4]
    assert read_categories(file, inputs=0).tolist() == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1\n0\n", r", line 2: the category is '0'; indices start at 1"),
        ("1\n2.0\n", r", line 2: the category '2.0' is not an integer"),
        ("1\n\n2\n", r", line 2: the category '' is not an integer"),
        ("1\t2\n", r", line 1: 2 fields in '1\\t2'; expected 1: category"),
        ("7\n1\n7\n1\n", r", line 3: duplicate input number 7; the first is in line 1"),
        ("7\n12", r": the file ends inside line 2"),
    ],
)
def test_bad_categories(file, text, message):
    file.write_text(text)
    raises(FormatError, r"some\.tsv" + message, read_categories, file)


@pytest.mark.parametrize(
    ("rows", "kind", "message"),
    [
        ([-1, 2], ArgumentError, "contain -1; ids must be"),
        ([0, 2**60], ArgumentError, "contain 1152921504606846976; ids must be from 0"),
        ([1, 2, 1], ArgumentError, "duplicate 1"),
        ([[1, 2]], ArgumentError, r"shape \(1, 2\)"), ([1.0], ArgumentTypeError, "float64"),
    ],
)  # fmt: skip
def test_write_bad_categories(file, rows, kind, message):
    raises(kind, message, write_categories, rows, file)
    assert not file.exists()


# --- layout


def put(path, text="1\t1\t1\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    content = text.encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("folder", ["DNN/neuron64", "neuron64", "."])
def test_find_layers(tmp_path, folder, ending):
    names = [f"n64-l{k}.tsv{ending}" for k in range(1, 13)]
    for name in [*names, "n64-l01.tsv", "n6-l1.tsv", "n64-l13.txt", "xn64-l1.tsv"]:
        put(tmp_path / folder / name)
    paths = [tmp_path / folder / name for name in names]
    assert find_layers(tmp_path, 64) == paths
    assert find_layers(tmp_path / folder, 64, 3) == paths[:3]
    with pytest.raises(MissingFileError, match=r"n64-l13\.tsv \(or \.gz\) is missing; .* 12 lay"):
        find_layers(tmp_path, 64, 13)
    paths[1].unlink()
    raises(MissingFileError, r"n64-l2\.tsv \(or \.gz\) is missing", find_layers, tmp_path, 64)


@pytest.mark.parametrize(
    ("find", "name", "message"),
    [
        (find_features, "MNIST/sparse-images-64.tsv.gz", r"MNIST.sparse-images-128\.tsv, "),
        (find_features, "sparse-images-64.tsv", r"MNIST.sparse-images-128\.tsv, "),
        (find_categories, "DNN/neuron64-l120-categories.tsv", "neuron128-l120-categories"),
        (find_categories, "neuron64-l120-categories.tsv", "neuron128-l120-categories"),
        (find_layers, "n64-l1.tsv", r"no layers of 128 neurons; expected files n128-l1\.tsv, "),
    ],
)
def test_find_other_files(tmp_path, find, name, message):
    path, more = put(tmp_path / name), (120,) if find is find_categories else ()
    assert find(tmp_path, 64, *more) == ([path] if find is find_layers else path)
    raises(MissingFileError, message, find, tmp_path, 128, *more)
    raises(MissingFileError, "none: no such folder", find, tmp_path / "none", 64, *more)
    raises(MissingFileError, "not a folder", find, path, 64, *more)


def test_a_plain_layer_comes_before_a_compressed_one(tmp_path):
    for name in ["n64-l1.tsv.gz", "n64-l1.tsv", "n64-l2.tsv.gz"]:
        put(tmp_path / name)
    assert [x.name for x in find_layers(tmp_path, 64)] == ["n64-l1.tsv", "n64-l2.tsv.gz"]


# --- whole networks


def random_network(count, n=16):
    rng = np.random.default_rng(count)
    W = rng.random((count, n, n)) * (rng.random((count, n, n)) < 0.3)
    return Network([Layer(w.astype(np.float32), -0.3, bias_rule="entries", clip=32) for w in W])


def test_network_round_trip(tmp_path):
    count = 11
    net = random_network(count)
    folder = tmp_path / "new" / "neuron16"
    gbdnn.save(net, folder, "tsv", lossy=True)
    assert {x.name for x in folder.iterdir()} == {f"n16-l{k}.tsv" for k in range(1, count + 1)}
    calls = []
    found = gbdnn.load(tmp_path / "new", bias=-0.3, progress=lambda *x: calls.append(x))
    assert calls == [(k, count) for k in range(1, count + 1)]
    assert [x.weights.ss.orientation for x in found] == ["columnwise"] * count
    assert found.isequal(net)
    assert gbdnn.load(tmp_path / "new", layers=1, bias=0.0, dtype="FP64").dtype == np.float64


def test_a_folder_with_other_files_is_never_written(tmp_path):
    gbdnn.save(random_network(3), tmp_path, "tsv", lossy=True)
    before = (tmp_path / "n16-l1.tsv").read_bytes()
    for replace in (False, True):
        with pytest.raises(OutputError, match="the folder is not empty; choose another path"):
            gbdnn.save(random_network(2), tmp_path, "tsv", lossy=True, replace=replace)
    assert (tmp_path / "n16-l1.tsv").read_bytes() == before


def test_a_network_that_does_not_fit_the_format_leaves_no_file(tmp_path):
    net, message = [np.eye(3), np.eye(3), np.ones((3, 2))], "layer 2: weights are 3 x 2, not 3 x 3"
    raises(ShapeError, message, gbdnn.save, net, tmp_path / "net", "tsv", lossy=True)
    assert list(tmp_path.iterdir()) == []


def test_categories_beside_the_folder_of_the_layers_in_use(tmp_path, monkeypatch):
    (tmp_path / "neuron64").mkdir()
    write_categories([3], tmp_path / "neuron64-l120-categories.tsv")
    monkeypatch.chdir(tmp_path / "neuron64")
    found = find_categories(".", 64, 120)
    assert found.resolve() == (tmp_path / "neuron64-l120-categories.tsv").resolve()
