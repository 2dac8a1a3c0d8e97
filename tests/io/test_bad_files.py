"""Arrays and files that are damaged or no files at all: an error that says so, never a crash.

What ends a process fails here, too: pytest ends with it.
"""

import errno
import gzip
import os
import pathlib
import pickle
import pickletools

import numpy as np
import pytest
import scipy.sparse as sp
from shell import fails, well

import gbdnn
from gbdnn import io
from gbdnn.errors import ArgumentError, FormatError, MissingFileError, ReadError, TooLargeError
from gbdnn.io import reading

E = np.eye(4)


# SciPy's arrays


def compressed(form):
    return sp.bsr_array(E, blocksize=(1, 1)) if form == "bsr" else getattr(sp, f"{form}_array")(E)


def refused(A, match):
    for call in (
        lambda: gbdnn.infer([A], E),
        lambda: gbdnn.infer([E], A),
        lambda: gbdnn.categories(A),
        lambda: io.from_scipy([A]),
    ):
        with pytest.raises(ArgumentError, match=f"a corrupt SciPy array: .*{match}"):
            call()


@pytest.mark.parametrize("form", ["csr", "csc", "bsr"])
@pytest.mark.parametrize(
    ("indptr", "fault"),
    [
        ([0, 1, 2, 0, 4], "indptr falls from 2 to 0 at item 3"),
        ([0, 1, 2, 3, 0], "indptr falls from 3 to 0 at item 4"),
        ([0, 1, 2, 3, -1], "indptr falls from 3 to -1"),
        ([1, 1, 2, 3, 4], "indptr starts at 1, not 0"),
        ([0, 1, 2, 2, 3], "indptr ends at 3, not at the number of entries, 4"),
        ([0, 1, 2, 3, 2**31 - 1], "indptr ends at 2147483647"),
        ([0, 2**31 - 1, -(2**31), 3, 4], "indptr falls"),  # what an int32 that overflows looks like
    ],
)
def test_pointers_of_a_sparse_array(form, indptr, fault):
    A = compressed(form)
    A.indptr[:] = indptr
    refused(A, fault)


@pytest.mark.parametrize("form", ["csr", "csc", "bsr"])
def test_indices_of_a_sparse_array(form):
    for index in (4, -1, 2**31 - 1, -(2**31)):
        A = compressed(form)
        A.indices[2] = index
        refused(A, f"indices has {index}; indices are from 0 to below 4")
    for name, value, fault in (
        ("indptr", np.arange(4), "indptr has 4 items, not 5"),
        ("indptr", np.arange(5.0), "indptr is a 1-D array of integers, not 1-D of float64"),
        ("indices", np.arange(3), "3 indices, and data of shape"),
        ("data", compressed(form).data[:3], "4 indices, and data of shape"),
    ):
        A = compressed(form)
        setattr(A, name, value)
        refused(A, fault)


def test_coordinates_of_a_sparse_array():
    for index in (4, -1, 2**31 - 1):
        for name in ("row", "col"):
            A = sp.coo_array(E)
            getattr(A, name)[1] = index
            refused(A, str(index))
        A = sp.lil_array(E)
        A.rows[1][0] = index
        refused(A, str(index))
        A = sp.dok_array(E)
        A._dict[1, index] = 1.0
        refused(A, str(index))
    A = sp.lil_array(E)
    A.data[1] += [2.0] * 100_000
    refused(A, "lists of other lengths")
    A.rows[1] = [2**70]
    A.data[1] = [1.0]
    refused(A, "too large")
    A = sp.dia_array(E)
    A.offsets = np.array([0, 1])
    refused(A, "2 offsets")


@pytest.mark.parametrize("form", ["csr", "csc", "bsr", "coo", "lil", "dok", "dia"])
def test_a_good_array_of_each_form(form):
    rng = np.random.default_rng(3)
    A = rng.normal(size=(6, 4)) * (rng.random((6, 4)) < 0.5)
    Y = gbdnn.infer([A], np.eye(6), bias=0.0, engine="sparse").to_dense(fill_value=0)
    found = gbdnn.infer([sp.coo_array(A).asformat(form)], np.eye(6), engine="sparse")
    np.testing.assert_array_equal(found.to_dense(fill_value=0), Y)


# PyTorch's tensors


