"""Make the tables of dense features, pruned modules and graphs, and the files behind them.

python docs/dense_tables.py real-networks.json > docs/real-networks.toml
python docs/dense_tables.py docs/real-networks.toml   # prints the tables, in Markdown
python docs/dense_tables.py accelerate.json > docs/accelerate.toml
python docs/dense_tables.py graph.json graph-products.json > docs/graph.toml  # several runs
"""

from __future__ import annotations

import json
import sys
import tomllib
from datetime import date
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from tables import table

# Programs of `real_networks.py`, as the tables call them.
_PROGRAMS = {
    "infer": "`infer`",
    "compiled": "`compile`",
    "torch": "PyTorch dense",
    "torch_csr": "PyTorch CSR",
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
    "openvino_bf16": "OpenVINO in bfloat16",
    "deepsparse": "DeepSparse",
}
OWN = ("infer", "compiled")
BFLOAT16 = "openvino_bf16"  # no peer of programs in FP32
MANY = 10_000  # inputs: in the figure only

# Those of `accelerate.py`, in the order of the table's cells.
_MODULES = ("gbdnn", "pytorch", "onnxruntime")

# Those of `graph.py`.
_GRAPH_PROGRAMS = {
    "gbdnn": "gbdnn",
    "torch": "PyTorch",
    "pyg-csr": "PyG, CSR",
    "pyg": "PyG, `edge_index`",
    "scipy": "SciPy",
}


def make(source: Path, folder: Path) -> None:
    """Write the table into a folder, as Markdown to include."""
    found = tomllib.loads(source.read_text(encoding="utf-8"))
    (folder / "real-networks.md").write_text(real_networks(found), encoding="utf-8")


def make_accelerate(source: Path, folder: Path) -> None:
    """Write the table of pruned modules into a folder: ms of each program, the fastest in bold."""
    found = tomllib.loads(source.read_text(encoding="utf-8"))
    counts = list(dict.fromkeys(cell["inputs"] for cell in found["cells"]))
    rows: dict[tuple[str, float], list[str]] = {}
    for cell in found["cells"]:
        fastest = min(cell["ms"].values())
        texts = {
            ms: f"**{_short(ms)}**" if ms == fastest else _short(ms) for ms in cell["ms"].values()
        }
        key = (cell["model"], cell["zeros"])
        rows.setdefault(key, []).append(", ".join(texts[cell["ms"][each]] for each in _MODULES))
    head = ["model", "zeros", *(f"{n} input{'s'[: n > 1]}" for n in counts)]
    lines = [[model, f"{zeros:.0%}", *cells] for (model, zeros), cells in rows.items()]
    text = table(head, lines, right=tuple(range(1, len(head))))
    (folder / "accelerate.md").write_text(f"{text}\n{_circumstances(found)}", encoding="utf-8")


def make_graph(source: Path, folder: Path) -> None:
    """Write the table of graph convolutions into a folder, as Markdown to include."""
    found = tomllib.loads(source.read_text(encoding="utf-8"))
    head = ["layers", "nodes", "edges", "threads"]
    head += [f"{name}, s" for name in _GRAPH_PROGRAMS.values()]
    rows = []
    for cell in found["cells"]:
        taken = dict(cell["s"])
        row = [cell["what"].replace("gcn", "GCN").replace("sage", "GraphSAGE")]
        row += [f"{cell['nodes']:,}", f"{cell['edges']:,}", str(cell["threads"])]
        row += [_short(taken.get(name)) for name in _GRAPH_PROGRAMS]
        ours = taken.pop("gbdnn")
        rows.append([*row, _times(min(taken.values()) / ours)])
    text = table([*head, "times"], rows, right=tuple(range(1, len(head) + 1)))
    (folder / "graph.md").write_text(f"{text}\n{_circumstances(found)}", encoding="utf-8")


