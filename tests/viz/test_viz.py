"""Plots show the report's numbers and leave nothing behind."""

import copy

import numpy as np
import pytest

import gbdnn
from gbdnn import challenge, errors
from gbdnn.challenge.published import PUBLISHED

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure

from gbdnn import viz
from gbdnn.viz import figures


def record(layer, block=0, *, alive=4, distinct=4, entries=8, kernel="full", seconds=0.25):
    return gbdnn.inference.LayerStats(
        layer=layer,
        block=block,
        inputs=5,
        alive=alive,
        distinct=distinct,
        entries=entries,
        engine="auto",
        kernel=kernel,
        seconds=seconds,
    )


RECORDS = [
    record(0, alive=60, distinct=60, entries=120, kernel="sparse", seconds=0.5),
    record(1, 0, alive=20, distinct=20, entries=80),
    record(1, 1, alive=10, distinct=5, entries=45, kernel="sparse", seconds=1.0),
    record(3, alive=0, distinct=0, entries=0),
]


def outcome(neurons=1024, *, deduplicate=False, inputs=60_000, seconds=2.0, **others):
    """What gbdnn challenge --json writes, but for what is not plotted."""
    return {
        "problem": {
            "neurons": neurons,
            "layers": 120,
            "inputs": inputs,
            "edges": 120 * 32 * neurons,
        },
        "machine": {"processor": "Mine"},
        "versions": {"gbdnn": "9.9"},
        "nthreads": 2,
        "workers": None,
        "engine": "auto",
        "deduplicate": deduplicate,
        "seconds_median": seconds,
        **others,
    }


EVERY = [
    (viz.plot_activity, RECORDS),
    (viz.plot_layer_times, RECORDS),
    (viz.plot_edge_rates, [outcome()]),
]


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
    table = gbdnn.inference.per_layer(RECORDS)
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
    right = ax.figure.axes[1]
    np.testing.assert_array_equal(
        line(right, "density (right)").get_ydata(), [0.2, 1.0, np.nan, np.nan]
    )
    assert {text.get_text() for text in ax.get_legend().get_texts()} == {
        "inputs alive",
        "distinct inputs alive",
        "density (right)",
    }


def test_activity_where_there_is_no_density():
    ax = viz.plot_activity(RECORDS, layers=9)
    assert ax.figure.axes == [ax]
    assert len(line(ax, "inputs alive").get_ydata()) == 9
    bottom, top = ax.get_ylim()
    assert bottom == 0 < 60 < top
    nothing = viz.plot_activity([record(0, alive=0, distinct=0, entries=0)], neurons=4)
    assert np.isnan(nothing.figure.axes[1].lines[0].get_ydata()).all()


def test_layer_times_by_kernel():
    found = steps(viz.plot_layer_times(RECORDS))
    assert found.keys() == {"full kernel", "sparse kernel"}
    np.testing.assert_allclose(found["sparse kernel"], [500, 1000, 0, 0])
    np.testing.assert_allclose(found["full kernel"], [0, 250, 0, 250])
    assert len(steps(viz.plot_layer_times(RECORDS, layers=6))["full kernel"]) == 6


def bars(ax):
    return {each.get_label(): [bar.get_height() for bar in each.patches] for each in ax.containers}


def test_edge_rates():
    mine = [outcome(), outcome(4096, seconds=8.0)]
    found = bars(viz.plot_edge_rates(mine, published=()))
    assert list(found) == ["gbdnn 9.9, engine auto (Mine, 2 threads)"]
    rates = [60_000 * 120 * 32 * 1024 / 2, 60_000 * 120 * 32 * 4096 / 8]
    np.testing.assert_allclose(found["gbdnn 9.9, engine auto (Mine, 2 threads)"], rates)
    beside = bars(viz.plot_edge_rates(mine))
    same = [each for each in PUBLISHED if each.layers == 120 and each.neurons in (1024, 4096)]
    assert sum(map(len, beside.values())) == 2 + len(same)
    assert sum(map(len, bars(viz.plot_edge_rates([])).values())) == len(PUBLISHED)


