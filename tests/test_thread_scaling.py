"""Statistics of recorded timings are those of NumPy; a study keeps, shows and plots its runs."""

import json
from dataclasses import replace
from math import comb

import graphblas as gb
import numpy as np
import pytest
from calls import raises

import gbdnn
from gbdnn.errors import ArgumentError, ArgumentTypeError
from gbdnn.runtime.threads import available
from gbdnn.thread_scaling import Scaling, in_context, measure
from gbdnn.thread_scaling.study import Run, interval

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
MACHINE = {"processor": "a processor", "cores": 8, "physical_cores": 4}


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


@pytest.mark.parametrize("n", range(2, 13))
def test_an_interval_covers_the_median(n):
    """Of all signs of n differences from the median, at least 95 % are between its ends."""
    values = np.arange(n) ** 2.0
    middle, low, high = interval(np.random.default_rng(n).permutation(values))
    assert middle == np.median(values)
    k = int(np.flatnonzero(values == low)[0])
    assert values[-1 - k] == high

    def coverage(k):
        return 1 - 2 * sum(comb(n, i) for i in range(k + 1)) / 2**n

    assert k == 0 or coverage(k) >= 0.95
    assert k + 1 > (n - 1) // 2 or coverage(k + 1) < 0.95
    runs = [Run("a", "strong", 1, at, 1.0 + at, 1.0) for at in range(n)]
    assert f"cover the median with {coverage(k):.0%}." in repr(Scaling(runs, machine=MACHINE))


def test_one_round_has_no_interval():
    assert interval([3.0]) == (3.0, None, None)
    of = study()
    of = replace(of, runs=[run for run in of.runs if not run.round])
    assert row(of, "fused", 2)["seconds_low"] is None
    assert "cover the median" not in repr(of)
    assert of.conclusions == ["1 round: conclusions need 6 or more."]
    pytest.importorskip("matplotlib")
    assert of.plot().get_xlabel() == "threads"


@pytest.mark.parametrize("program", ["fused", "LAGraph's calls"])
@pytest.mark.parametrize("kind", ["strong", "weak"])
def test_rows_of_recorded_timings(program, kind):
    of = study(kind=kind)
    one = np.array(SECONDS[program, 1])
    for n in (1, 2, 4, 8):
        some, found = np.array(SECONDS[program, n]), row(of, program, n)
        gains = one / some * (n if kind == "weak" else 1)
        for name, values in (
            ("seconds", some), ("speed_up", gains), ("efficiency", gains / n),
            ("parallel", np.full(7, 0.9)), ("computation", gains / n),
        ):  # fmt: skip
            assert found[name] == pytest.approx(np.median(values))
            assert found[f"{name}_low"] == pytest.approx(values.min())
            assert found[f"{name}_high"] == pytest.approx(values.max())
        assert found["rounds"] == 7
        assert found["above_cores"] is (n > 4)


def simulated(programs, rounds=7, counts=(1, 2, 4, 8), noise=0.02, seed=0):
    """Runs of programs by functions for wall and processor time, with noise for each run."""
    rng = np.random.default_rng(seed)
    runs = []
    for k in range(rounds):
        for name, (wall, cpu) in programs.items():
            for n in counts:
                factor = rng.uniform(1, 1 + noise)
                runs.append(Run(name, "strong", n, k, wall(n) * factor, cpu(n) * factor, 0.0))
    return Scaling(runs, machine=MACHINE)


LOSSES = {
    "serial": (lambda n: 0.3 + 0.7 / n, lambda n: 1.0),
    "uneven": (lambda n: 1.0 if n == 1 else 1.4 / n, lambda n: 1.0),
    "spinning": (lambda n: 1.0 if n == 1 else 1.6 / n, lambda n: 1.0 if n == 1 else 1.6),
    "perfect": (lambda n: 1.0 / n, lambda n: 1.0),
}


