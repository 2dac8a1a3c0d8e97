"""Tables of papers with published and measured rows."""

from __future__ import annotations

import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import options
import problems
import report
import typer
from turns import in_turn, timed

import gbdnn
from gbdnn.challenge.scipy_check import left_to_rounding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gbdnn.challenge import Problem

SIZES = [(n, layers) for n in (1024, 4096, 16384, 65536) for layers in (120, 480, 1920)]

_QUICK_LAYERS, _QUICK_INPUTS = 8, 240


def tables() -> dict[str, list[dict[str, Any]]]:
    """Return the published figures by table."""
    text = (Path(__file__).parents[1] / "published.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def named(asked: Iterable[str] | None, default: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the requested networks of the challenge, sorted by number of edges."""
    known = {f"{n}x{layers}": (n, layers) for n, layers in SIZES}
    usual = [f"{n}x{layers}" for n, layers in default]
    chosen = [known[name] for name in options.words(asked, usual, known)]
    return sorted(chosen, key=lambda each: each[0] * each[1])


@dataclass
class Study:
    """A table of a paper with published and measured rows, and its options.

    Attributes
    ----------
    networks, inputs, data, images, nthreads, quick, json_file
        The options.
    title : str
        The paper and its table.
    rows : list of dict
        The rows, which may have different columns.
    more : dict
        Other entries of the JSON.
    is_shown : bool
        Whether `run` prints the table and writes the JSON.
    """

    networks: Annotated[
        list[str] | None,
        typer.Option("--network", metavar="NxL", help="Neurons x layers; by comma or repetition."),
    ] = None
    inputs: options.Inputs = None
    data: options.Data = None
    images: options.Images = None
    nthreads: options.Several = None
    quick: options.Quick = False
    json_file: options.Json = None
    title: str = field(default="", init=False)
    rows: list[dict[str, Any]] = field(default_factory=list, init=False)
    more: dict[str, Any] = field(default_factory=dict, init=False)
    is_shown: bool = field(default=True, init=False)

    def counts(self, *default: int) -> list[int]:
        """Return the numbers of threads; default: that of the cores."""
        return options.numbers(self.nthreads, default or [cores()])

    def problem(self, neurons: int, layers: int, *, checks: bool = True) -> Problem:
        """Return the problem, with official weights if in `data`, and compute its categories."""
        data, inputs = problems.known_weights(self.data, neurons, layers), self.inputs
        if self.quick:
            layers, inputs = min(layers, _QUICK_LAYERS), inputs or _QUICK_INPUTS
        found = problems.Choice(neurons, layers, inputs, data, self.images).build()
        if checks:
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
            if each["source"] in keys and has in each["name"] and seconds is not None:
                self._published(neurons, layers, each, each["machine"], seconds)

    def scaling(self, neurons: int, layers: int) -> None:
        """Add the published times of a network on several nodes."""
        for each in tables()["scaling"]:
            seconds = each["seconds"][str(neurons)][str(layers)]
            for nodes, taken in zip(each["nodes"], seconds, strict=True):
                self._published(neurons, layers, each, f"{nodes} {each['machine']}", taken)

    def _published(
        self, neurons: int, layers: int, table: dict[str, Any], machine: str, seconds: float
    ) -> None:
        self.rows.append(
            {
                "network": f"{neurons} x {layers}",
                "program": table["name"],
                "on": machine,
                "seconds": seconds,
                "edges/s": 60_000 * 32 * neurons * layers / seconds,
                "answer": table["where"],
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
    ) -> None:
        """Time interleaved programs, check their results, and add a row with medians for each."""

        def checked(answer: Any) -> dict[str, Any]:
            return {"right": self.right(answer)}

        calls = {name: timed(call, checked) for name, call in programs.items()}
        found = in_turn(calls, 1 if self.quick else rounds)
        for name in programs:
            every = found.first[name] + found.runs[name]
            right = all(run["right"] for run in every)
            self.measured(problem, name, nthreads, found.median(name), right, **more)

    def end(self, **more: Any) -> None:
        """Print the table, write the JSON, and exit with status 1 if a result is wrong."""
        found = {"title": self.title, "quick": self.quick, **report.circumstances()}
        found |= self.more | more
        on, modules = found["machine"], sys.modules
        used = [name for name in ("scipy", "torch") if name in modules]
        found["versions"] |= {name: modules[name].__version__ for name in used}
        print(f"\n{self.title}")
        print(f"here: {on['processor']}, {on['cores']} cores, {on['memory_gib']} GiB")
        print(", ".join(f"{name} {version}" for name, version in found["versions"].items()))
        report.table(self.rows)
        if self.quick:
            print("\n--quick: the problems are tiny; do not use these times")
        report.write(self.json_file, found | {"rows": self.rows})
        if any(row.get("answer") == "WRONG" for row in self.rows):
            raise SystemExit("an answer is wrong")


def run(
    measure: Callable[..., None], title: str, networks: Sequence[tuple[int, int]] = ((1024, 120),)
) -> None:
    """Call a function of study, neurons, layers and own options for each network of a command."""

    def main(study: Study, **own: Any) -> None:
        study.title = title
        usual = [(1024, 120)] if study.quick else networks
        for neurons, layers in named(study.networks, usual):
            measure(study, neurons, layers, **own)
        if study.is_shown:
            study.end()

    options.run(main, measure, "neurons", "layers")


def cores() -> int:
    """Return the number of cores."""
    return int(report.circumstances()["machine"]["cores"] or 1)