def test_outcomes_that_differ_have_bars_of_their_own():
    given = [
        outcome(), outcome(engine="full"), outcome(engine="fused"), outcome(nthreads=1),
        outcome(workers=3), outcome(deduplicate=True), outcome(inputs=50), outcome(), outcome(),
    ]  # fmt: skip
    ax = viz.plot_edge_rates(given, published=())
    left = [bar.get_x() for each in ax.containers for bar in each.patches]
    assert np.diff(left).min() > 0.9 * ax.containers[0].patches[0].get_width()
    labels = [each.get_label() for each in ax.containers]
    assert len(set(labels)) == len(given)


def test_effective_rates_are_marked():
    ax = viz.plot_edge_rates([outcome(), outcome(deduplicate=True), outcome(inputs=50)])
    for bar in ax.containers:
        effective = "EFFECTIVE" in bar.get_label()
        assert all((patch.get_hatch() is not None) == effective for patch in bar.patches)
    labels = [each.get_label() for each in ax.containers if "gbdnn" in each.get_label()]
    assert ["EFFECTIVE" in label for label in labels] == [False, True, False]
    assert "50 inputs" in labels[2]
    assert labels == [text.get_text() for text in ax.get_legend().get_texts()[:3]]


def test_published_rates_have_machine_and_source():
    for each in PUBLISHED:
        assert each.machine
        assert each.source
        assert each.where
        assert each.neurons in (1024, 4096, 16384, 65536)
        assert each.layers in (120, 480, 1920)
        assert each.edges == each.layers * 32 * each.neurons
        assert each.effective == (each.system == "SNICIT")
    problems = [(each.system, each.neurons, each.layers) for each in PUBLISHED]
    assert len(set(problems)) == len(problems)
    checked = {each.system: each.checked for each in PUBLISHED}
    labels = bars(viz.plot_edge_rates([])).keys()
    assert {label.split(" (")[0] for label in labels} == {
        system + ("" if is_checked else "*") for system, is_checked in checked.items()
    }


def test_an_outcome_is_plotted_as_it_is_told():
    problem = challenge.generated(1024, 6, inputs=100)
    done = challenge.run(problem, deduplicate=True, record=True)
    assert done.records
    assert "records" not in done.as_json()
    heights = list(bars(viz.plot_edge_rates([done.as_json()], published=())).values())
    np.testing.assert_allclose(heights, [[done.edge_rate]])
    figure = viz.run_figure(done.records, neurons=1024, layers=6, title=problem.name)
    upper, lower, _ = figure.axes
    assert figure.get_suptitle() == problem.name
    table = gbdnn.inference.per_layer(done.records, 6)
    np.testing.assert_array_equal(line(upper, "inputs alive").get_ydata(), table["alive"])
    np.testing.assert_allclose(sum(steps(lower).values()), 1e3 * table["seconds"])
    assert challenge.run(problem).records is None


# Manners


@pytest.mark.parametrize(("plot", "report"), EVERY)
def test_the_axes_given_are_used(plot, report):
    figure = Figure()
    left, right = figure.subplots(1, 2)
    kept = copy.deepcopy(report)
    assert plot(report, right) is right
    assert report == kept
    assert not left.lines
    assert not left.patches
    new = plot(report)
    assert new.figure is not figure
    assert plot(report).figure is not new.figure


@pytest.mark.parametrize(
    ("plot", "report", "match"),
    [
        (viz.plot_activity, [], "no records"),
        (viz.plot_layer_times, [], "no records"),
        (viz.run_figure, [], "no records"),
        (viz.plot_edge_rates, [{}], "challenge --json: KeyError.'problem'"),
    ],
)
def test_nothing_to_plot(plot, report, match):
    with pytest.raises(errors.ArgumentError, match=match):
        plot(report)


def test_arguments_that_do_not_fit():
    with pytest.raises(errors.ArgumentError, match=r"neurons has 2 values, but .* 4 layers"):
        viz.plot_activity(RECORDS, neurons=[3, 3])
    with pytest.raises(errors.ArgumentError, match="a record of layer 3, but layers=2"):
        viz.plot_layer_times(RECORDS, layers=2)
    with pytest.raises(errors.ArgumentError, match="no edge rates"):
        viz.plot_edge_rates([], published=())


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