def test_each_loss_is_named():
    of = simulated(LOSSES)
    found = {name: " ".join(x for x in of.conclusions if x.startswith(name)) for name in LOSSES}
    waits = "cores waited 68% of the time, as if 30% of the work ran on one thread, or under a lock"
    assert waits in found["serial"]
    assert "cores waited 29% of the time, as if one thread had 40% more work" in found["uneven"]
    assert "the processor time was 1.6 times that on one thread; there are 4" in found["spinning"]
    for name, words in (
        ("serial", ["uneven", "processor time"]), ("uneven", ["lock", "processor time"]),
        ("spinning", ["waited"]), ("perfect", ["waited", "processor time"]),
    ):  # fmt: skip
        assert not any(word in found[name] for word in words)
    # Two numbers of threads do not tell the causes of waiting apart.
    found = [x for x in simulated(LOSSES, counts=(1, 2)).conclusions if "waited" in x]
    assert len(found) == 2
    assert all(x.endswith("in serial parts, at locks or because of uneven shares.") for x in found)
    # A loop that holds a lock, and one whose threads wait for memory.
    two = {"lock": (lambda n: 1.0, lambda n: 1.0), "memory": (lambda n: 1.0, lambda n: n)}
    found = simulated(two, counts=(1, 2)).conclusions
    assert any("lock: with 2 threads, cores waited 50% of the time" in x for x in found)
    assert any("memory: with 2 threads, the processor time was 2 times" in x for x in found)


def test_sizes():
    """Each size is a series; the conclusions are those of the largest one."""
    calls = []
    of = gbdnn.scaling(lambda *given: calls.append(given), (1, 2), sizes=(40, 10), rounds=6)
    assert {*calls} == {(1, 10), (2, 10), (1, 40), (2, 40)}
    assert [(r["size"], r["threads"]) for r in of.rows] == [(10, 1), (10, 2), (40, 1), (40, 2)]
    runs = [
        Run("a", "strong", n, k, (1 + 0.5 * (n > 1 and size == 10)) / n, 1.0, 0.0, size)
        for k in range(7) for n in (1, 2) for size in (10, 4000)
    ]  # fmt: skip
    of = Scaling(runs, machine=MACHINE)
    assert [r["efficiency"] for r in of.rows] == pytest.approx([1, 1 / 1.5, 1, 1])
    assert of.conclusions[0] == "a: 2 (2, 2) times as fast on 2 threads as on 1."
    assert repr(of).splitlines()[1].split()[:4] == ["program", "kind", "size", "threads"]
    assert Scaling.from_json(json.loads(json.dumps(of.as_json()))) == of
    pytest.importorskip("matplotlib")
    assert of.plot().get_legend_handles_labels()[1] == ["ideal", "a, 10", "a, 4,000"]


def test_default_numbers_of_threads(monkeypatch):
    """Powers of two up to the number of physical cores, this number, and all hardware threads."""
    monkeypatch.setattr(measure, "cores", lambda: 12)
    for there, counts in ((6, [1, 2, 4, 6, 12]), (1, [1, 12]), (12, [1, 2, 4, 8, 12])):
        monkeypatch.setattr(measure, "physical_cores", lambda there=there: there)
        seen = []
        gbdnn.scaling(seen.append, rounds=1)
        assert sorted({*seen}) == counts


def test_losses_in_a_figure():
    pytest.importorskip("matplotlib")
    ax = simulated(LOSSES, noise=0).plot_losses()
    widths = np.array([[bar.get_width() for bar in bars] for bars in ax.containers])
    assert widths.sum(axis=0) == pytest.approx(np.ones(16))
    assert widths[:, 3] == pytest.approx([0.3226, 0, 0.6774], abs=1e-3)
    assert widths[:, 11] == pytest.approx([0.625, 0.375, 0], abs=1e-3)
    assert [x.get_text() for x in ax.get_yticklabels()][2:5] == [
        "serial, 4", "serial, 8*", "uneven, 1",
    ]  # fmt: skip
    raises(ArgumentError, "no runs of kind 'strong'", study(kind="weak").plot_losses)


def test_disturbed_rounds_do_not_count():
    of = study((0.0, 1.0, 0.0, 0.0, 0.5, None, 0.2))
    assert of.disturbed == [1, 4]
    assert of.is_quiet
    kept = np.delete(SECONDS["fused", 2], [1, 4])
    assert row(of, "fused", 2)["seconds"] == pytest.approx(np.median(kept))
    assert row(of, "fused", 2)["rounds"] == 5
    assert "rounds [1, 4] disturbed" in repr(of)
    for cores, disturbed in ((1, [1, 4, 6]), (16, [1])):  # a quarter of a core, or 5 %
        of = replace(study((0.0, 1.0, 0, 0, 0.5, None, 0.3)), machine={"cores": cores})
        assert of.disturbed == disturbed


