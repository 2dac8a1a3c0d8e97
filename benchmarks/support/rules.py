"""What gbdnn's rules choose in the cases that ``limits/choices.py`` times, for any machine.

``CHOICES`` maps the name of a rule to a function of a case, which returns an option: a number, or a
word. Of numbers, the option measured nearest on a log scale stands for it. Nothing is timed here.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

import numpy as np

from gbdnn import LayerInfo, Network
from gbdnn.engine.plan import MEMORY, Facts, Plan, choose
from gbdnn.engine.sizes import NetworkFacts
from gbdnn.kernels import costs
from gbdnn.runtime import machine as machine_module

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["CHOICES", "Score", "read", "scores"]

PROCESSORS = Path(__file__).parents[1] / "limits" / "processors"

Case = dict[str, Any]


def read(file: Path) -> dict[str, Any]:
    """Return a recorded processor."""
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


class Score(NamedTuple):
    """A case, the option that the rule chooses, and its speed relative to the best sure option."""

    rule: str
    case: Case
    option: str
    relative: float


def scores(record: dict[str, Any]) -> Iterator[Score]:
    """Yield what the rules choose on a recorded processor."""
    known = machine_module.Machine(
        record["vectors"], tuple(record["caches"]), record["cores"], record["vectors"]
    )
    with patch.object(machine_module, "_current", known):
        for case in record["cases"]:
            speeds = case["options"]
            option = _nearest(speeds, CHOICES[case["rule"]](case))
            sure = speeds.keys() - set(case.get("unsure", ())) | {option}
            best = max(speeds[name] for name in sure)
            yield Score(case["rule"], case, option, speeds[option] / best)


def _nearest(options: dict[str, float], chosen: float | str) -> str:
    if isinstance(chosen, str):
        return chosen
    return min(options, key=lambda each: abs(math.log(float(each) / chosen)))


def _sizes(case: Case) -> tuple[int, int, int]:
    neurons = case["neurons"]
    return round(case["density"] * neurons**2), neurons, neurons


def _plan(case: Case, **facts: Any) -> Plan:
    edges, *shape = _sizes(case)
    info = LayerInfo((shape[0], shape[1]), edges, 1.0, np.dtype(np.float32))
    net = Network.lazy([info] * case.get("layers", 1), lambda _: None)  # type: ignore[arg-type, return-value]
    known = {
        "net": NetworkFacts.of(net)._replace(in_memory=True), "inputs": case["inputs"],
        "entries": case["inputs"] * shape[0], "is_dense": True, "engine": "auto",
        "memory": MEMORY, "deduplicate": False, "threads": case.get("threads", 1),
        "is_watched": False, "is_compiled": True,
    }  # fmt: skip
    return choose(Facts(**known | facts))


def _panels(case: Case) -> float:
    return costs.panel_rows(*_sizes(case))


def _training(case: Case) -> float:
    return costs.training_panel_rows(*_sizes(case))


def _dense(case: Case) -> str:
    return "dense" if costs.dense_layer_pays(*_sizes(case)) else "sparse"


def _single(case: Case) -> str:
    (edges, *shape), count = _sizes(case), case["layers"]
    least = int(costs.single_density([(edges, *shape)] * count, 4) * math.prod(shape))
    return "dense" if edges >= least else "sparse"


def _width(case: Case) -> float:
    return _plan(case).sizes.width


def _regrouped(case: Case) -> float:
    return _plan(case, is_dense=False, is_watched=True).sizes.width


def _kernel(case: Case) -> str:
    entries = case["inputs"] * case["neurons"] * case["filled"]
    plan = _plan(case, is_dense=False, is_watched=True, entries=entries)
    return plan.groups[0].kernel


def _threads(case: Case) -> float:
    made = _plan(case, threads=2).sizes
    return max(made.workers, made.threads_each)  # which share blocks, or neurons


def _sharing(case: Case) -> float:
    layer, inputs = _sizes(case), case.get("inputs", 1)
    narrow = layer[0] * costs.EDGE + costs.fused_layer(inputs, *layer, 4)
    return costs.sharing_threads(costs.single_layer(*layer) if inputs == 1 else narrow, 1)


def _reorders(case: Case) -> str:
    return "yes" if costs.reordering_pays(case["inputs"]) else "no"


CHOICES = {
    "rows per panel": _panels,
    "rows per panel in training": _training,
    "dense layer": _dense,
    "dense layer, one input": _single,
    "inputs per block": _width,
    "inputs per block, regrouped": _regrouped,
    "kernel": _kernel,
    "reordering": _reorders,
    "second thread": _threads,
    "sharing neurons": _sharing,
}