def real_networks(found: dict[str, Any]) -> str:
    """Return a table with a row per network and number of inputs, and how it was measured."""
    cells = found["cells"]
    shown = [cell for cell in cells if cell["inputs"] < MANY or "alone" in cell["network"]]
    threads = sorted({cell["threads"] for cell in cells})
    head = ["network", "inputs"]
    for n in threads:
        head += [f"{_threads(n)}: gbdnn, ms", "best other, ms", "times"]
    rows: dict[tuple[str, int], list[str]] = {}
    for cell in sorted(shown, key=lambda cell: cell["threads"]):
        ms = cell["ms"]
        ours = min(ms[name] for name in OWN)
        name, best = min(_others(ms).items(), key=lambda item: item[1])
        rows.setdefault((cell["network"], cell["inputs"]), []).extend(
            [_short(ours), f"{_short(best)} {_PROGRAMS[name]}", _times(best / ours)]
        )
    lines = [[network, f"{inputs:,}", *row] for (network, inputs), row in rows.items()]
    text = table(head, lines, right=tuple(range(1, len(head)))) + "\n"
    return text + _wrong(cells) + _right(cells) + _bfloat16(cells) + _circumstances(found)


def _bfloat16(cells: list[dict[str, Any]]) -> str:
    """Return how OpenVINO in bfloat16, which `best other` excludes, compares with gbdnn."""
    ratios = [
        cell["ms"][BFLOAT16] / min(cell["ms"][name] for name in OWN)
        for cell in cells
        if BFLOAT16 in cell["ms"]
    ]
    if not ratios:
        return "All programs compute in FP32. "
    return (
        "All times are in FP32. In bfloat16, its default on this processor, OpenVINO takes"
        f" {min(ratios):.2g} to {max(ratios):.2g} times gbdnn's time in FP32"
        f" (geometric mean {geometric_mean(ratios):.2g}).\n\n"
    )


def _threads(n: int) -> str:
    return f"{n} thread{'s'[: n > 1]}"


def _wrong(cells: list[dict[str, Any]]) -> str:
    """Return which programs gave wrong answers."""
    calls: dict[tuple[str, str], dict[int, None]] = {}
    for cell in cells:
        for name in cell["wrong"]:
            calls.setdefault((name, cell["network"]), {})[cell["inputs"]] = None
    return "".join(
        f"{_PROGRAMS[name]}'s answers for {network}, {' and '.join(map(str, inputs))} inputs,"
        " differ from FP64 by more than rounding; its times there are left out.\n\n"
        for (name, network), inputs in calls.items()
    )


def _circumstances(found: dict[str, Any]) -> str:
    return f"{found['machine']}. {found['versions']}. {found['date']}, `{found['command']}`\n"


def _right(cells: list[dict[str, Any]]) -> str:
    """Return which share of the images the trained network gets right."""
    known = [cell for cell in cells if cell["right"]]
    if not known:
        return ""
    last = max(known, key=lambda cell: cell["inputs"])
    shares: dict[str, list[str]] = {}
    for name, share in last["right"].items():
        shares.setdefault(f"{share:.2%}", []).append(_PROGRAMS[name])
    same = len(shares) == 1
    told = "; ".join(
        f"{share} ({'every program' if same else ', '.join(names)})"
        for share, names in shares.items()
    )
    return (
        "The trained network learnt from 2,000 of MNIST's 10,000 test images. Accuracy on the"
        f" other 8,000: {told}.\n\n"
    )


def _short(ms: float | None) -> str:
    return "-" if ms is None else f"{ms:.0f}" if ms >= 100 else f"{ms:.3g}"


def _others(ms: dict[str, float]) -> dict[str, float]:
    return {name: taken for name, taken in ms.items() if name not in (*OWN, BFLOAT16)}


def _times(times: float) -> str:
    """Return a ratio, in bold where gbdnn is faster."""
    return f"**{times:.1f}**" if times > 1 else f"{times:.2f}"


def toml_of(found: dict[str, Any]) -> str:
    """Return ``real-networks.toml`` for the JSON of `real_networks.py`."""
    counts = " ".join(
        f"--nthreads {n}" for n in dict.fromkeys(c["nthreads"] for c in found["cells"])
    )
    head = _HEAD.format("when to use gbdnn", "real-networks", "real_networks")
    head += "# `ms`: medians; `right`: share of images, of the trained network; `wrong`: "
    head += "no right answer.\n"
    cells = [_cell(cell) for cell in found["cells"]]
    command = f"real_networks.py {counts} --rounds {found['rounds']} --mnist DIR"
    command += " --python deepsparse=VENV/bin/python"
    return head + _facts(found, command) + _listed(cells)