def torch_weights(torch):
    good = torch.eye(4).to_sparse_csr()
    pointers = ([0, 1, 2, 3, 9], [0, 1, 2, 0, 4], [0, 1, 2, 3, 2**40], [1, 1, 2, 3, 4])
    for crow in map(torch.tensor, pointers):
        for make in (torch.sparse_csr_tensor, torch.sparse_csc_tensor):
            yield make(crow, good.col_indices(), good.values(), (4, 4), check_invariants=False)
        for make in (torch.sparse_bsr_tensor, torch.sparse_bsc_tensor):
            blocks = torch.ones(4, 1, 1)
            yield make(crow, good.col_indices(), blocks, (4, 4), check_invariants=False)
    for indices in map(torch.tensor, ([0, 1, 2, 9], [0, 1, 2, -1], [0, 1, 2, 2**40])):
        yield torch.sparse_csr_tensor(
            good.crow_indices(), indices, good.values(), (4, 4), check_invariants=False
        )
        for coalesced in (None, True):
            yield torch.sparse_coo_tensor(
                torch.stack([indices, torch.arange(4)]), good.values(), (4, 4),
                check_invariants=False, is_coalesced=coalesced,
            )  # fmt: skip


@pytest.mark.frameworks
@pytest.mark.filterwarnings("ignore")
def test_sparse_tensors(tmp_path):
    torch = pytest.importorskip("torch")
    for tensor in torch_weights(torch):
        torch.save({"a.weight": tensor}, tmp_path / "net.pt")
        for call in (
            lambda tensor=tensor: io.from_torch({"a.weight": tensor}),
            lambda tensor=tensor: io.from_torch(
                {"a.weight_orig": torch.eye(4), "a.weight_mask": tensor}
            ),
            lambda tensor=tensor: io.from_torch({"a.weight": torch.eye(4), "a.bias": tensor}),
        ):
            with pytest.raises(ArgumentError, match="a corrupt sparse tensor"):
                call()
        with pytest.raises(FormatError, match=r"net.pt: .*'a.weight' is a corrupt sparse tensor"):
            io.read_torch(tmp_path / "net.pt")
    for layout in (torch.sparse_csr, torch.sparse_csc, torch.sparse_coo):
        assert io.from_torch({"a.weight": torch.eye(4).to_sparse(layout=layout)}).edges == 4
    with pytest.raises(ArgumentError, match="no values to be had"):
        io.from_torch({"a.weight": torch.eye(4), "a.bias": torch.ones(4).to_sparse()})


@pytest.mark.frameworks
@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (3, "no state_dict, but int"),
        ((), "no state_dict, but tuple"),
        ({"a.weight": 3}, "no state_dict: 'a.weight' is int"),
        ({"model": {"a.weight": 3}}, "no state_dict: 'model' is dict"),
        ({3: None}, "no state_dict: 3 is NoneType"),
    ],
)
def test_files_of_pytorch_without_a_state_dict(tmp_path, content, fault):
    torch = pytest.importorskip("torch")
    torch.save(content, tmp_path / "net.pt")
    with pytest.raises(FormatError, match=rf"net.pt: .*{fault}"):
        io.read_torch(tmp_path / "net.pt")


@pytest.mark.frameworks
@pytest.mark.parametrize("change", [lambda x: x[1:], lambda x: x[:-1], lambda x: [x[0], *x[:-1]]])
def test_numbers_that_a_file_of_pytorch_does_not_have(tmp_path, change):
    """PyTorch takes them from uninitialised memory."""
    torch = pytest.importorskip("torch")
    path, state = tmp_path / "net.pt", {"a.weight": torch.eye(4), "b.weight": 2 * torch.eye(4)}
    torch.save(state, path, _use_new_zipfile_serialization=False)
    assert io.read_torch(path).edges == 8
    data, start = path.read_bytes(), 0
    for _ in range(4):  # before the list of what has values
        *_, (_, _, last) = pickletools.genops(data[start:])
        start += last + 1
    keys = pickle.loads(data[start:])  # noqa: S301 -- our own
    *_, (_, _, last) = pickletools.genops(data[start:])
    path.write_bytes(data[:start] + pickle.dumps(change(keys), 2) + data[start + last + 1 :])
    with pytest.raises(FormatError, match="2 storages, of which 1 have values"):
        io.read_torch(path)


