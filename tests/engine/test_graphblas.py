"""The engine of GraphBLAS's own kernels, which needs no compiled kernels."""

import numpy as np
import scipy.sparse as sp
from shell import python

import gbdnn

WITHOUT = """
import sys
sys.modules["numba"] = sys.modules["llvmlite"] = None
import warnings
from itertools import product
warnings.simplefilter("error", RuntimeWarning)
import numpy as np, pytest
import gbdnn
from gbdnn import challenge, graph
from gbdnn.kernels.compiled import loading
loading.library = lambda _: None

W = np.array([[0.5, 0.0], [1.0, -1.0]])
X = np.array([[2.0, 0.5], [0.0, 3.0]])
expected = np.maximum(np.maximum(X @ W - 0.25, 0) @ W - 0.25, 0)
options = {"bias": -0.25, "engine": "graphblas"}
net = gbdnn.Network([gbdnn.Layer(W, -0.25)] * 2)

records = []
found = [
    gbdnn.infer([W, W], X, **options).to_dense(fill_value=0),
    gbdnn.infer(net, X, engine="graphblas", callback=records.append).to_dense(fill_value=0),
    next(gbdnn.infer_batches([W, W], [X], **options)).to_dense(fill_value=0),
    gbdnn.compile([W, W], **options)(X),
    np.array([gbdnn.compile([W, W], **options)(x) for x in X]),
]
for each in found:
    np.testing.assert_array_equal(each, expected)
assert {record.kernel for record in records} == {"lagraph"}
A, V = np.array([[1.0, 1.0], [0.0, 1.0]]), np.array([[1.0, -1.0], [0.0, 1.0]])
Y = graph.infer([graph.Convolution(W, self_weights=V)] * 2, X, A, engine="graphblas")
wanted = np.maximum(A @ X @ W + X @ V, 0)
wanted = np.maximum(A @ wanted @ W + wanted @ V, 0)
np.testing.assert_array_equal(Y.to_dense(fill_value=0), wanted)
np.testing.assert_array_equal(graph.propagate(A, X, hops=2, engine="graphblas"), A @ A @ X)
outcome = challenge.run(challenge.generate(1024, 6, inputs=100), engine="graphblas")
assert outcome.check == "PASSED" and {*outcome.kernels} == {"lagraph"}, outcome
others = {"memory": "1MiB", "deduplicate": True}
for engine, name in product(("auto", "graphblas"), others):
    with pytest.raises(gbdnn.errors.ArgumentError, match="^" + name):
        gbdnn.infer([W, W], X, bias=-0.25, engine=engine, **{name: others[name]})
with pytest.raises(gbdnn.errors.MissingPackageError, match="engine='lagraph'"):
    gbdnn.infer([W, W], X, bias=-0.25, engine="sparse")

np.testing.assert_array_equal(gbdnn.compile([W, W], bias=-0.25)(X), expected)  # the fastest at hand
try:
    gbdnn.compile([W, W], bias=-0.25, engine="fused")
except gbdnn.errors.MissingPackageError as error:
    print(error)
"""


def test_without_compiled_kernels():
    """One process runs all calls; neither numba nor llvmlite can be imported."""
    done = python(WITHOUT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("no compiled kernels for this processor")


def test_graphblas_takes_both_kernels():
    """Few activations are sparse rows, many are blocks; a forced kernel takes all layers."""
    random = np.random.default_rng(0)
    W = sp.random_array((1000, 1000), density=0.004, dtype="f4", rng=random)
    X = sp.eye_array(1000, dtype="f4", format="csr")
    kernels = {}
    for engine in ("graphblas", "sparse", "full"):
        records = []
        gbdnn.infer([W] * 4, X, clip=2, engine=engine, callback=records.append)
        kernels[engine] = [record.kernel for record in sorted(records, key=lambda x: x.layer)]
    assert (kernels["graphblas"][0], kernels["graphblas"][-1]) == ("sparse", "full")
    assert (set(kernels["sparse"]), set(kernels["full"])) == ({"sparse"}, {"full"})
