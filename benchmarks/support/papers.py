"""Tables of papers with published and measured rows."""

from __future__ import annotations

import sys
import tomllib
from dataclasses import dataclass, field
from importlib.resources import files
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import problems
import report
import typer
from turns import in_turn, timed

import gbdnn
from gbdnn.challenge.scipy_check import left_to_rounding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from gbdnn.challenge import Problem

Networks = Annotated[
    list[str] | None,
    typer.Option("--network", metavar="NxL", help="Neurons x layers; by comma or repetition."),
]
Quick = Annotated[bool, typer.Option("--quick", help="Run tiny problems as a test of the script.")]
Device = Annotated[
    Literal["cpu", "cuda"] | None,
    typer.Option(help="Run the paper's method on the GPU, or the same code on the CPU."),
]

SIZES = [(n, layers) for n in (1024, 4096, 16384, 65536) for layers in (120, 480, 1920)]

_QUICK_LAYERS, _QUICK_INPUTS = 8, 240


def tables() -> dict[str, list[dict[str, Any]]]:
    """Return the published figures by table, each entry with its source."""
    text = files("gbdnn.challenge").joinpath("published.toml").read_text(encoding="utf-8")
    found: dict[str, Any] = tomllib.loads(text)
    sources = found.pop("sources")
    return {
        name: [each | {"source": sources[each["source"]], "key": each["source"]} for each in table]
        for name, table in found.items()
    }


