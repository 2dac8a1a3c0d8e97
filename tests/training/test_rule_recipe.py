"""The recipe in docs/architecture.md: a loss and an adjustment of another file."""

import numpy as np
import pytest
from calls import raises
from matrices import assert_close
from toy_rules import Huber, NonNegative

import gbdnn
from gbdnn import training

W = np.array([[0.5, 0.0], [-0.25, 1.0], [0.0, 0.75]])
X = np.array([[1.0, 2.0, 0.0], [0.0, 1.0, 4.0]])
Y = np.array([[0.5, 4.0], [-2.0, 0.0]])


def test_a_loss_and_an_adjustment_are_one_file(tmp_path):
    net = gbdnn.Network([gbdnn.Layer(W, activation="identity")])
    options = {
        "loss": Huber(0.5), "adjustments": [NonNegative()], "batch_size": 2,
        "optimizer": training.SGD(0.25, momentum=0), "schedule": training.Constant(),
    }  # fmt: skip
    run = gbdnn.train(net, X, Y, epochs=1, validation=(X, Y), **options)
    # Errors are X W - Y = [[-0.5, -2], [1.75, 4]], and their gradient is limited to 0.5.
    assert run.history[0].loss == np.mean([0.125, 0.875, 0.75, 1.875])
    assert run.history[0].accuracy is None
    moved = W - 0.25 * X.T @ (np.array([[-0.5, -0.5], [0.5, 0.5]]) / 4)
    expected = np.maximum(np.where(W == 0, 0, moved), 0)
    assert_close(run.network[0].W, expected, rtol=1e-15)
    assert (moved < 0).any()
    losses = Huber(0.5).losses(X @ expected, Y)
    assert run.history[0].validation_loss == pytest.approx(losses.mean())

    options["checkpoint"] = tmp_path / "run"
    gbdnn.train(net, X, Y, **options)
    raises(gbdnn.GbdnnError, "loss", gbdnn.train, net, X, Y, **options | {"loss": Huber(1.0)})
