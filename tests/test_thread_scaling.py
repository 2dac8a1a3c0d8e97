"""Statistics of recorded timings are those of NumPy; a study keeps, shows and plots its runs."""

import json
from dataclasses import replace
from math import comb

import graphblas as gb
import numpy as np
import pytest

import gbdnn
from gbdnn.errors import ArgumentError, ArgumentTypeError
from gbdnn.runtime.threads import available
from gbdnn.thread_scaling import Run, Scaling, in_context, measure
from gbdnn.thread_scaling.study import interval

# Seconds of seven rounds, as they were measured.
SECONDS = {
    ("fused", 1): [0.0880, 0.0912, 0.0875, 0.0893, 0.0901, 0.0884, 0.0879],
    ("fused", 2): [0.0634, 0.0641, 0.0598, 0.0655, 0.0629, 0.0633, 0.0712],
    ("fused", 4): [0.0401, 0.0388, 0.0392, 0.0405, 0.0413, 0.0390, 0.0397],
    ("fused", 8): [0.0311, 0.0302, 0.0298, 0.0333, 0.0305, 0.0307, 0.0310],
    ("LAGraph's calls", 1): [2.242, 2.205, 2.449, 2.231, 2.260, 2.251, 2.219],
    ("LAGraph's calls", 2): [1.367, 1.342, 1.621, 1.401, 1.388, 1.359, 1.372],
    ("LAGraph's calls", 4): [0.921, 0.934, 0.917, 0.955, 0.940, 0.928, 0.951],
    ("LAGraph's calls", 8): [0.803, 0.811, 0.795, 0.820, 0.808, 0.799, 0.816],
}
MACHINE = {"processor": "a processor", "cores": 8}


def study(others=(0.0,) * 7, counts=(1, 2, 4, 8), kind="strong"):
    """The recorded timings, with cores that other programs used in each round."""
    runs = [
        Run(program, kind, n, k, seconds[k], 0.9 * n * seconds[k], others[k])
        for k in range(7)
        for (program, n), seconds in SECONDS.items()
        if n in counts
    ]
    return Scaling(runs, load=[0.1, 2.5], machine=MACHINE, versions={"gbdnn": "0"})


def row(of, program, threads):
    (found,) = [r for r in of.rows if (r["program"], r["threads"]) == (program, threads)]
    return found


@pytest.mark.parametrize("n", range(1, 13))
def test_an_interval_covers_the_median(n):
    """Of all signs of n differences from the median, at least 95 % are between its ends."""
    values = np.arange(n) ** 2.0
    middle, low, high = interval(np.random.default_rng(n).permutation(values))
    assert middle == np.median(values)
    k = int(np.flatnonzero(values == low)[0])
    assert values[-1 - k] == high
    below = ((np.arange(2**n)[:, None] >> np.arange(n)) & 1).sum(axis=1)  # values below the median

    def coverage(k):
        return np.mean((below > k) & (below < n - k))

    assert coverage(k) == pytest.approx(1 - 2 * sum(comb(n, i) for i in range(k + 1)) / 2**n)
    assert k == 0 or coverage(k) >= 0.95
    assert k + 1 > (n - 1) // 2 or coverage(k + 1) < 0.95


@pytest.mark.parametrize("program", ["fused", "LAGraph's calls"])
@pytest.mark.parametrize("kind", ["strong", "weak"])
def test_rows_of_recorded_timings(program, kind):
    of = study(kind=kind)
    one = np.array(SECONDS[program, 1])
    for n in (1, 2, 4, 8):
        some, found = np.array(SECONDS[program, n]), row(of, program, n)
        gains = one / some * (n if kind == "weak" else 1)
        for name, values in (
            ("seconds", some),
            ("speed_up", gains),
            ("efficiency", gains / n),
        ):
            assert found[name] == pytest.approx(np.median(values))
            assert found[f"{name}_low"] == pytest.approx(values.min())
            assert found[f"{name}_high"] == pytest.approx(values.max())
        assert found["cores_busy"] == pytest.approx(0.9 * n)
        assert found["rounds"] == 7