# Networks without neurons


@pytest.mark.parametrize("engine", ["auto", "sparse", "full", "fused"])
@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("inputs", [1, 20, 3000])
def test_no_neurons(engine, make, inputs, tmp_path):
    net = gbdnn.Network([gbdnn.Layer(np.zeros((0, 0)), 0.5)] * 2)
    gbdnn.save(net, tmp_path / "net")
    X = make(np.zeros((inputs, 0)))
    for each in (net, gbdnn.load(tmp_path / "net", lazy=True)):
        for options in ({}, {"nthreads": 1}, {"compress": True}, {"callback": lambda _: None}):
            Y = gbdnn.infer(each, X, engine=engine, **options)
            assert Y.shape == (inputs, 0)
    assert [Y.shape for Y in gbdnn.infer_batches(net, [X])] == [(inputs, 0)]
    if engine == "fused":
        assert gbdnn.compile(net)(np.zeros((inputs, 0))).shape == (inputs, 0)
    wide = gbdnn.infer([np.zeros((4, 0)), np.zeros((0, 3))], np.ones((inputs, 4)), bias=0.5)
    np.testing.assert_array_equal(wide.to_dense(fill_value=0), np.full((inputs, 3), 0.5))


# Other packages' exceptions


@pytest.mark.parametrize("error", [IndexError, AssertionError, RecursionError, KeyError, OSError])
def test_other_packages_exceptions_name_the_file(error):
    with (
        pytest.raises(FormatError, match=r"net.pt: cannot be read: .*Error"),
        reading.foreign_errors("net.pt", "cannot be read"),
    ):
        raise error("x")


def test_what_is_not_about_the_file_passes():
    class PanicException(BaseException):
        pass

    for error, found in (
        (KeyboardInterrupt, KeyboardInterrupt), (SystemExit, SystemExit),
        (MemoryError, TooLargeError), (PanicException, FormatError),
        (MissingFileError, MissingFileError),
    ):  # fmt: skip
        with pytest.raises(found), reading.foreign_errors("net.pt", "cannot be read"):
            raise error


def test_a_bias_that_cannot_be_read_is_not_left_out(tmp_path, monkeypatch):
    io.write_matrix_market(gbdnn.Network([gbdnn.Layer(E, -1.0)]), tmp_path)
    stat = os.stat

    def failing(path, *args, **options):
        if "-bias" in str(path):
            raise OSError(errno.EIO, "Input/output error")
        return stat(path, *args, **options)

    monkeypatch.setattr(os, "stat", failing)
    with pytest.raises(ReadError, match=r"n4-l1-bias.mtx: cannot be read: Input/output error"):
        io.read_matrix_market(tmp_path)


def test_a_checkpoint_that_cannot_be_read_is_not_written_anew(tmp_path, monkeypatch):
    net = gbdnn.training.erdos_renyi([4, 8, 2], density=1, seed=0)
    options = {"X": E, "y": np.array([0, 1, 0, 1]), "epochs": 2, "checkpoint": tmp_path / "run"}
    gbdnn.train(net, **options)
    before, opened = (tmp_path / "run").read_bytes(), pathlib.Path.open

    def failing(path, *args, **options):
        if str(path) == str(tmp_path / "run"):
            raise OSError(errno.EIO, "Input/output error")
        return opened(path, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(pathlib.Path, "open", failing)
        with pytest.raises(ReadError, match="run: cannot be read: Input/output error"):
            gbdnn.train(net, **options)
    assert (tmp_path / "run").read_bytes() == before


# gzip


def test_info_of_a_gzip_file(tmp_path):
    """Told as a file that is wrong, with its name, and not as the shell's own output."""
    path, text = tmp_path / "X.tsv.gz", b"".join(b"%d\t2\t1\n" % n for n in range(1, 3000))
    packed = gzip.compress(text)
    damaged = bytearray(packed)
    damaged[12] ^= 0xFF
    for data, fault in (
        (bytes(damaged), "the gzip stream is damaged"),
        (packed[:6], "the gzip stream is damaged"),
    ):
        path.write_bytes(data)
        assert f"{path}: " in fails("info", path, match=fault)
    path.write_bytes(text)  # plain: told by its bytes, as every reader does
    assert "entries     2,999" in well("info", path)


# Stores


def umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask
