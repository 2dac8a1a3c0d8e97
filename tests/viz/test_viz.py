"""Plots show the report's numbers and leave nothing behind."""

import copy
from functools import partial

import numpy as np
import pytest
from calls import raises

import gbdnn
from gbdnn import errors

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure

from gbdnn import viz
from gbdnn.viz import figures


def record(layer, block=0, *, alive=4, distinct=4, entries=8, kernel="full", seconds=0.25):
    return gbdnn.LayerStats(
        layer=layer, block=block, inputs=5, alive=alive, distinct=distinct, entries=entries,
        engine="auto", kernel=kernel, seconds=seconds,
    )  # fmt: skip


RECORDS = [
    record(0, alive=60, distinct=60, entries=120, kernel="sparse", seconds=0.5),
    record(1, 0, alive=20, distinct=20, entries=80),
    record(1, 1, alive=10, distinct=5, entries=45, kernel="sparse", seconds=1.0),
    record(3, alive=0, distinct=0, entries=0),
]


EVERY = [(viz.plot_activity, RECORDS), (viz.plot_layer_times, RECORDS)]


def line(ax, label):
    return next(each for each in ax.lines if each.get_label() == label)


def steps(ax):
    """The heights of a plot's stacked areas, by label."""
    found = {}
    for patch in ax.patches:
        values, edges, baseline = patch.get_data()
        np.testing.assert_array_equal(edges, np.arange(len(values) + 1) - 0.5)
        found[patch.get_label()] = values - baseline
    return found


# Sums per layer


def test_per_layer_adds_up_blocks():
    table = gbdnn.per_layer(RECORDS)
    assert table["layer"].tolist() == [0, 1, 2, 3]
    assert table["blocks"].tolist() == [1, 2, 0, 1]
    assert table["inputs"].tolist() == [5, 10, 0, 5]
    assert table["alive"].tolist() == [60, 30, 0, 0]
    assert table["distinct"].tolist() == [60, 25, 0, 0]
    assert table["entries"].tolist() == [120, 125, 0, 0]
    assert table["seconds"].tolist() == [0.5, 1.25, 0, 0.25]


# The numbers


def test_activity():
    ax = viz.plot_activity(RECORDS, neurons=[10, 5, 5, 5])
    assert line(ax, "inputs alive").get_ydata().tolist() == [60, 30, 0, 0]
    assert line(ax, "distinct inputs alive").get_ydata().tolist() == [60, 25, 0, 0]
    found = line(ax.figure.axes[1], "density (right)").get_ydata()
    np.testing.assert_array_equal(found, [0.2, 1.0, np.nan, np.nan])


def test_layer_times_by_kernel():
    found = steps(viz.plot_layer_times(RECORDS))
    assert found.keys() == {"full kernel", "sparse kernel"}
    np.testing.assert_allclose(found["sparse kernel"], [500, 1000, 0, 0])
    np.testing.assert_allclose(found["full kernel"], [0, 250, 0, 250])


# Manners


@pytest.mark.parametrize(("plot", "report"), EVERY)
def test_each_plot_has_its_own_figure_and_leaves_the_report(plot, report):
    kept = copy.deepcopy(report)
    assert plot(report).figure is not plot(report).figure
    assert plot(report, layers=9, ax=(ax := Figure().subplots())) is ax
    assert ax.get_xlim()[1] > plot(report).get_xlim()[1]
    assert report == kept


@pytest.mark.parametrize(
    ("plot", "report", "match"),
    [
        (viz.plot_activity, [], "no records"), (viz.plot_layer_times, [], "no records"),
        (partial(viz.plot_activity, neurons=[3, 3]), RECORDS, "neurons has 2 values, .* 4 layers"),
        (partial(viz.plot_layer_times, layers=2), RECORDS, "record of layer 3, but layers=2"),
    ],
)  # fmt: skip
def test_nothing_to_plot(plot, report, match):
    raises(errors.ArgumentError, match, plot, report)


# Files


@pytest.mark.parametrize(
    ("name", "begins"), [("a.png", b"\x89PNG"), ("b.SVG", b"<?xml"), ("c.pdf", b"%PDF")]
)
def test_saved_by_suffix_equal_and_whole(name, begins, tmp_path):
    contents = []
    for _ in range(2):
        figures.save_figure(viz.plot_activity(RECORDS).figure, tmp_path / name)
        contents.append((tmp_path / name).read_bytes())
    assert contents[0].startswith(begins)
    assert contents[0] == contents[1]
    assert [path.name for path in tmp_path.iterdir()] == [name]