def test_the_serial_share_is_fitted_from_four_numbers_of_threads():
    assert study(counts=(1, 2, 4)).serial_shares == {}
    assert study(counts=(2, 4, 8)).serial_shares == {}
    found = study().serial_shares
    for program in ("fused", "LAGraph's calls"):
        times = np.array([SECONDS[program, n] for n in (1, 2, 4, 8)])
        n = np.array([1.0, 2, 4, 8])
        shares = [
            np.linalg.lstsq((1 - 1 / n)[:, None], each / each[0] - 1 / n, rcond=None)[0][0]
            for each in times.T
        ]
        assert found[program] == pytest.approx((np.median(shares), min(shares), max(shares)))


def test_disturbed_rounds_do_not_count():
    of = study((0.0, 1.0, 0.0, 0.0, 0.5, None, 0.2))
    assert of.disturbed == [1, 4]
    assert of.is_quiet
    kept = np.delete(SECONDS["fused", 2], [1, 4])
    assert row(of, "fused", 2)["seconds"] == pytest.approx(np.median(kept))
    assert row(of, "fused", 2)["rounds"] == 5
    assert "rounds [1, 4] disturbed" in repr(of)
    for cores, disturbed in ((1, [1, 4, 6]), (16, [1])):  # a quarter of a core, or 5 %
        assert (
            replace(study((0.0, 1.0, 0, 0, 0.5, None, 0.3)), machine={"cores": cores}).disturbed
            == disturbed
        )


def test_no_conclusions_from_disturbed_rounds():
    of = study((1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0))
    assert not of.is_quiet
    assert row(of, "fused", 2)["seconds"] == pytest.approx(np.median(SECONDS["fused", 2]))
    warning = "Other programs used the cores in 4 rounds"
    assert of.conclusions == [f"{warning}: no conclusions are drawn."]
    assert f"{{{warning}}} \\\\\n\\end" in of.to_latex()
    pytest.importorskip("matplotlib")
    assert study().plot(others={"busy": of}).get_xlabel() == f"threads\n{warning}"


def test_conclusions_name_the_programs():
    first, second, third, *shares = study().conclusions
    assert first == "fused: 2.88 (2.68, 3.02) times as fast on 8 threads as on 1."
    assert second.startswith("LAGraph's calls: 2.79 (")
    assert third == "Fastest on 8 threads: fused."
    assert shares[0].startswith("fused: serial share ")
    alike = [
        Run(name, "strong", n, k, 1 + 0.01 * (k - at), 1.0)
        for k in range(7)
        for at, name in enumerate("ab")
        for n in (1, 2)
    ]
    first, _, third = Scaling(alike, machine=MACHINE).conclusions
    assert first.endswith("times as fast on 2 threads as on 1, which may be chance.")
    assert third == "Fastest on 2 threads: b, but within the interval of a."


def test_short_calls_are_named():
    """Their speed-ups are those of waking threads, too."""
    of = study()
    runs = [replace(run, seconds=run.seconds / 2) for run in of.runs]
    wanted = "Waking threads is a part of calls below 20 ms: fused."
    assert wanted in Scaling(runs, machine=MACHINE).conclusions
    assert wanted not in of.conclusions


def test_json_keeps_a_study():
    of = study()
    found = json.loads(json.dumps(of.as_json()))
    assert Scaling.from_json(found) == Scaling.from_json({"scaling": found, "net": 1}) == of
    assert found["rows"] == of.rows


def test_tables():
    of = study()
    lines = repr(of).splitlines()
    assert lines[1].split("  ")[0] == "program"
    assert len({line.find("strong") for line in lines[2:10]}) == 1
    latex = of.to_latex()
    assert latex.count(r"\\") == 9
    assert latex.count("&") == 9 * 6
    assert Scaling([Run("50 % & a_b", "strong", 1, 0, 1.0, 1.0)]).to_latex().count(
        r"50 \% \& a\_b &"
    ) == 1  # fmt: skip
    html = Scaling([Run("a < b", "strong", 1, 0, 1.0, 1.0)])._repr_html_()
    assert "<td>a &lt; b<td>" in html


def test_several_machines_in_one_plot():
    pytest.importorskip("matplotlib")
    ax = study().plot(others={"laptop": study(counts=(1, 2))})
    assert len(ax.get_legend_handles_labels()[1]) == 5  # and the ideal one
    with pytest.raises(ArgumentError, match="no runs of kind 'weak'"):
        study().plot(kind="weak")
    with pytest.raises(ArgumentError, match="per_kernel=True"):
        study().plot_parts()


