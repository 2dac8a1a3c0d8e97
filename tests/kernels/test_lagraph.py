"""`engine="lagraph"`: GraphBLAS's operations on all inputs, whose bits the sparse kernel has."""

import graphblas as gb
import numpy as np
import pytest
from calls import raises
from conftest import network
from oracles import case

import gbdnn
from gbdnn import errors

RNG = np.random.default_rng(0)
X = RNG.random((60, 1024), "f4")
W = [RNG.random((1024, 1024), "f4") * (RNG.random((1024, 1024)) < 0.02) for _ in range(3)]


@pytest.mark.parametrize("bias", [-0.3, RNG.uniform(-0.3, -0.1, 1024)])
@pytest.mark.parametrize("nthreads", [1, 3, 8])
def test_the_sparse_kernel_has_the_same_bits(bias, nthreads):
    """On weights and features that round, with a bias for all neurons or for each."""
    net = gbdnn.Network([gbdnn.Layer(each, bias, clip=32) for each in W])
    wanted = gbdnn.infer(net, X, engine="lagraph", nthreads=nthreads)
    assert wanted.nvals
    assert wanted.isequal(gbdnn.infer(net, X, engine="sparse", nthreads=nthreads))


@pytest.mark.parametrize(
    ("given", "bias", "rule", "calls"),
    [
        ({"clip": 1.0}, -0.25, "entries", "mxm mxm select_FP32 apply_BinaryOp2nd_FP32"),
        ({}, 0, "entries", "mxm select_FP32"),
        ({"activation": "identity"}, 0.25, "entries", "mxm mxm select_FP32"),
    ],
)
def test_a_layer_is_made_of_graphblas_operations(given, bias, rule, calls):
    layer = gbdnn.Layer(np.eye(4), bias, bias_rule=rule, dtype="FP32", **given)
    gbdnn.infer([layer], np.eye(4), engine="lagraph")  # prepares the layer
    with gb.Recorder() as recorder:
        gbdnn.infer([layer], gb.Matrix.from_dense(np.eye(4, dtype="f4")), engine="lagraph")
    assert not [line for line in recorder if "FP64" in line]
    names = [line.partition("(")[0].rpartition("_Matrix_")[2] for line in recorder]
    names = [name.removeprefix("GrB_") for name in names]
    wanted = calls.split()
    found = [name for name in names if name in {*wanted, "mxm"}]
    assert found[-len(wanted) :] == wanted


def test_all_inputs_are_computed_at_once():
    """One record for each layer, in order."""
    expected, records = case(3, density=0.2), []
    Y = gbdnn.infer(network(expected.layers), expected.X, engine="lagraph", callback=records.append)
    found = [(x.layer, x.block, x.inputs, x.kernel) for x in records]
    assert found == [(k, 0, len(expected.X), "lagraph") for k in range(len(expected.layers))]
    assert records[-1].entries == Y.nvals
    plan = gbdnn.plan(network(expected.layers), expected.X, engine="lagraph", nthreads=3)
    assert "none; 3 threads within each operation on all rows" in repr(plan)


def test_options_without_effect_are_refused():
    E, A, known = np.eye(3), gb.Matrix.from_dense(np.eye(3)), {"engine": "lagraph"}
    for name, value in {"memory": "1GiB", "deduplicate": True}.items():
        message, option = f"{name}= cannot be combined with engine=", {name: value}
        raises(errors.ArgumentError, message, gbdnn.infer, [E], E, **known, **option)
    raises(errors.ArgumentError, "engine must be", gbdnn.graph.propagate, A, E, **known)
    raises(errors.ArgumentError, "engine must be", gbdnn.compile, [E], **known)