def test_no_conclusions_from_disturbed_rounds():
    of = study((1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0))
    assert not of.is_quiet
    assert row(of, "fused", 2)["seconds"] == pytest.approx(np.median(SECONDS["fused", 2]))
    warning = "Other programs used 1.0 cores, and disturbed 4 rounds"
    first, spinning = of.conclusions
    assert first == f"{warning}: no conclusions are drawn."
    assert spinning.startswith("fused, LAGraph's calls: threads that spin")
    assert replace(of, runs=[run for run in of.runs if run.threads == 1]).conclusions == [first]
    assert f"{{{warning}}} \\\\\n\\end" in of.to_latex()
    pytest.importorskip("matplotlib")
    assert study().plot(others={"busy": of}).get_xlabel() == f"threads\n{warning}"


def test_conclusions_name_the_programs():
    first, lost, second, _, third = study().conclusions
    assert first == "fused: 2.88 (2.68, 3.02) times as fast on 8 threads as on 1."
    assert lost.startswith("fused: with 8 threads, the processor time was 2.8 times that on one")
    assert second.startswith("LAGraph's calls: 2.79 (")
    assert third == "Fastest on 8 threads: fused."
    alike = [
        Run(name, "strong", n, k, 1 + 0.01 * (k - at), 1.0)
        for k in range(7)
        for at, name in enumerate("ab")
        for n in (1, 2)
    ]
    found = Scaling(alike, machine=MACHINE).conclusions
    assert found[0].endswith("times as fast on 2 threads as on 1, which may be chance.")
    # In every round, b is faster by 0.01.
    assert found[-1] == "Fastest on 2 threads: b."


def test_short_calls_are_named():
    """Their speed-ups are those of waking threads, too."""
    of = study()
    runs = [replace(run, seconds=run.seconds / 2) for run in of.runs]
    wanted = "Waking threads is a part of calls below 20 ms: fused."
    assert wanted in Scaling(runs, machine=MACHINE).conclusions
    assert wanted not in of.conclusions


def test_tables():
    of = study()
    lines = repr(of).splitlines()
    assert lines[1].split("  ")[0] == "program"
    assert len({line.find("strong") for line in lines[2:10]}) == 1
    latex = of.to_latex()
    assert latex.count(r"\\") == 11
    assert latex.count("&") == 9 * 7
    assert r"\multicolumn{8}{l}{* more threads than physical cores (4)}" in latex
    assert [line.split()[2] for line in lines[2:6]] == ["1", "2", "4", "8*"]
    latex = Scaling([Run("50 % & a_b", "strong", 1, 0, 1.0, 1.0)]).to_latex()
    assert latex.count(r"50 \% \& a\_b &") == 1
    html = Scaling([Run("a < b", "strong", 1, 0, 1.0, 1.0)])._repr_html_()
    assert "<td>a &lt; b<td>" in html


def test_several_machines_in_one_plot():
    pytest.importorskip("matplotlib")
    ax = study().plot(others={"laptop": study(counts=(1, 2))})
    # and the ideal one, and the line at the number of physical cores
    assert len(ax.get_legend_handles_labels()[1]) == 6
    assert [*ax.lines[-1].get_xdata()] == [4, 4]
    raises(ArgumentError, "no runs of kind 'weak'", study().plot, kind="weak")
    raises(ArgumentError, "per_kernel=True", study().plot_parts)


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
    net, X = gbdnn.gallery.radixnet(1024, 12), np.ones((300, 1024), "f4")
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
        raises(ArgumentTypeError, "callable", gbdnn.scaling, bad)
    raises(ArgumentError, "at least 1", gbdnn.scaling, print, (0,))
    raises(ArgumentError, "empty", gbdnn.scaling, print, ())
    raises(ArgumentError, "pin must be", gbdnn.scaling, print, pin="spread")
    for sizes in ((), (0,)):
        raises(ArgumentError, "sizes", gbdnn.scaling, print, sizes=sizes)