def test_a_call_in_a_context():
    seen = []
    gbdnn.scaling(in_context(lambda: seen.append(available())), (1, 3), rounds=1)
    assert sorted(seen) == [1, 1, 3, 3]


def test_pending_work_counts(monkeypatch):
    """The result of a call is completed in the time of the call."""
    A, wait, waited = gb.Matrix.from_coo([0], [0], 1.0), gb.Matrix.wait, []
    monkeypatch.setattr(gb.Matrix, "wait", lambda self, *how: waited.append(self) or wait(self))
    gbdnn.scaling(lambda n: A, (1,), rounds=1)
    assert [each is A for each in waited] == [True, True]


def test_time_of_other_programs(monkeypatch, tmp_path):
    """Ticks of the cores that this process may use, without idle ones."""
    file, much = tmp_path / "stat", 10**9
    monkeypatch.setattr(measure, "_STAT", file)
    monkeypatch.setattr(measure, "usable", lambda: {0, 2})

    def busy(**cpus):
        file.write_text("cpu  9 9 9 9 9 9 9 9 0 0\n")
        others = measure._others(1)
        lines = [f"{cpu} {' '.join(map(str, ticks))} 5 5" for cpu, ticks in cpus.items()]
        file.write_text("\n".join(["cpu  9 9 9 9 9 9 9 9 0 0", *lines, "intr 3 4"]))
        return others()

    assert busy(cpu0=[0, 0, 0, much, much, 0, 0, 0]) == 0
    assert busy(cpu1=[much] * 8) == 0
    for at in (0, 1, 2, 5, 6, 7):
        assert busy(cpu2=[much * (k == at) for k in range(8)]) > 1
    file.unlink()
    monkeypatch.setattr(measure.os, "getloadavg", lambda: (5.0, 0, 0))
    assert measure._others(3)() == 2


def test_rounds_are_interleaved():
    """A warm-up of every call, then rounds that run each of them once."""
    calls = []
    named = {name: (lambda n, name=name: calls.append((name, n))) for name in "ab"}
    of = gbdnn.scaling(named, (2, 1, 2), rounds=2, weak={"a": lambda n: calls.append(("w", n))})
    assert len(calls) == 3 * 6
    for at in (0, 6, 12):
        assert {*calls[at : at + 6]} == {(name, n) for name in "abw" for n in (1, 2)}
    assert calls[6:12] == calls[12:18][::-1]
    assert [(run.program, run.kind, run.threads, run.round) for run in of.runs[:6]] == [
        ("a", "strong", 1, 0), ("a", "strong", 2, 0), ("b", "strong", 1, 0), ("b", "strong", 2, 0),
        ("a", "weak", 1, 0), ("a", "weak", 2, 0),
    ]  # fmt: skip


@pytest.mark.parametrize("engine", ["fused", "full", "sparse"])
def test_the_parts_of_a_run(engine):
    """Products by kernel and layers, for every input that a layer computed."""
    net, X = gbdnn.radixnet(1024, 12), np.ones((300, 1024), "f4")
    X[:, ::3] = 0
    of = gbdnn.scaling(
        lambda n: gbdnn.infer(net, X, nthreads=n, engine=engine, deduplicate=False),
        (1, 3), rounds=1, per_kernel=True,
    )  # fmt: skip
    assert {row["threads"] for row in of.parts} == {1, 3}
    for n in (1, 3):
        rows = {row["part"]: row for row in of.parts if row["threads"] == n}
        assert {f"{engine}, layers 0-5", "other"} <= rows.keys()
        assert rows.keys() <= {
            f"{engine}, layers 0-5", f"{engine}, layers 6-9", f"{engine}, layers 10-11",
            "reading", "writing", "regrouping", "other",
        }  # fmt: skip
        first = rows[f"{engine}, layers 0-5"]
        assert first["rate"] * first["seconds"] == pytest.approx(300 * 6 * net[0].edges)


def test_bad_calls():
    for bad in (3, {"a": 3}, {3: print}, gb.Matrix("FP32", 1, 1)):
        with pytest.raises(ArgumentTypeError, match="callable"):
            gbdnn.scaling(bad)
    with pytest.raises(ArgumentError, match="at least 1"):
        gbdnn.scaling(print, (0,))
    with pytest.raises(ArgumentError, match="empty"):
        gbdnn.scaling(print, ())
    with pytest.raises(ArgumentError, match="pin must be"):
        gbdnn.scaling(print, pin="scatter")
