"""Statistics of timed calls by number of threads.

Speed-ups are ratios of runs of the same round. A median has an interval by order statistics: the
k-th smallest to the k-th largest value, with k as large as possible for a coverage of 95 %. Of
seven values, the smallest to the largest cover the median with 98 %.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass, field, fields
from math import comb
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from gbdnn.arrays.checks import as_word
from gbdnn.challenge.machine import machine, versions
from gbdnn.errors import ArgumentError
from gbdnn.viz.figures import axes_or_new, curve_styles, legend_above

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from matplotlib.axes import Axes

__all__ = ["Run", "Scaling", "interval", "serial_share"]

_COVERAGE = 0.95
_FITTED = 4  # numbers of threads from which Amdahl's law is fitted
_BUSY = 0.25  # cores used by other programs from which a round is disturbed, or this share:
_BUSY_SHARE = 0.05
_SHORT = 0.02  # seconds of a call of which waking threads is a considerable part
_KINDS = ("strong", "weak")
_HEAD = ("program", "kind", "threads", "seconds", "speed-up", "efficiency", "cores busy")


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
    """

    program: str
    kind: str
    threads: int
    round: int
    seconds: float
    cpu: float
    others: float | None = None


def interval(values: Iterable[float]) -> tuple[float, float, float]:
    """Return the median of values and its interval by order statistics."""
    ordered = np.sort(np.fromiter(values, float))
    n, k, outside = len(ordered), 0, 1
    # The median is below the (k + 1)-th smallest value with a probability of outside / 2^n.
    while k < (n - 1) // 2 and 2 * (outside + comb(n, k + 1)) <= (1 - _COVERAGE) * 2**n:
        k += 1
        outside += comb(n, k)
    return float(np.median(ordered)), float(ordered[k]), float(ordered[-1 - k])


