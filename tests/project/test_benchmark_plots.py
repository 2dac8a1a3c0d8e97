"""Plots of what the benchmarks write."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import gbdnn

pytest.importorskip("matplotlib")

from test_viz import check_units_and_the_axes_given, line, steps

_SPEC = importlib.util.spec_from_file_location(
    "plots", Path(__file__).parents[2] / "benchmarks" / "plots.py"
)
plots = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(plots)


def scaling(processor="One", counts=(1, 2, 4), first=3.0, inputs=100):
    """What thread_scaling.py writes, but for what is not plotted."""
    times = [first / n**0.5 for n in counts]
    return {
        "machine": {"processor": processor, "cores": max(counts)},
        "problem": {"neurons": 1024, "layers": 120, "inputs": inputs},
        "summary": [
            {
                "nthreads": n,
                "seconds_median": time,
                "speed_up": times[0] / time,
                "efficiency": times[0] / time * counts[0] / n,
            }
            for n, time in zip(counts, times, strict=True)
        ],
    }


PROFILE = {
    "per_layer": {
        "0": {"product": 0.5, "bias": 0.25},
        "1": {"product": 0.25, "gather": 1.0},
        "10": {"product": 0.125},
    }
}

EVERY = [(plots.plot_profile, PROFILE), (plots.plot_thread_scaling, scaling())]


def test_times_by_part():
    found = steps(plots.plot_profile(PROFILE))
    assert list(found) == ["gather", "product", "bias"]
    np.testing.assert_allclose(found["product"], [500, 250, *[0] * 8, 125])
    np.testing.assert_allclose(found["gather"], [0, 1000, *[0] * 9], atol=1e-9)


def test_small_parts_are_told_as_one():
    row = {f"part {n}": float(2**n) for n in range(10)}
    found = steps(plots.plot_profile({"per_layer": {"0": row}}))
    assert list(found) == [f"part {n}" for n in range(9, 3, -1)] + ["other"]
    np.testing.assert_allclose(found["other"], [1e3 * (1 + 2 + 4 + 8)])


def test_parts_that_are_chosen():
    found = steps(plots.plot_profile(PROFILE, parts=["bias", "none such"]))
    assert list(found) == ["bias", "none such", "other"]
    np.testing.assert_allclose(found["other"], [500, 1250, *[0] * 8, 125], atol=1e-9)
    assert not found["none such"].any()


@pytest.mark.parametrize("quantity", ["seconds", "speed-up", "efficiency"])
def test_thread_scaling(quantity):
    field = {"seconds": "seconds_median", "speed-up": "speed_up"}.get(quantity, quantity)
    report = scaling()
    report["summary"].reverse()
    ax = plots.plot_thread_scaling(report, quantity=quantity)
    curve, ideal = line(ax, "One, 4 cores"), line(ax, "ideal")
    assert curve.get_xdata().tolist() == ideal.get_xdata().tolist() == [1, 2, 4]
    assert curve.get_ydata().tolist() == [row[field] for row in report["summary"]][::-1]
    best = {"seconds": [3, 1.5, 0.75], "speed-up": [1, 2, 4], "efficiency": [1, 1, 1]}
    np.testing.assert_allclose(ideal.get_ydata(), best[quantity])


def test_thread_scaling_of_several_machines():
    reports = [scaling(), scaling("Two", (2, 4, 32), 1.0), scaling("Three", (1, 2, 4), 9.0)]
    ax = plots.plot_thread_scaling(reports, quantity="seconds")
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert sorted(labels) == ["One, 4 cores", "Three, 4 cores", "Two, 32 cores", "ideal"]
    assert len(ax.lines) == 6  # each has its own ideal
    styles = {
        (each.get_linestyle(), each.get_marker())
        for each in ax.lines
        if "cores" in each.get_label()
    }
    assert len(styles) == 3
    shared = plots.plot_thread_scaling([reports[0], reports[2]], quantity="speed-up")
    assert len(shared.lines) == 3
    other = plots.plot_thread_scaling([scaling(), scaling(inputs=7)])
    assert any("7 inputs" in each.get_label() for each in other.lines)


def test_the_figure_of_thread_scaling():
    figure = plots.thread_scaling_figure([scaling(), scaling("Two")])
    assert len(figure.axes) == 3
    assert len(figure.legends[0].get_texts()) == 3


@pytest.mark.parametrize(("plot", "report"), EVERY)
def test_units_and_the_axes_given(plot, report):
    check_units_and_the_axes_given(plot, report)


@pytest.mark.parametrize(
    ("plot", "report", "match"),
    [
        (plots.plot_profile, {}, "not what profile_parts.py writes"),
        (plots.plot_profile, {"per_layer": {}}, "not what profile_parts.py writes"),
        (plots.plot_thread_scaling, [], "no report"),
        (plots.plot_thread_scaling, {}, "not a thread_scaling.py report"),
        (plots.plot_thread_scaling, {"summary": [{"nthreads": 1}]}, "not a thread_scaling.py"),
        (plots.thread_scaling_figure, [], "no report"),
    ],
)
def test_nothing_to_plot(plot, report, match):
    with pytest.raises(gbdnn.ArgumentError, match=match):
        plot(report)


def test_arguments_that_do_not_fit():
    with pytest.raises(gbdnn.ArgumentError, match="quantity is one of"):
        plots.plot_thread_scaling(scaling(), quantity="speed")
    with pytest.raises(gbdnn.ArgumentError, match="times of 11 layers"):
        plots.plot_profile(PROFILE, layers=2)