def accelerate_toml_of(found: dict[str, Any]) -> str:
    """Return ``accelerate.toml`` for the JSON of `accelerate.py`."""
    head = _HEAD.format("accelerate", "accelerate", "accelerate")
    head += "# `ms`: medians; `p99`: of all calls.\n"
    cells = [
        f"  {{ model = {json.dumps(cell['name'])}, zeros = {cell['zeros']},"
        f" inputs = {cell['tokens']}, ms = {_milliseconds(cell['median'])},"
        f" p99 = {_milliseconds(cell['p99'])} }},"
        for cell in found["cells"]
    ]
    command = f"accelerate.py --nthreads {found['nthreads']}"
    return head + _facts(found, command) + _listed(cells)


def graph_toml_of(runs: list[dict[str, Any]]) -> str:
    """Return ``graph.toml`` for the JSON files of `graph.py`, all from one machine."""
    head = _HEAD.format("infer on a graph", "graph", "graph")
    head += "# `s`: medians, seconds; `gib`: peak memory of the process.\n"
    cells = [
        f"  {{ what = {json.dumps(cell['what'])}, graph = {json.dumps(cell['graph'])},"
        f" nodes = {cell['nodes']}, edges = {cell['edges']}, threads = {cell['nthreads']},"
        f" rounds = {run['rounds']},"
        f" s = {_inner({name: float(f'{s:.3g}') for name, s in cell['seconds'].items()})},"
        f" gib = {_inner({name: round(gib, 1) for name, gib in cell['GiB'].items()})} }},"
        for run in runs
        for cell in run["cells"]
    ]
    names = dict.fromkeys(cell["graph"] for run in runs for cell in run["cells"])
    chosen = " ".join(f"--graph {name}" for name in names)
    command = f"graph.py --what gcn,sage --nthreads 1,2 {chosen}"
    return head + _facts(runs[0], command) + _listed(cells)


def _facts(found: dict[str, Any], command: str) -> str:
    on = found["machine"]
    programs = (
        "python", "SuiteSparse:GraphBLAS", "numpy", "scipy", "numba", "torch", "torch_geometric",
        "onnxruntime", "openvino", "deepsparse",
    )  # fmt: skip
    versions = {name: found["versions"].get(name) for name in programs}
    about = f" ({on['model']}; {on['instructions']})" if "model" in on else ""
    facts = {
        "machine": f"{on['processor']}{about}, {on['cores']} cores, {on['system']}",
        "versions": ", ".join(f"{name} {is_}" for name, is_ in versions.items() if is_),
        "date": date.today().isoformat(),
        "command": f"python benchmarks/comparison/{command}",
    }
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in facts.items())


def _listed(cells: list[str]) -> str:
    return "\n".join(["cells = [", *cells, "]", ""])


def _milliseconds(seconds: dict[str, float]) -> str:
    return _inner({name: float(f"{1e3 * s:.4g}") for name, s in seconds.items()})


def _inner(values: dict[str, float]) -> str:
    return "{ " + ", ".join(f"{name} = {value}" for name, value in values.items()) + " }"


_HEAD = """\
# What the page "{0}" shows. This file is printed by
#
#     python docs/dense_tables.py {1}.json
#
# from what benchmarks/comparison/{2}.py writes.
"""


def _cell(cell: dict[str, Any]) -> str:
    if cell["check"] != "PASSED":
        raise ValueError(f"{cell['network']}, {cell['inputs']} inputs: {cell['check']}")
    alone = "features alone: " if cell["features_alone"] else ""
    right = {name: round(share, 5) for name, share in cell["right"].items() if share}
    taken = {name: seconds for name, seconds in cell["median"].items() if name not in cell["wrong"]}
    return (
        f"  {{ network = {json.dumps(alone + cell['network'])}, threads = {cell['nthreads']},"
        f" inputs = {cell['inputs']}, density = {cell['density']:.4f},"
        f" ms = {_milliseconds(taken)}, right = {_inner(right)},"
        f" wrong = {json.dumps(cell['wrong'])} }},"
    )


if __name__ == "__main__":
    files = sys.argv[1:]
    runs = [json.loads(Path(name).read_text()) for name in files if name.endswith(".json")]
    if runs and "what" in runs[0]["cells"][0]:
        files = []
        print(graph_toml_of(runs), end="")
    for name in files:
        given = Path(name).read_text(encoding="utf-8")
        if name.endswith(".toml"):
            print(real_networks(tomllib.loads(given)))
        else:
            found = json.loads(given)
            is_accelerate = "zeros" in found["cells"][0]
            print((accelerate_toml_of if is_accelerate else toml_of)(found), end="")
