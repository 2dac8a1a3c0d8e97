"""Passes of training steps for another owner of the weights: rows in, rows and gradients out."""

import numpy as np
import pytest

from gbdnn.kernels.compiled.record import CONSTANTS, Record
from gbdnn.kernels.steps import Steps, UpdateRule
from gbdnn.kernels.together import together
from gbdnn.kernels.trainable import TrainableLayer
from gbdnn.model.layer_info import LayerInfo

SIZES = (70, 50, 33)


def some_layers(dtype, density):
    random, found = np.random.default_rng(0), []
    for nrows, ncols in ((70, 50), (50, 33)):
        edges = np.flatnonzero(random.random(nrows * ncols) < density)
        activation = "identity" if found else "relu"
        info = LayerInfo((nrows, ncols), len(edges), 1.0, np.dtype(dtype), activation=activation)
        found.append(
            TrainableLayer(info, edges, random.normal(size=len(edges)) / 16, np.ones(ncols) / 4)
        )
    return found


def passes(steps, names, X, out):
    """Run some passes of all inputs in X, with a gradient of the first layer's input."""
    none = np.array([-np.inf, np.inf], steps.dtype)
    width = steps._blocks[0][0].stride
    below = [np.empty((SIZES[0], width), steps.dtype) for _ in steps._blocks]
    steps._d[:, 0] = [block.ctypes.data for block in below]
    first, second = (layer.backward_record(none) for layer in steps.layers)
    first.set(masked=0)
    second.set(limits=steps.layers[0].limits)
    state = np.zeros(17, np.int64)
    job = Record(
        "steps", layers=2, forward=steps._records[0], backward=Record.joined([first, second]),
        edges=steps._edge_records, share_lines=4, stride=width, Y_blocks=steps._y,
        D_blocks=steps._d, batch=len(X), count=len(X), X=X, row_stride=X.shape[1],
        column_stride=1, indices=np.arange(len(X)), constants=np.zeros(5, steps.dtype),
        barrier=state, stopped=state[16:], threads=steps.nthreads, out=out,
        out_stride=out.shape[1], passes=sum(CONSTANTS[name] for name in names),
    )  # fmt: skip
    together(steps.nthreads, steps._compiled, job, all_needed=True)


@pytest.mark.parametrize("threads", [1, 3, 8])
@pytest.mark.parametrize("inputs", [1, 17, 300])
@pytest.mark.parametrize("density", [0.3, 1])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_of_outputs_and_gradients(dtype, density, inputs, threads):
    layers = some_layers(dtype, density)
    rule = UpdateRule(CONSTANTS["SGD"], (0,) * 5)
    steps = Steps(layers, batch=inputs, loss=0, rule=rule, nthreads=threads)
    random = np.random.default_rng(1)
    X, dZ = (random.normal(size=(inputs, size)).astype(dtype) for size in (70, 33))
    Z, dX = (np.full((inputs, size + 3), 9, dtype) for size in (33, 70))
    for layer in layers:
        layer.weights *= 2  # modified from outside
    passes(steps, ["FORWARD", "OUTPUT"], X, Z)
    passes(steps, ["REFRESH", "OUTPUT_GRADIENT", "BACKWARD", "INPUT_GRADIENT"], dZ, dX)

    W = [np.zeros((layer.nrows, layer.ncols)) for layer in layers]
    for each, layer in zip(W, layers, strict=True):
        each[layer.rows, layer.columns] = layer.weights
    first, second = (layer.by_neuron(layer.bias) for layer in layers)
    Y = np.maximum(X @ W[0] + first, 0)
    D = dZ @ W[1].T * (Y > 0)
    gradients = [X.astype(float).T @ D, Y.T @ dZ]
    near = {"rtol": 0, "atol": 2e-4 if dtype == "float32" else 1e-11}
    np.testing.assert_allclose(Z[:, :33], Y @ W[1] + second, **near)
    np.testing.assert_allclose(dX[:, :70], D @ W[0].T, **near)
    assert (Z[:, 33:] == 9).all()
    assert (dX[:, 70:] == 9).all()
    for layer, each, d in zip(layers, gradients, (D, dZ), strict=True):
        scale = np.abs(each).max()
        found = layer.gradient / scale
        np.testing.assert_allclose(found, each[layer.rows, layer.columns] / scale, **near)
        np.testing.assert_allclose(
            layer.by_neuron(layer.bias_gradient) / scale, d.sum(axis=0) / scale, **near
        )
