"""Files of results, from the JSON that benchmarks write; `tables.py` and figures read them.

    python docs/measured.py KIND FILE.json ... > docs/KIND.toml

KIND is one of `KINDS`; `measure.py` runs the benchmark, and writes the file.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median
from typing import Any


def _real_networks(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "network": "features alone: " * cell["features_alone"] + cell["network"],
            "threads": cell["nthreads"],
            "inputs": cell["inputs"],
            "cold": cell["cold"],
            "density": round(cell["density"], 4),
            "ms": _ms({n: s for n, s in cell["median"].items() if n not in cell["wrong"]}),
            "right": {name: round(share, 5) for name, share in cell["right"].items() if share},
            "wrong": cell["wrong"],
        }
        for cell in _passed(found)
    ]


def _after_torch(found: dict[str, Any]) -> list[dict[str, Any]]:
    passive = found["environment"].get("OMP_WAIT_POLICY") == "passive"
    return [
        {key: cell[key] for key in ("network", "inputs")}
        | {"setting": "passive" if passive else f"{cell['torch']} threads"}
        | {"ms": _ms(cell["median"])}
        for cell in _passed(found)
    ]


def _accelerate(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "model": cell["name"],
            "zeros": cell["zeros"],
            "inputs": cell["tokens"],
            "ms": _ms(cell["median"]),
        }
        for cell in found["cells"]
    ]


def _graph(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {key: cell[key] for key in ("what", "graph", "nodes", "edges")}
        | {"threads": cell["nthreads"], "rounds": found["rounds"]}
        | {"s": {name: _digits(s, 3) for name, s in cell["seconds"].items()}}
        | {"gib": {name: round(gib, 1) for name, gib in cell["GiB"].items()}}
        for cell in found["cells"]
    ]


def _steps(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {key: cell[key] for key in ("network", "edges")}
        | {"inputs": cell["inputs"], "threads": cell["nthreads"], "ms": _ms(cell["median"])}
        for cell in _passed(found)
    ]


def _accuracy(found: dict[str, Any]) -> list[dict[str, Any]]:
    kept = ("density", "edges", "rule", "accuracy", "least", "most", "seconds")
    return [{key: cell[key] for key in kept} for cell in found["summary"]]


def _structure(found: dict[str, Any]) -> list[dict[str, Any]]:
    kept = ("strength", "seed", "gone", "error_learned", "error")
    return [
        {key: row[key] for key in kept} | {"network": "-".join(map(str, row["sizes"]))}
        for row in found["rows"]
    ]


def _estimators(found: dict[str, Any]) -> list[dict[str, Any]]:
    return list(found["rows"])


def _wide(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            **{key: cell[key] for key in ("network", "edges", "threads")},
            "published": cell["published"] or 0,
            "seconds": _digits(cell["seconds"], 3),
            "mib": round(cell["peak"] / 2**20),
        }
        for cell in found["wide"]
    ]


def _challenge(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a cell for each run of `twelve.py`."""
    cells = []
    for run in found["cases"]:
        n, streamed = len(run["seconds"]), ", streamed" * run["streamed"]
        # With rounds, the network ran once before.
        of = f"median of {n}" if n > 1 else "second run" if run["rounds"] else "first run"
        cells.append(
            {
                **{key: run["problem"][key] for key in ("neurons", "layers", "inputs")},
                "weights": "official" if run["problem"]["seed"] is None else "generated",
                "seconds": round(median(run["seconds"]), 3),
                "of": of + streamed,
                "gib": round(run["memory_peak"] / 2**30, 2),
                "deduplicate": run["deduplicate"],
            }
        )
    return cells


