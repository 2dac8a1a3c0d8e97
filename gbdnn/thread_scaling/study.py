"""Statistics of timed calls by number of threads, and where the time is lost.

On n threads, a call takes T(n) seconds and C(n) seconds of processor time. The efficiency
T(1) / (n T(n)) is the product of

    parallel      C(n) / (n T(n))    the share of the time in which the cores are busy
    computation   C(1) / C(n)        the share of the processor time that one thread needs

if one thread is always busy. Waiting lowers the first: serial parts, locks, uneven shares. Work
that one thread does not have lowers the second: spinning, shared caches and memory, two threads on
one core. The method is that of the POP Centre of Excellence (pop-coe.eu), where 0.8 is acceptable.

Speed-ups are ratios of runs of the same round. A median has an interval by order statistics: the
k-th smallest to the k-th largest value, with k as large as possible for a coverage of 95 %. Of
seven values, the smallest to the largest cover the median with 98 %; fewer than six values cannot
cover it with 95 %.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from dataclasses import asdict, dataclass, field, fields
from math import comb
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from gbdnn.arrays.checks import as_word
from gbdnn.challenge.machine import versions
from gbdnn.errors import ArgumentError
from gbdnn.runtime.topology import described
from gbdnn.viz.figures import axes_or_new, curve_styles, legend_above

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from matplotlib.axes import Axes

__all__ = ["Run", "Scaling", "interval"]

_COVERAGE = 0.95
_LEAST = 6  # rounds that can cover a median so
_FITTED = 3  # numbers of threads from which causes of waiting are told apart
_ACCEPTABLE = 0.8  # parallel efficiency and efficiency of the computation
_BUSY = 0.25  # cores used by other programs from which a round is disturbed, or this share:
_BUSY_SHARE = 0.05
_SHORT = 0.02  # seconds of a call of which waking threads is a considerable part
_KINDS = ("strong", "weak")
_TIMES = ("seconds", "speed-up", "efficiency", "parallel", "computation")
_LOSSES = {"work": "0.35", "more processor time": "0.65", "waiting": "0.9"}


@dataclass(frozen=True, slots=True)
class Run:
    """A timed call.

    Attributes
    ----------
    program : str
    kind : {"strong", "weak"}
    threads, round : int
        Rounds count from 0.
    seconds, cpu : float
        Wall time, and processor time of this process.
    others : float or None
        Cores used by other programs during the round; None if unknown.
    size : int or None
        As in ``sizes=``.
    """

    program: str
    kind: str
    threads: int
    round: int
    seconds: float
    cpu: float
    others: float | None = None
    size: int | None = None


def interval(values: Iterable[float]) -> tuple[float, float | None, float | None]:
    """Return the median of values and its interval by order statistics; one value has none."""
    ordered = np.sort(np.fromiter(values, float))
    k, _ = _cut(len(ordered))
    if len(ordered) < 2:
        return float(ordered[0]), None, None
    return float(np.median(ordered)), float(ordered[k]), float(ordered[-1 - k])


def _cut(n: int) -> tuple[int, float]:
    """Return how many of n values are left out at each end of an interval, and its coverage."""
    k, outside = 0, 1
    # The median is below the (k + 1)-th smallest value with a probability of outside / 2^n.
    while k < (n - 1) // 2 and 2 * (outside + comb(n, k + 1)) <= (1 - _COVERAGE) * 2**n:
        k += 1
        outside += comb(n, k)
    return k, 1 - 2 * outside / 2**n


def _may_be_chance(ours: Sequence[float], theirs: Sequence[float]) -> bool:
    """Whether paired times may differ by chance, by the sign test at 5 %."""
    faster = sum(a < b for a, b in zip(ours, theirs, strict=True))
    slower = sum(a > b for a, b in zip(ours, theirs, strict=True))
    n = faster + slower
    tail = sum(comb(n, k) for k in range(min(faster, slower) + 1))
    return 2 * tail > (1 - _COVERAGE) * 2**n


@dataclass(frozen=True, repr=False)
class Scaling:
    """Times of calls by number of threads; the result of `gbdnn.scaling`.

    ``print(study)`` shows a table and conclusions, ``pandas.DataFrame(study.rows)`` is a data
    frame, and ``json.dumps(study.as_json())`` keeps a study for `from_json`.

    Attributes
    ----------
    runs : list of Run
    parts : list of dict
        With ``per_kernel=True``, a row per program, number of threads and part of a run of `infer`:
        ``product`` by kernel and layers, ``reading`` and ``writing`` of inputs, ``regrouping``
        between windows of layers, and ``other``: preparation, the answer, and waiting for other
        threads. Median seconds, summed over threads; ``rate`` is multiply-adds per second and
        thread.
    load : list of float
        Load averages before and after.
    pin : {"compact", "scatter", False}
    machine, versions : dict
        As in ``gbdnn challenge --json``.
    date : str
        Day of the measurement, such as "2026-11-28".
    """

    runs: list[Run]
    parts: list[dict[str, Any]] = field(default_factory=list)
    load: list[float] = field(default_factory=list)
    pin: str | bool = False
    machine: dict[str, Any] = field(default_factory=described)
    versions: dict[str, str] = field(default_factory=versions)
    date: str = field(default_factory=lambda: datetime.date.today().isoformat())

    @property
    def disturbed(self) -> list[int]:
        """Rounds in which other programs used the cores."""
        most = max(_BUSY, _BUSY_SHARE * self.machine["cores"])
        return sorted({run.round for run in self.runs if (run.others or 0) > most})

    @property
    def is_quiet(self) -> bool:
        """Whether at most half of the rounds are disturbed."""
        return 2 * len(self.disturbed) <= len({run.round for run in self.runs})

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row per program, kind, size and number of threads, with intervals of the medians.

        ``speed_up`` is relative to the smallest number of threads; for weak scaling it is the ratio
        of inputs per second. ``parallel`` is the share of the time in which cores are busy, and
        ``computation`` the ratio of processor times; their product is about the ``efficiency``.
        ``above_cores`` is whether there are more threads than physical cores.
        """
        rows = []
        for (program, kind, size), of in self._series().items():
            fewest = min(of)
            for n, runs in of.items():
                ideal = n / fewest
                more = ideal if kind == "weak" else 1
                pairs = [*zip(of[fewest], runs, strict=True)]
                gains = [more * one.seconds / run.seconds for one, run in pairs]
                row: dict[str, Any] = {"program": program, "kind": kind, "threads": n}
                row |= {"size": size} if size is not None else {}
                row |= {"rounds": len(runs), "above_cores": n > self._cores}
                each = {"seconds": [run.seconds for run in runs], "speed_up": gains}
                each["efficiency"] = [gain / ideal for gain in gains]
                each["parallel"] = [run.cpu / (n * run.seconds) for run in runs]
                each["computation"] = [
                    more * one.cpu / run.cpu if run.cpu else 1.0 for one, run in pairs
                ]
                for name, values in each.items():
                    row[name], row[f"{name}_low"], row[f"{name}_high"] = interval(values)
                rows.append(row)
        return rows

    @property
    def conclusions(self) -> list[str]:
        """Sentences on the speed-ups, and on what is lost on the largest number of threads.

        Of several sizes, those on the largest one. If most rounds are disturbed, or fewer than six
        count, only a sentence that says so.
        """
        rows = [row for row in self.rows if row["kind"] == "strong"]
        if self._warning:
            spins = [r["program"] for r in rows if r["computation"] < _ACCEPTABLE]
            remarks = [f"{self._warning}: no conclusions are drawn."]
            remedy = "threads that spin while they wait lose their cores to other programs"
            which = ", ".join(dict.fromkeys(spins))
            return remarks + [f"{which}: {remedy}; try OMP_WAIT_POLICY=passive."] * bool(spins)
        rounds = min((row["rounds"] for row in rows), default=_LEAST)
        if rounds < _LEAST:
            return [f"{rounds} round{'s'[: rounds > 1]}: conclusions need {_LEAST} or more."]
        size = max((row.get("size", 0) for row in rows), default=0)
        rows = [row for row in rows if row.get("size", 0) == size]
        fewest, most = (of((row["threads"] for row in rows), default=0) for of in (min, max))
        last = sorted((r for r in rows if r["threads"] == most), key=lambda row: row["seconds"])
        remarks = []
        for row in last if most > fewest else ():
            sure = row["speed_up_low"] > 1 or row["speed_up_high"] < 1
            remarks.append(
                f"{row['program']}: {_spread(row, 'speed_up')} times as fast on {most} threads as"
                f" on {fewest}{'' if sure else ', which may be chance'}."
            )
            remarks += self._lost(row, [r for r in rows if r["program"] == row["program"]])
        if len(last) > 1:
            series = self._series()
            ours, *others = (
                [run.seconds for run in series[r["program"], "strong", size or None][most]]
                for r in last
            )
            names = [r["program"] for r in last[1:]]
            close = [x for x, of in zip(names, others, strict=True) if _may_be_chance(ours, of)]
            but = f", but the difference from {' and '.join(close)} may be chance" if close else ""
            remarks.append(f"Fastest on {most} threads: {last[0]['program']}{but}.")
        short = dict.fromkeys(
            r["program"] for r in rows if r["threads"] > 1 and r["seconds"] < _SHORT
        )
        if short:
            least = f"{1000 * _SHORT:.0f} ms"
            remarks.append(f"Waking threads is a part of calls below {least}: {', '.join(short)}.")
        return remarks

    def _lost(self, last: dict[str, Any], rows: list[dict[str, Any]]) -> list[str]:
        """Return sentences on what a program loses on the largest number of threads."""
        parallel, computation = last["parallel"], last["computation"]
        remarks, begin = [], f"{last['program']}: with {last['threads']} threads, "
        if parallel < _ACCEPTABLE:
            text = f"{begin}cores waited {1 - parallel:.0%} of the time"
            # Seconds of waiting on all threads, relative to the time on one.
            n_of = np.array([row["threads"] for row in rows])
            waited = n_of / (n_of[0] * np.array([row["speed_up"] for row in rows]))
            waited *= 1 - np.array([row["parallel"] for row in rows])
            if rows[0]["threads"] != 1 or len(rows) < _FITTED:
                text += ", in serial parts, at locks or because of uneven shares"
            else:
                several, waited = n_of[1:], waited[1:]
                share = float(waited @ (several - 1) / ((several - 1) @ (several - 1)))
                if np.square(waited - share * (several - 1)).sum() < several.size * waited.var():
                    text += f", as if {share:.0%} of the work ran on one thread, or under a lock"
                else:
                    uneven = f"{waited.mean():.0%} more work than the mean"
                    text += f", as if one thread had {uneven} (uneven shares)"
            remarks.append(f"{text}.")
        if computation < _ACCEPTABLE:
            text = f"{begin}the processor time was {1 / computation:.2g} times that on one thread"
            if last["above_cores"]:
                text += f"; there are {self._cores} physical cores"
            causes = "threads that spin while they wait (OMP_WAIT_POLICY), memory, or shared caches"
            remarks.append(f"{text}: {causes}.")
        return remarks

    @property
    def _cores(self) -> int:
        return int(self.machine.get("physical_cores") or self.machine["cores"])

    @property
    def _warning(self) -> str:
        """What the statistics are worth if most rounds are disturbed, else nothing."""
        if self.is_quiet:
            return ""
        count, cores = len(self.disturbed), np.median([run.others or 0 for run in self.runs])
        return f"Other programs used {cores:.1f} cores, and disturbed {count} rounds"

    def _series(self) -> dict[tuple[str, str, int | None], dict[int, list[Run]]]:
        """Return the runs that count, by program, kind and size, then threads, ordered by round."""
        gone = set(self.disturbed) if self.is_quiet else set()
        runs: dict[tuple[str, str, int | None], dict[int, list[Run]]] = {}
        for run in sorted(self.runs, key=lambda run: (run.threads, run.round)):
            if run.round not in gone:
                of = runs.setdefault((run.program, run.kind, run.size), {})
                of.setdefault(run.threads, []).append(run)
        return runs

    def _cells(self) -> list[list[str]]:
        """Return the table of `rows` as text, with its head."""
        sized = any(run.size is not None for run in self.runs)
        cells = [["program", "kind", *["size"] * sized, "threads", *_TIMES]]
        for row in self.rows:
            cells.append([row["program"], row["kind"]])
            cells[-1] += [f"{row['size']:,}" if "size" in row else ""] if sized else []
            cells[-1] += [f"{row['threads']}{'*'[: row['above_cores']]}"]
            cells[-1] += [_spread(row, name) for name in ("seconds", "speed_up", "efficiency")]
            cells[-1] += [f"{row[name]:.2f}" for name in ("parallel", "computation")]
        return cells

    @property
    def _notes(self) -> list[str]:
        """Sentences below a table."""
        rows = self.rows
        above = any(row["above_cores"] for row in rows)
        notes = [f"* more threads than physical cores ({self._cores})"] if above else []
        rounds = min((row["rounds"] for row in rows), default=0)
        if rounds > 1:
            notes.append(f"Intervals cover the median with {_cut(rounds)[1]:.0%}.")
        return notes

    def __repr__(self) -> str:
        cells, rounds = self._cells(), len({run.round for run in self.runs})
        about = f"{self.machine['processor']}, {self.machine['cores']} cores, {rounds} rounds"
        about += f", pin={self.pin!r}, load average {' to '.join(f'{x:.2f}' for x in self.load)}"
        about += f", rounds {self.disturbed} disturbed" if self.disturbed else ""
        wide = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = ["  ".join(map(str.ljust, row, wide)).rstrip() for row in cells]
        return "\n".join([about, *lines, *self._notes, *self.conclusions])

    def _repr_html_(self) -> str:
        from html import escape

        rows = ("<tr><td>" + "<td>".join(map(escape, row)) for row in self._cells())
        text = escape(" ".join([*self._notes, *self.conclusions]))
        return f"<table>{''.join(rows)}</table><p>{text}"

    def to_latex(self) -> str:
        """Return the table of `rows` as a LaTeX ``tabular``."""
        special = str.maketrans({each: f"\\{each}" for each in "&%$#_{}"})
        cells = self._cells()
        rows, wide = (
            [" & ".join(text.translate(special) for text in row) for row in cells],
            len(cells[0]),
        )
        notes = [*self._notes, *filter(None, [self._warning])]
        rows += [f"\\multicolumn{{{wide}}}{{l}}{{{note.translate(special)}}}" for note in notes]
        body = "".join(f"{row} \\\\\n" for row in rows)
        return f"\\begin{{tabular}}{{ll{'r' * (wide - 2)}}}\n{body}\\end{{tabular}}\n"

    def as_json(self) -> dict[str, Any]:
        """Return a dict for JSON with all runs, and what follows from them."""
        return asdict(self) | {"rows": self.rows, "disturbed": self.disturbed}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Scaling:
        """Return the study of a dict by `as_json`, or by ``gbdnn challenge --json``."""
        found = found.get("scaling", found)
        given = {each.name: found[each.name] for each in fields(cls)}
        return cls(**given | {"runs": [Run(**run) for run in found["runs"]]})

    def plot(
        self,
        ax: Axes | None = None,
        *,
        kind: Literal["strong", "weak"] = "strong",
        others: Mapping[str, Scaling] | None = None,
    ) -> Axes:
        """Plot speed-ups and their intervals by number of threads, a line for each size.

        Parameters
        ----------
        ax : Axes, optional
            Axes to draw into (default: those of a new figure).
        kind : {"strong", "weak"}, default "strong"
        others : dict of str to Scaling, optional
            Studies of other machines, by the label that their programs get.

        Returns
        -------
        Axes
            Both axes are logarithmic; the dotted line is the ideal speed-up, and the vertical one
            the number of physical cores if there are more threads.

        Raises
        ------
        ArgumentError
            There are no runs of this kind.
        """
        as_word(kind, "kind", _KINDS)
        series: dict[str, list[dict[str, Any]]] = defaultdict(list)
        studies = {"": self, **(others or {})}
        for label, study in studies.items():
            for row in (row for row in study.rows if row["kind"] == kind):
                size = f"{row['size']:,}" if "size" in row else ""
                series[", ".join(filter(None, (row["program"], size, label)))].append(row)
        counts = sorted({row["threads"] for rows in series.values() for row in rows})
        if not counts:
            raise ArgumentError(f"the study has no runs of kind {kind!r}; pass weak=")
        ax, styles = axes_or_new(ax), curve_styles()
        ax.plot(counts, [n / counts[0] for n in counts], ":", color="0.5", label="ideal")
        for at, (label, rows) in enumerate(series.items()):
            # The intervals of several programs stand next to each other.
            x = np.array([row["threads"] for row in rows]) * 1.02 ** (at - (len(series) - 1) / 2)
            names = ("speed_up", "speed_up_low", "speed_up_high")
            y, low, high = (np.array([row[name] for row in rows], float) for name in names)
            bars = None if np.isnan(low).any() else [y - low, high - y]
            ax.errorbar(x, y, bars, capsize=2, label=label, **next(styles))
        if any(row["above_cores"] for rows in series.values() for row in rows):
            ax.axvline(self._cores, color="0.7", linewidth=1, label="physical cores")
        _powers(ax, counts)
        ax.set_xlabel("\n".join(["threads", *(x._warning for x in studies.values() if x._warning)]))
        ax.set_ylabel(f"speed-up over {counts[0]} thread{'s'[: counts[0] > 1]}")
        legend_above(ax)
        return ax

    def plot_losses(self, ax: Axes | None = None) -> Axes:
        """Plot what the cores do in the time of a call, for each program and number of threads.

        Parameters
        ----------
        ax : Axes, optional
            Axes to draw into (default: those of a new figure).

        Returns
        -------
        Axes
            A bar for each row of kind "strong": the work that one thread does, too (the
            efficiency); more processor time; and waiting.

        Raises
        ------
        ArgumentError
            There are no runs of kind "strong".
        """
        rows = [row for row in self.rows if row["kind"] == "strong"]
        shown = [cells for cells in self._cells()[1:] if cells[1] == "strong"]
        if not rows:
            raise ArgumentError("the study has no runs of kind 'strong'; pass call=")
        ax = axes_or_new(ax)
        busy = np.clip([row["parallel"] for row in rows], 0, 1)
        work = busy * np.clip([row["computation"] for row in rows], 0, 1)
        parts = zip(_LOSSES.items(), (work, busy - work, 1 - busy), strict=True)
        left = np.zeros(len(rows))
        for (name, color), part in parts:
            ax.barh(range(len(rows)), part, left=left, color=color, label=name)
            left += part
        ax.set_yticks(range(len(rows)), [", ".join(cells[:1] + cells[2:-5]) for cells in shown])
        ax.invert_yaxis()
        ax.set_ylabel("program, threads")
        ax.set_xlabel("share of the time of all cores")
        legend_above(ax)
        return ax

    def plot_parts(
        self, ax: Axes | None = None, *, limits: Mapping[str, float] | None = None
    ) -> Axes:
        """Plot multiply-adds per second and thread by layers, after ``per_kernel=True``.

        Parameters
        ----------
        ax : Axes, optional
            Axes to draw into (default: those of a new figure).
        limits : dict of str to float, optional
            Rates that a thread could reach on this processor, by label, drawn as lines.

        Returns
        -------
        Axes
            Each group of layers has a point for the smallest and one for the largest number of
            threads.

        Raises
        ------
        ArgumentError
            The study has no parts.
        """
        rows = [row for row in self.parts if row["rate"]]
        if not rows:
            raise ArgumentError("the study has no parts; pass per_kernel=True to gbdnn.scaling")
        ax = axes_or_new(ax)
        at = {id(row): row["part"].rpartition(" ")[2] for row in rows}  # such as 6-9
        groups = sorted(set(at.values()), key=lambda layers: int(layers.partition("-")[0]))
        fewest, most = (of(row["threads"] for row in rows) for of in (min, max))
        programs = dict.fromkeys(row["program"] for row in rows)
        for program, style in zip(programs, curve_styles(), strict=False):
            for n, more in ((fewest, {"markerfacecolor": "none"}), (most, {"label": program})):
                of = [row for row in rows if (row["threads"], row["program"]) == (n, program)]
                x, y = [groups.index(at[id(row)]) for row in of], [row["rate"] for row in of]
                ax.plot(x, y, **style | {"linestyle": "", "markersize": 6} | more)
        for (label, rate), line in zip((limits or {}).items(), ("--", ":", "-."), strict=False):
            ax.axhline(rate, color="0.3", linestyle=line, linewidth=1, label=label)
        ax.set_yscale("log")
        ax.set_xticks(range(len(groups)), groups, rotation=45, fontsize="small")
        ax.set_xlabel(f"layers ({fewest} thread{'s'[: fewest > 1]}: hollow, {most}: filled)")
        ax.set_ylabel("multiply-adds/s per thread")
        legend_above(ax)
        return ax


def _spread(row: dict[str, Any], name: str) -> str:
    """Return a median and its interval, if there is one, as text."""
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return f"{row[name]:.3g}" + ("" if low is None else f" ({low:.3g}, {high:.3g})")


def _powers(ax: Axes, counts: list[int]) -> None:
    """Make both axes logarithmic; label counts that are far enough apart, powers of two first."""
    from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

    shown = list[int]()
    for n in sorted(counts, key=lambda n: (n & (n - 1) != 0, n)):
        if all(abs(np.log2(n / other)) >= 0.5 for other in shown):
            shown.append(n)
    ax.set(xscale="log", yscale="log")
    ax.xaxis.set_major_locator(FixedLocator(shown))
    top = int(np.log2(max(counts) / min(counts))) + 2
    ax.yaxis.set_major_locator(FixedLocator([2.0**k for k in range(-4, top)]))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.grid(color="0.9")
