"""infer as a guest: settings, callbacks, threads, and what it leaves behind."""

import threading

import numpy as np
import pytest
from conftest import network
from oracles import case
from shell import python

import gbdnn

CASE = case(7, bias="mixed vector", sizes=(40, 60, 50, 30), inputs=60, density=0.08)
NET = network(CASE.layers)


def test_records_come_in_the_callers_thread(infer):
    stats, threads = [], set()

    def callback(record):
        stats.append(record)
        threads.add(threading.current_thread())

    infer(NET, CASE.X, callback=callback)
    assert threads == {threading.current_thread()}
    assert {s.layer for s in stats} == {0, 1, 2}
    assert len({(s.layer, s.block) for s in stats}) == len(stats)
    assert all(s.seconds > 0 and s.alive <= s.inputs for s in stats)
    assert {s.kernel for s in stats} <= {"sparse", "full", "fused", "lagraph"}
    with pytest.raises(AttributeError):
        stats[0].alive = 0


@pytest.mark.parametrize("dtype", ["FP32", "FP64"])
def test_numpy_raises_for_floating_point_errors(dtype):
    """Numbers too small for the dtype become 0, whatever the caller has set in NumPy."""
    W, X, bias = np.array([[1e-42, 1], [1, 1e-300]]), np.array([[1e-310, 1], [1, 1]]), [1e-60, 1]
    y = np.array([[1e-300, 1], [1e-30, 2]])
    options = {"bias": [bias], "dtype": dtype}
    with np.errstate(all="raise"):
        for engine in ("auto", "graphblas", "fused", "sparse", "full"):
            Y = gbdnn.infer([W], X, engine=engine, **options)
        np.testing.assert_array_equal(gbdnn.compile([W], **options)(X[0]), Y.to_dense(0.0)[0])
        net = gbdnn.Network([W], bias=[bias]).astype(dtype)
        for normalized in (1e-200 * np.eye(2), np.eye(2)):
            gbdnn.graph.infer(net, X, normalized)
            gbdnn.graph.propagate(normalized, X, dtype=dtype)
        for loss in ("squared_error", "cross_entropy", "binary_cross_entropy"):
            targets = {"squared_error": y, "cross_entropy": [0, 1]}.get(loss, np.eye(2, dtype=int))
            gbdnn.train(net, X, targets, loss=loss, epochs=2, sample_weight=[1e-300, 1])


def test_import_leaves_the_blocking_mode_to_the_caller():
    done = python(
        "import gbdnn, gbdnn.io, gbdnn.gallery, gbdnn.challenge, graphblas as gb\n"
        "gb.init(blocking=True)\n"
        "import numpy as np\n"
        "print(gbdnn.infer([np.eye(2)], np.eye(2)).nvals)"
    )
    assert (done.stdout, done.stderr, done.returncode) == ("2\n", "", 0)


def test_import_brings_in_little():
    done = python(
        "import sys, gbdnn, gbdnn.io\n"
        "print([m for m in ('scipy', 'polars', 'sklearn', 'typer', 'rich', 'torch', 'matplotlib',"
        " 'onnx', 'safetensors', 'xxhash') if m in sys.modules])"
    )
    assert done.stdout == "[]\n", done.stderr
