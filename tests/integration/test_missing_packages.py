"""A call that needs a package that is not installed names the command that installs it."""

import sys

import graphblas as gb
import numpy as np
import pytest
import scipy.sparse
from calls import raises
from shell import python

import gbdnn
from gbdnn import errors, gallery, io
from gbdnn.training import EpochRecord

NET = gbdnn.Network([np.eye(2)])
EYE = gb.Matrix.from_dense(np.eye(2), missing_value=0)
RECORD = EpochRecord(0, 1, 1, 1, 1, 1, 1, 1)
CALLS = [  # the module that cannot be imported, the extra, and a call with a path
    ("scipy.sparse", "files", lambda _: io.to_scipy(NET)),
    ("torch", "torch", lambda _: io.to_torch(NET)),
    ("onnx", "onnx", lambda path: gbdnn.save(NET, path / "net.onnx", "onnx")),
    ("polars", "files", lambda path: io.read_features(path / "x.tsv")),
    ("polars", "files", lambda path: io.write_features(EYE, path / "y.tsv")),
    ("safetensors", "store", lambda path: gbdnn.save(NET, path / "net")),
    ("safetensors", "store", lambda path: gbdnn.load(path / "store")),
    ("xxhash", "store", lambda path: gbdnn.save(NET, path / "net")),
    ("matplotlib.figure", "plots", lambda _: gbdnn.viz.plot_history([RECORD])),
    ("mpi4py.MPI", "mpi", lambda _: gbdnn.distributed.pipeline([np.eye(2)], np.eye(2))),
    ("sklearn.datasets", "sklearn", lambda _: gallery.digits()),
]

WITHOUT_EXTRAS = """
import sys
for name in ("scipy", "polars", "safetensors", "xxhash", "sklearn", "matplotlib", "typer", "rich"):
    sys.modules[name] = None
import numpy as np
import gbdnn
X = np.eye(4)
net = gbdnn.Network([X, X])
assert gbdnn.infer(net, X).nvals == gbdnn.compile(net)(X).sum() == 4
for loss in ("squared_error", "cross_entropy", "binary_cross_entropy"):
    y = np.arange(4) if loss == "cross_entropy" else X
    gbdnn.train(net, X, y, loss=loss, epochs=1)
assert gbdnn.graph.spmm(net[0].W, X).sum() == 4
for name in dir(gbdnn):
    if type(getattr(gbdnn, name)) is type(gbdnn) and name != "torch":
        exec(f"from gbdnn.{name} import *")
assert GroupLasso is gbdnn.training.GroupLasso
"""


def test_inference_and_training_need_no_extra():
    done = python(WITHOUT_EXTRAS)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("package", "extra", "call"), CALLS)
def test_the_command_that_installs_it(package, extra, call, tmp_path, monkeypatch):
    gbdnn.save(NET, tmp_path / "store")
    (tmp_path / "x.tsv").write_text("1\t1\t1\n")
    monkeypatch.setitem(sys.modules, package, None)
    if package == "mpi4py.MPI":
        monkeypatch.setitem(sys.modules, "mpi4py", None)
    if package == "scipy.sparse":  # else the attribute of the package around it would do
        monkeypatch.delattr(scipy, "sparse", raising=False)
    raises(errors.MissingPackageError, rf'pip install "gbdnn\[{extra}\]"', call, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store", "x.tsv"]
