"""Plots of training show what the records have."""

import numpy as np
import pytest
from calls import raises

import gbdnn
from gbdnn import errors
from gbdnn.training import EpochRecord

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure

from gbdnn import viz

RECORDS = [
    EpochRecord(k, 1 / (k + 1), 0.5 + k / 10, 1.1 / (k + 1), 0.4 + k / 10, 0.05, 100 - 10 * k, 0.1)
    for k in range(4)
]
NO_LABELS = [record._replace(accuracy=None, validation_accuracy=None) for record in RECORDS]
ALONE = [r._replace(validation_loss=None, validation_accuracy=None) for r in RECORDS]


def curves(ax):
    return {line.get_label(): line.get_ydata() for line in ax.lines}


@pytest.mark.parametrize("of", ["loss", "accuracy"])
def test_training_and_validation(of):
    ax = Figure().subplots()
    assert viz.plot_history(RECORDS, ax, of=of) is ax
    found = curves(ax)
    assert list(found) == ["training", "validation"]
    np.testing.assert_array_equal(found["training"], [getattr(r, of) for r in RECORDS])
    wanted = [getattr(r, f"validation_{of}") for r in RECORDS]
    np.testing.assert_array_equal(found["validation"], wanted)
    assert list(curves(viz.plot_history(ALONE, of=of))) == ["training"]


def test_a_run():
    X = np.random.default_rng(0).random((300, 8))
    y = (X[:, 0] > X[:, 1]).astype(int)
    net = gbdnn.training.erdos_renyi([8, 16, 2], density=0.5)
    run = gbdnn.train(net, X, y, epochs=6, validation=0.3, patience=5, nthreads=1)
    axes = [viz.plot_history(run, of=of) for of in ("loss", "accuracy", "edges")]
    assert [ax.get_ylabel() for ax in axes] == ["loss", "accuracy", "edges"]
    edges = curves(axes[2])["edges"]
    np.testing.assert_array_equal(edges, [record.edges for record in run.history])
    for ax in axes:
        kept = next(line for line in ax.lines if line.get_label() == "best epoch")
        assert list(kept.get_xdata()) == [run.best.epoch] * 2


def test_without_labels():
    with pytest.raises(errors.ArgumentError, match="no accuracy; it needs labels"):
        viz.plot_history(NO_LABELS, of="accuracy")


def test_bad_input():
    raises(errors.ArgumentError, "no epochs", viz.plot_history, [])
    with pytest.raises(errors.ArgumentError, match="'loss', 'accuracy' or 'edges', not 'losses'"):
        viz.plot_history(RECORDS, of="losses")
