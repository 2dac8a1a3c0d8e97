"""What training takes at most: bytes an edge, and rows of stored features out of core."""

import json
import os
import pathlib
import subprocess
import sys

import memory_grid
import numpy as np
import pytest
import scipy.sparse as sp

import gbdnn

pytestmark = pytest.mark.skipif(
    not memory_grid.PEAK.exists(), reason="peaks of memory are measured where there is /proc"
)

BEGIN = """
import gc, sys
import memory_grid
import numpy as np
import gbdnn
from gbdnn import training

def peak(call):
    gc.collect()
    memory_grid.PEAK.write_text("5")
    before, files = memory_grid.status("VmRSS"), memory_grid.status("RssFile")
    kept = call()
    return memory_grid.status("VmHWM") - before - max(0, memory_grid.status("RssFile") - files)

def small(X, y, **options):
    inputs = X.shape[1] if isinstance(X, np.ndarray) else X.ncols
    net = training.erdos_renyi([inputs, 64, 10], density=0.5)
    return gbdnn.train(net, X, y, epochs=1, batch_size=32, nthreads=1, **options).network
"""
EDGES = """
X, y = np.random.default_rng(0).random((64, 1024), np.float32), np.arange(64) % 10
options = {"optimizer": training.SGD(0.01) if sys.argv[1] == "sgd" else training.Adam(0.001),
           "adjustments": training.SET(every=1) if sys.argv[1] == "rewired" else ()}
small(X, y, **options)
net = training.erdos_renyi([*[1024] * 9, 10], density=0.25)
go = lambda: gbdnn.train(net, X, y, epochs=3, batch_size=32, nthreads=1, **options)
print(peak(go) / net.edges)
"""
STORED = """
gbdnn.io.store.features.PART = 1 << 17
X = gbdnn.io.open_features(sys.argv[1])
memory, y = int(sys.argv[2]), np.arange(X.nrows) % 10
small(X[:200], y[:200], memory=1)
print(peak(lambda: small(X, y, memory=memory)))
"""


def told(code, *arguments):
    """Return the number that code prints, in a process where what is freed is given back."""
    support = str(pathlib.Path(memory_grid.__file__).parent)
    paths = os.pathsep.join([support, *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + code, *map(str, arguments)],
        env={**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "PYTHONPATH": paths},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("kind", "most"),
    [
        ("sgd", 40),
        pytest.param("adam", 48, marks=pytest.mark.slow),
        pytest.param("rewired", 62, marks=pytest.mark.slow),
    ],
)
def test_bytes_per_edge(kind, most):
    """Weights, gradient, moments and numbers of edges, the epoch's weights and moments: in FP32.

    Beyond that one layer in nine is held twice, or its numbers as 64 bits, when it is made; other
    edges, too, where they are drawn.
    """
    assert told(EDGES, kind) < most * 1.15


@pytest.mark.slow
def test_stored_features_take_no_more_than_they_were_told(tmp_path, monkeypatch):
    """The store is five times as large as `memory`."""
    pytest.importorskip("safetensors")
    monkeypatch.setattr("gbdnn.io.store.features.PART", 1 << 17)
    X = sp.random_array((30_000, 784), density=0.2, format="csr", rng=0, dtype=np.float32)
    gbdnn.save(X, tmp_path / "X")
    size, memory = 12 * X.nnz, 12 << 20
    assert size > 4 * memory
    # Beside the rows: a part of the store of 2^17 entries as it is read, some megabytes of numbers,
    # losses and activations of 30,000 inputs.
    found = told(STORED, tmp_path / "X", memory)
    assert memory / 3 < found < memory + (8 << 20)
    # The same, with room for all: what is measured is measured.
    assert told(STORED, tmp_path / "X", 4 << 30) > size