@dataclass
class Study:
    """A table of a paper with published and measured rows.

    Attributes
    ----------
    title : str
        The paper and its table.
    quick : bool
        Whether networks have few layers and inputs.
    json_file : Path, optional
        File that `end` writes.
    inputs, data, images
        As for `problems.build`.
    nthreads : list of str, optional
        The requested numbers of threads.
    rows : list of dict
        The rows, which may have different columns.
    more : dict
        Other entries of the JSON.
    is_shown : bool
        Whether `run` prints the table and writes the JSON.
    """

    title: str
    quick: bool = False
    json_file: Path | None = None
    inputs: int | None = None
    data: Path | None = None
    images: Path | None = None
    nthreads: list[str] | None = None
    rows: list[dict[str, Any]] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)
    is_shown: bool = True

    def counts(self, *default: int) -> list[int]:
        """Return the numbers of threads; default: that of the cores."""
        return problems.thread_counts(self.nthreads, [*default] or [cores()])

    def networks(
        self, asked: list[str] | None, default: Sequence[tuple[int, int]]
    ) -> list[tuple[int, int]]:
        """Return the requested networks, sorted by number of edges; 1024 x 120 if quick."""
        known = {f"{n}x{layers}": (n, layers) for n, layers in SIZES}
        usual = [f"{n}x{layers}" for n, layers in ([(1024, 120)] if self.quick else default)]
        chosen = [known[name] for name in problems.names(asked, usual, known)]
        return sorted(chosen, key=lambda each: each[0] * each[1])

    def problem(self, neurons: int, layers: int, *, checks: bool = True) -> Problem:
        """Return the problem, with official weights if in `data`, and compute its categories."""
        data = self.data
        if data is not None and not any(data.rglob(f"n{neurons}-l{layers}.tsv*")):
            data = None
        if self.quick:
            layers, inputs = min(layers, _QUICK_LAYERS), self.inputs or _QUICK_INPUTS
        else:
            inputs = self.inputs
        found = problems.build(neurons, layers, inputs, data, self.images)
        if not checks:
            return found
        print(f"{found.name}: computing the reference categories ...", flush=True)
        self._problem, self._truth = found, problems.true_categories(found)[0]
        return found

    def right(self, answer: Any) -> bool:
        """Return whether a result, or its categories, match the last problem.

        Categories may differ for inputs whose result depends on rounding.
        """
        found = answer if isinstance(answer, np.ndarray) else gbdnn.categories(answer)
        differing = np.setxor1d(found, self._truth)
        if len(differing) > max(10, self._problem.inputs // 100):
            return False
        X = self._problem.features[differing, :].new()
        return not len(differing) or bool(left_to_rounding(self._problem.network, X).all())

    def published(self, neurons: int, layers: int, keys: Iterable[str], has: str = "") -> None:
        """Add published times of a network for programs with `has` in their name."""
        for each in tables()["systems"]:
            seconds = each["seconds"].get(str(neurons), {}).get(str(layers))
            if each["key"] in keys and has in each["name"] and seconds is not None:
                self._row(neurons, layers, each["name"], each["machine"], seconds, each["where"])

    def scaling(self, neurons: int, layers: int) -> None:
        """Add the published times of a network on several nodes."""
        for each in tables()["scaling"]:
            seconds = each["seconds"][str(neurons)][str(layers)]
            for nodes, taken in zip(each["nodes"], seconds, strict=True):
                machine = f"{nodes} {each['machine']}"
                self._row(neurons, layers, each["name"], machine, taken, each["where"])

    def _row(
        self, neurons: int, layers: int, name: str, machine: str, seconds: float, where: str
    ) -> None:
        rate = 60_000 * 32 * neurons * layers / seconds
        self.rows.append(
            {
                "network": f"{neurons} x {layers}",
                "program": name,
                "on": machine,
                "seconds": seconds,
                "edges/s": rate,
                "answer": where,
            }
        )

    def measured(
        self,
        problem: Problem,
        program: str,
        nthreads: int,
        seconds: float,
        right: bool,
        **more: Any,
    ) -> None:
        """Add a measured row; `more` are its own columns."""
        net = problem.network
        self.rows.append(
            {
                "network": f"{net.shape[0]} x {len(net)}",
                "program": program,
                "on": f"here, {nthreads} threads" if nthreads > 1 else "here, 1 thread",
                "inputs": problem.inputs,
                "seconds": seconds,
                "edges/s": problem.inputs * net.edges / seconds,
                "answer": "right" if right else "WRONG",
                **more,
            }
        )

    def compare(
        self,
        problem: Problem,
        programs: Mapping[str, Callable[[], Any]],
        nthreads: int,
        rounds: int = 3,
        **more: Any,
    ) -> dict[str, float]:
        """Time interleaved programs, check their results, and add a row with medians for each."""

        def checked(answer: Any) -> dict[str, Any]:
            return {"right": self.right(answer)}

        calls = {name: timed(call, checked) for name, call in programs.items()}
        found = in_turn(calls, 1 if self.quick else rounds)
        for name in programs:
            every = found.first[name] + found.runs[name]
            right = all(run["right"] for run in every)
            self.measured(problem, name, nthreads, found.median(name), right, **more)
        return {name: found.median(name) for name in programs}

    def keep_best(self, first: int) -> None:
        """Keep each program's fastest row, starting at row `first`, and all wrong ones."""
        best: dict[str, float] = {}
        for row in self.rows[first:]:
            name = row["program"]
            best[name] = min(best.get(name, row["seconds"]), row["seconds"])
        self.rows[first:] = [
            row
            for row in self.rows[first:]
            if row["seconds"] == best[row["program"]] or row["answer"] == "WRONG"
        ]

    def end(self, **more: Any) -> None:
        """Print the table, write the JSON, and exit with status 1 if a result is wrong."""
        found = {"title": self.title, "quick": self.quick, **report.circumstances()}
        found |= self.more | more
        on, modules = found["machine"], sys.modules
        found["versions"] |= {
            name: modules[name].__version__
            for name in ("scipy", "cupy", "torch")
            if name in modules
        }
        print(f"\n{self.title}")
        print(f"here: {on['processor']}, {on['cores']} cores, {on['memory_gib']} GiB")
        print(", ".join(f"{name} {version}" for name, version in found["versions"].items()))
        head = list(dict.fromkeys(column for row in self.rows for column in row))
        report.table(head, [[cell(row.get(column)) for column in head] for row in self.rows])
        if self.quick:
            print("\n--quick: the problems are tiny; do not use these times")
        report.write(self.json_file, found | {"rows": self.rows})
        if any(row.get("answer") == "WRONG" for row in self.rows):
            raise SystemExit("an answer is wrong")


def run(
    measure: Callable[..., None],
    title: str,
    networks: Sequence[tuple[int, int]] = ((1024, 120),),
    **options: tuple[Any, Any],
) -> None:
    """Call a function of study, neurons, layers and options (annotation, default) as a command."""

    def main(**given: Any) -> None:
        study = Study(title, **{name: given.pop(name) for name in names if name != "networks"})
        for neurons, layers in study.networks(given.pop("networks"), networks):
            measure(study, neurons, layers, **given)
        if study.is_shown:
            study.end()

    names = {
        "networks": Networks, "inputs": problems.Inputs, "data": problems.Data,
        "images": problems.Images, "nthreads": problems.Threads, "quick": Quick,
        "json_file": problems.Json,
    }  # fmt: skip
    every = {name: (kind, False if name == "quick" else None) for name, kind in names.items()}
    every |= options
    main.__doc__, main.__annotations__ = (
        measure.__doc__,
        {k: kind for k, (kind, _) in every.items()},
    )
    main.__signature__ = Signature(  # type: ignore[attr-defined]
        [
            Parameter(k, Parameter.KEYWORD_ONLY, default=d, annotation=a)
            for k, (a, d) in every.items()
        ]
    )
    typer.run(main)


def cell(value: Any) -> str:
    """Return a cell's text: numbers with three digits, empty for missing values."""
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 or abs(value) >= 1e6 else f"{value:,.0f}"
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def on_device(device: str) -> str:
    """Return the words of a row of a program on a device."""
    gpu = report.circumstances()["machine"].get("gpu", "").partition(",")[0]
    return f"here, {gpu or 'CUDA' if device == 'cuda' else 'CPU'}"


def cores() -> int:
    """Return the number of cores."""
    return int(report.circumstances()["machine"]["cores"] or 1)