def _beside(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a cell for each program of `side_by_side.py`."""
    programs: dict[str, dict[str, Any]] = {}
    for row in found["summary"]:
        name, key = row["program"], {1: "one", 2: "two"}[row["nthreads"]]
        seconds = [
            run["seconds"]
            for run in found["runs"]
            if (run["program"], run["nthreads"]) == (name, row["nthreads"]) and run["round"] > 0
        ]
        sizes = {key: found["problem"][key] for key in ("neurons", "layers", "inputs")}
        program = programs.setdefault(name, {"program": TITLES.get(name, row["title"]), **sizes})
        program[key] = _digits(row["seconds_median"], 3)
        program[f"{key}_range"] = [_digits(min(seconds), 3), _digits(max(seconds), 3)]
    return list(programs.values())


def _floor(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"threads": row["nthreads"], "ratio": _digits(row["ratio"], 3)} for row in found["summary"]
    ]


def _predicted(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        cell | {"times": {n: _digits(times, 3) for n, times in cell["times"].items()}}
        for cell in found["cells"]
    ]


KINDS = {
    "real-networks": _real_networks,
    "single-layers": _real_networks,
    "after-torch": _after_torch,
    "accelerate": _accelerate,
    "graph": _graph,
    "graph-16-cores": _graph,
    "spmm": _graph,
    "training-steps": _steps,
    "sparse-linear": _steps,
    "training-accuracy": _accuracy,
    "training-structure": _structure,
    "training-estimators": _estimators,
    "training-wide": _wide,
    "challenge": _challenge,
    "side-by-side": _beside,
    "larger": _beside,
    "floor": _floor,
    "predicted": _predicted,
}
# Programs of `side_by_side.py`; those of gbdnn are calls.
TITLES = {
    "gbdnn": "`gbdnn.infer(net, X)`, equal inputs once",
    "gbdnn-distinct": "`gbdnn.infer(net, X, deduplicate=False)`",
    "gbdnn-fused": '`gbdnn.infer(net, X, engine="fused", deduplicate=False)`',
    "gbdnn-graphblas": '`gbdnn.infer(net, X, engine="graphblas", deduplicate=False)`',
    "gbdnn-full": '`gbdnn.infer(net, X, engine="full", deduplicate=False)`',
    "gbdnn-sparse": '`gbdnn.infer(net, X, engine="sparse", deduplicate=False)`',
    "torch+drop": "PyTorch: `W.T @ Y.T` per layer, W in CSR, dead inputs dropped",
    "mkl-dense+drop": "MKL: `dot_product_mkl(W.T, Y.T)` per layer, dead inputs dropped",
    "scipy-dense+drop": "SciPy: `W.T @ Y.T` per layer, W in CSR, dead inputs dropped",
    "lagraph": "LAGraph's calls from Python",
}
# Virtual machines hide the names of processors, but not their numbers.
_GENERATIONS = {
    "family 25, model 1": "Zen 3",
    "family 25, model 17": "Zen 4",
    "family 26, model 2": "Zen 5",
}
_VERSIONS = "gbdnn python SuiteSparse:GraphBLAS numpy scipy torch torch_geometric onnxruntime"
_VERSIONS += " openvino mkl sparselab sparseprop deepsparse"


def toml(kind: str, reports: list[dict[str, Any]]) -> str:
    """Return the file of a kind, from reports that were measured on one machine."""
    first, *_ = reports
    versions = first["versions"]
    facts = {
        "processor": processor(first["machine"]),
        "versions": ", ".join(f"{n} {versions[n]}" for n in _VERSIONS.split() if versions.get(n)),
        "date": first["date"],
        "commit": ", ".join(dict.fromkeys(report["commit"] for report in reports)),
        "load": max(report["load"] for report in reports),
        "command": first["command"],
    }
    cells = [_value(cell) for report in reports for cell in KINDS[kind](report)]
    head = f"# Printed by: python docs/measured.py {kind} FILE.json ...\n"
    head += "".join(f"{key} = {_value(value)}\n" for key, value in facts.items())
    return head + "cells = [\n" + "".join(f"  {cell},\n" for cell in cells) + "]\n"


def processor(on: dict[str, Any]) -> str:
    """Return the processor's name, generation, vector instructions and number of cores."""
    model = on.get("model", "generation not recorded")
    about = [_GENERATIONS.get(model, model), *filter(None, [on.get("instructions")])]
    return f"{on['processor']} ({'; '.join(about)}), {on['cores']} cores"


def run_row(found: dict[str, Any]) -> list[str]:
    """Return a run as a row that `twelve.py` prints."""
    problem, seconds = found["problem"], found["seconds"]
    return [
        f"{problem['neurons']} x {problem['layers']}",
        "equal once" if found["deduplicate"] else "every",
        f"{median(seconds):.3f} ({min(seconds):.3f} to {max(seconds):.3f})",
        f"{found['edges_per_second']:.3g}",
        f"{found['memory_peak'] / 2**30:.2f}",
        str(found["categories"]),
    ]


def _passed(found: dict[str, Any]) -> list[dict[str, Any]]:
    for cell in found["cells"]:
        if cell["check"] != "PASSED":
            raise ValueError(f"{cell['network']}: {cell['check']}")
    return found["cells"]


def _digits(number: float, n: int) -> float:
    return float(f"{number:.{n}g}")


def _ms(seconds: dict[str, float]) -> dict[str, float]:
    return {name: _digits(1e3 * s, 4) for name, s in seconds.items()}


def _value(x: Any) -> str:
    """Return a value in TOML; a dict as an inline table."""
    if isinstance(x, dict):
        return "{ " + ", ".join(f"{key} = {_value(each)}" for key, each in x.items()) + " }"
    return str(round(x, 4)) if isinstance(x, float) else json.dumps(x, ensure_ascii=False)


if __name__ == "__main__":
    kind, *files = sys.argv[1:]
    reports = [json.loads(Path(name).read_text(encoding="utf-8")) for name in files]
    print(toml(kind, reports), end="")