def serial_share(threads: Sequence[int], speed_ups: Sequence[float]) -> float:
    """Return the serial share s of Amdahl's law, fitted to speed-ups over one thread.

    Least squares of the times s + (1 - s) / n, with 0 <= s <= 1.
    """
    n = np.asarray(threads, float)
    x, y = 1 - 1 / n, 1 / np.asarray(speed_ups, float) - 1 / n
    return float(np.clip(x @ y / (x @ x), 0, 1))


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
    pin : {"compact", False}
    machine, versions : dict
        As in ``gbdnn challenge --json``.
    """

    runs: list[Run]
    parts: list[dict[str, Any]] = field(default_factory=list)
    load: list[float] = field(default_factory=list)
    pin: str | bool = False
    machine: dict[str, Any] = field(default_factory=machine)
    versions: dict[str, str] = field(default_factory=versions)

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
        """A row per program, kind and number of threads, with intervals of the medians.

        ``speed_up`` is relative to the smallest number of threads; for weak scaling it is the ratio
        of inputs per second. ``cores_busy`` is processor time divided by wall time.
        """
        rows = []
        for (program, kind), of in self._series().items():
            few = min(of)
            for n, runs in of.items():
                seconds = [run.seconds for run in runs]
                ideal = n / few
                more = ideal if kind == "weak" else 1
                pairs = zip(of[few], seconds, strict=True)
                gains = [more * one.seconds / taken for one, taken in pairs]
                row = {"program": program, "kind": kind, "threads": n, "rounds": len(runs)}
                row["cores_busy"] = float(np.median([run.cpu / run.seconds for run in runs]))
                each = {"seconds": seconds, "speed_up": gains}
                each["efficiency"] = [gain / ideal for gain in gains]
                for name, values in each.items():
                    row[name], row[f"{name}_low"], row[f"{name}_high"] = interval(values)
                rows.append(row)
        return rows

    @property
    def serial_shares(self) -> dict[str, tuple[float, float, float]]:
        """Serial share by Amdahl's law, with its interval, by program.

        Empty for fewer than four numbers of threads, or if the smallest is not 1.
        """
        found = {}
        for (program, kind), of in self._series().items():
            if kind == "strong" and len(of) >= _FITTED and min(of) == 1:
                times = np.array([[run.seconds for run in runs] for runs in of.values()])
                found[program] = interval(serial_share([*of], each[0] / each) for each in times.T)
        return found

    @property
    def conclusions(self) -> list[str]:
        """Sentences on the speed-ups; only a warning if most rounds are disturbed."""
        if self._warning:
            return [f"{self._warning}: no conclusions are drawn."]
        found, rows = [], [row for row in self.rows if row["kind"] == "strong"]
        few, most = (of(row["threads"] for row in rows) for of in (min, max))
        last = sorted((r for r in rows if r["threads"] == most), key=lambda row: row["seconds"])
        for row in last if most > few else ():
            sure = row["speed_up_low"] > 1 or row["speed_up_high"] < 1
            found.append(
                f"{row['program']}: {_spread(row, 'speed_up')} times as fast on {most} threads as"
                f" on {few}{'' if sure else ', which may be chance'}."
            )
        if len(last) > 1:
            close = [r["program"] for r in last[1:] if r["seconds_low"] <= last[0]["seconds_high"]]
            but = f", but within the interval of {' and '.join(close)}" if close else ""
            found.append(f"Fastest on {most} threads: {last[0]['program']}{but}.")
        short = dict.fromkeys(
            r["program"] for r in rows if r["threads"] > 1 and r["seconds"] < _SHORT
        )
        if short:
            least = f"{1000 * _SHORT:.0f} ms"
            found.append(f"Waking threads is a part of calls below {least}: {', '.join(short)}.")
        for program, share in self.serial_shares.items():
            text = "{:.1%} ({:.1%}, {:.1%})".format(*share)
            found.append(f"{program}: serial share {text} by Amdahl's law.")
        return found

    @property
    def _warning(self) -> str:
        """What the statistics are worth if most rounds are disturbed, else nothing."""
        count = len(self.disturbed)
        return "" if self.is_quiet else f"Other programs used the cores in {count} rounds"

    def _series(self) -> dict[tuple[str, str], dict[int, list[Run]]]:
        """Return the runs that count, by program and kind, then by threads, in order of rounds."""
        gone = set(self.disturbed) if self.is_quiet else set()
        found: dict[tuple[str, str], dict[int, list[Run]]] = {}
        for run in sorted(self.runs, key=lambda run: (run.threads, run.round)):
            if run.round not in gone:
                of = found.setdefault((run.program, run.kind), {})
                of.setdefault(run.threads, []).append(run)
        return found

    def _cells(self) -> list[list[str]]:
        """Return the table of `rows` as text, with its head."""
        return [
            [*_HEAD],
            *(
                [row["program"], row["kind"], str(row["threads"])]
                + [_spread(row, name) for name in ("seconds", "speed_up", "efficiency")]
                + [f"{row['cores_busy']:.2f}"]
                for row in self.rows
            ),
        ]

    def __repr__(self) -> str:
        cells, rounds = self._cells(), len({run.round for run in self.runs})
        about = f"{self.machine['processor']}, {self.machine['cores']} cores, {rounds} rounds"
        about += f", pin={self.pin!r}, load average {' to '.join(f'{x:.2f}' for x in self.load)}"
        about += f", rounds {self.disturbed} disturbed" if self.disturbed else ""
        wide = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = ["  ".join(map(str.ljust, row, wide)).rstrip() for row in cells]
        return "\n".join([about, *lines, *self.conclusions])

    def _repr_html_(self) -> str:
        from html import escape

        rows = ("<tr><td>" + "<td>".join(map(escape, row)) for row in self._cells())
        return f"<table>{''.join(rows)}</table><p>{escape(' '.join(self.conclusions))}"

    def to_latex(self) -> str:
        """Return the table of `rows` as a LaTeX ``tabular``."""
        special = str.maketrans({each: f"\\{each}" for each in "&%$#_{}"})
        rows = [" & ".join(text.translate(special) for text in row) for row in self._cells()]
        rows += [f"\\multicolumn{{7}}{{l}}{{{self._warning}}}"] * bool(self._warning)
        body = "".join(f"{row} \\\\\n" for row in rows)
        return f"\\begin{{tabular}}{{llrrrrr}}\n{body}\\end{{tabular}}\n"

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
        """Plot speed-ups and their intervals by number of threads.

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
            Both axes are logarithmic; the dotted line is the ideal speed-up.

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
                series[", ".join(filter(None, (row["program"], label)))].append(row)
        counts = sorted({row["threads"] for rows in series.values() for row in rows})
        if not counts:
            raise ArgumentError(f"the study has no runs of kind {kind!r}; pass weak=")
        ax, styles = axes_or_new(ax), curve_styles()
        ax.plot(counts, [n / counts[0] for n in counts], ":", color="0.5", label="ideal")
        for at, (label, rows) in enumerate(series.items()):
            # The intervals of several programs stand next to each other.
            x = np.array([row["threads"] for row in rows]) * 1.02 ** (at - (len(series) - 1) / 2)
            names = ("speed_up", "speed_up_low", "speed_up_high")
            y, low, high = (np.array([row[name] for row in rows]) for name in names)
            ax.errorbar(x, y, [y - low, high - y], capsize=2, label=label, **next(styles))
        _powers(ax, counts)
        ax.set_xlabel("\n".join(["threads", *(x._warning for x in studies.values() if x._warning)]))
        ax.set_ylabel(f"speed-up over {counts[0]} thread{'s'[: counts[0] > 1]}")
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
        few, most = (of(row["threads"] for row in rows) for of in (min, max))
        programs = dict.fromkeys(row["program"] for row in rows)
        for program, style in zip(programs, curve_styles(), strict=False):
            for n, more in ((few, {"markerfacecolor": "none"}), (most, {"label": program})):
                of = [row for row in rows if (row["threads"], row["program"]) == (n, program)]
                x, y = [groups.index(at[id(row)]) for row in of], [row["rate"] for row in of]
                ax.plot(x, y, **style | {"linestyle": "", "markersize": 6} | more)
        for (label, rate), line in zip((limits or {}).items(), ("--", ":", "-."), strict=False):
            ax.axhline(rate, color="0.3", linestyle=line, linewidth=1, label=label)
        ax.set_yscale("log")
        ax.set_xticks(range(len(groups)), groups, rotation=45, fontsize="small")
        ax.set_xlabel(f"layers ({few} thread{'s'[: few > 1]}: hollow, {most}: filled)")
        ax.set_ylabel("multiply-adds/s per thread")
        legend_above(ax)
        return ax


def _spread(row: dict[str, Any], name: str) -> str:
    """Return a median and its interval as text."""
    return f"{row[name]:.3g} ({row[f'{name}_low']:.3g}, {row[f'{name}_high']:.3g})"


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
