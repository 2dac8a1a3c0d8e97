"""Arrays and files that are damaged or no files at all: an error that says so, never a crash.

What ends a process fails here, too: pytest ends with it.
"""

import errno
import os
import pathlib

import numpy as np
import pytest
import scipy.sparse as sp
from calls import raises

import gbdnn
from gbdnn.errors import ReadError

E = np.eye(4)


# Networks without neurons


@pytest.mark.parametrize("engine", ["auto", "sparse", "full", "fused"])
@pytest.mark.parametrize(("make", "inputs"), [(np.asarray, 1), (sp.csr_array, 3000)])
def test_no_neurons(engine, make, inputs, tmp_path):
    net = gbdnn.Network([gbdnn.Layer(np.zeros((0, 0)), 0.5)] * 2)
    gbdnn.save(net, tmp_path / "net")
    X = make(np.zeros((inputs, 0)))
    for each in (net, gbdnn.load(tmp_path / "net", lazy=True)):
        for options in ({}, {"nthreads": 1}, {"deduplicate": True}, {"callback": lambda _: None}):
            Y = gbdnn.infer(each, X, engine=engine, **options)
            assert Y.shape == (inputs, 0)
    assert [Y.shape for Y in gbdnn.infer_batches(net, [X])] == [(inputs, 0)]
    if engine == "fused":
        assert gbdnn.compile(net)(np.zeros((inputs, 0))).shape == (inputs, 0)
    wide = gbdnn.infer([np.zeros((4, 0)), np.zeros((0, 3))], np.ones((inputs, 4)), bias=0.5)
    np.testing.assert_array_equal(wide.to_dense(fill_value=0), np.full((inputs, 3), 0.5))


def test_a_bias_that_cannot_be_read_is_not_left_out(tmp_path, monkeypatch):
    gbdnn.save(gbdnn.Network([gbdnn.Layer(E, -1.0)]), tmp_path, "matrix-market")
    stat = os.stat

    def failing(path, *args, **options):
        if "-bias" in str(path):
            raise OSError(errno.EIO, "Input/output error")
        return stat(path, *args, **options)

    monkeypatch.setattr(os, "stat", failing)
    with pytest.raises(ReadError, match=r"n4-l1-bias.mtx: cannot be read: Input/output error"):
        gbdnn.load(tmp_path, "matrix-market")


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
        raises(ReadError, "run: cannot be read: Input/output error", gbdnn.train, net, **options)
    assert (tmp_path / "run").read_bytes() == before
