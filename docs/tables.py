"""The tables of results in the pages, in Markdown, so that code hosts show them, too.

    python docs/tables.py          # writes the tables of all pages anew

A page has a table between ``<!-- table: NAME -->`` and ``<!-- end -->``. A test compares it with
the files of results, which `measured.py` makes from the benchmarks' JSON.
"""

from __future__ import annotations

import json
import re
import tomllib
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measured import processor
from published import FOUND, PUBLISHED
from result_figures import SHOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

HERE = Path(__file__).parent
NEURONS, LAYERS = (1024, 4096, 16384, 65536), (120, 480, 1920)
BFLOAT16 = "openvino_bf16"  # not compared with programs in FP32
_LEAST = 3  # rounds from which the lowest and the highest speed-up are shown
_TABLE = re.compile(r"<!-- table: (\S+) -->\n.*?<!-- end -->\n", re.DOTALL)
_UNSHOWN = {"gbdnn", "python", "SuiteSparse:GraphBLAS", "numpy", "numba"}  # in the files of results
_NAMES = {
    "gbdnn": "gbdnn",
    "torch": "PyTorch",
    "torch_dense": "PyTorch dense",
    "torch_mask": "PyTorch dense + mask",
    "torch_csr": "PyTorch CSR",
    "torch_autograd": "PyTorch CSR",
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
    "deepsparse": "DeepSparse",
    "libxsmm": "LIBXSMM",
    "fsspmdm": "LIBXSMM fsspmdm",
    "mkl": "MKL, tiles",
    "register_tiling": "Sparse Register Tiling",
    "pyg-csr": "PyG, CSR",
    "pyg": "PyG, `edge_index`",
    "scipy": "SciPy",
    "torch-mkl": "MKL",
    "graphblas": "python-graphblas",
    "sparse_sequential": "`SparseSequential`",
    "sparselab": "sparselab",
    "sparseprop": "SparseProp",
}


def made() -> dict[str, str]:
    """Return the tables by name."""
    found = reports()
    policies = found.pop("wait-policy")
    threads = list(found.values())
    measured = {
        "real-networks": _real_networks,
        "single-layers": _single_layers,
        "after-torch": _after_torch,
        "accelerate": _accelerate,
        "graph": _graph,
        "graph-16-cores": _graph,
        "spmm": _spmm,
        "training-steps": _steps,
        "sparse-linear": _layers,
        "training-accuracy": _accuracy,
        "training-structure": _structure,
        "training-estimators": _estimators,
        "training-wide": _wide,
        "challenge": _runs,
        "side-by-side": _beside,
        "larger": _larger,
        "predicted": _predicted,
    }
    beside = read("side-by-side")
    return {
        "beside-readme": _beside(_three(beside["cells"])) + line(beside),
        "beside-measured": line(beside),
        "published": _published(),
        "published-sources": _numbered(_sources().values()),
        "scaling": _scaling(threads),
        "scaling-published": _published_threads(),
        "slower": _slower(read("real-networks")),
        "wait-policy": _policies(policies) + line(policies),
        **{name: _with_facts(name, rows) for name, rows in measured.items()},
    }


def read(name: str) -> dict[str, Any]:
    """Return a file of results."""
    return tomllib.loads((HERE / f"{name}.toml").read_text(encoding="utf-8"))


def reports() -> dict[str, dict[str, Any]]:
    """Return the JSON of benchmarks, each with its processor as files of results have it."""
    texts = {file.stem: file.read_text() for file in sorted(HERE.glob("scaling/*.json"))}
    found = {name: json.loads(text) for name, text in texts.items()}
    return {name: each | {"processor": processor(each["machine"])} for name, each in found.items()}


def pages() -> dict[Path, str]:
    """Return the pages that have tables."""
    paths = [HERE.parent / "README.md", *sorted(HERE.glob("*.md")), *sorted(HERE.glob("*/*.md"))]
    found = {file: file.read_text(encoding="utf-8") for file in paths}
    return {file: text for file, text in found.items() if _TABLE.search(text)}


def filled(page: str, found: dict[str, str]) -> str:
    """Return a page with its tables as they are made now."""
    return _TABLE.sub(
        lambda name: f"<!-- table: {name[1]} -->\n\n{found[name[1]].strip()}\n\n<!-- end -->\n",
        page,
    )


def table(head: list[str], rows: Iterable[list[str]], *, left: int = 1) -> str:
    """Return a table in Markdown; columns after the first `left` are aligned to the right."""
    rule = ["---" if at < left else "---:" for at in range(len(head))]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in (head, rule, *rows))


def short(number: float | None) -> str:
    """Return a number with three digits, or all digits before the point."""
    if number is None:
        return "-"
    return f"{number:,.0f}" if number >= 99.95 else f"{number:#.3g}".rstrip(".")


def _rate(rate: float) -> str:
    return f"{rate:#.3g}".replace("e+", "e")


def _times(ratio: float) -> str:
    return f"**{ratio:.1f}**" if ratio > 1 else f"{ratio:.2f}"  # bold where gbdnn is faster


def _with_facts(name: str, rows: Callable[[list[dict[str, Any]]], str]) -> str:
    found = read(name)
    versions = [of for of in found["versions"].split(", ") if of.split()[0] not in _UNSHOWN]
    more = f" {', '.join(versions)}." if versions else ""
    return rows(found["cells"]) + line(found).rstrip() + more + "\n"


def line(facts: dict[str, Any]) -> str:
    """Return the line below a table: processor, date, commit, and the load of before if known."""
    load = "" if facts["load"] == "unknown" else f", load {facts['load']}"
    return f"\n{facts['processor']}, {facts['date']}, commit {facts['commit']}{load}.\n"


def _grouped(cells: list[dict[str, Any]], *keys: str) -> dict[tuple[Any, ...], list[Any]]:
    """Return the cells by the values of these keys, in the order of threads."""
    found: dict[tuple[Any, ...], list[Any]] = {}
    for cell in sorted(cells, key=lambda cell: cell.get("threads", 0)):
        found.setdefault(tuple(cell[key] for key in keys), []).append(cell)
    in_order = dict.fromkeys(tuple(cell[key] for key in keys) for cell in cells)
    return {key: found[key] for key in in_order}


def ours_and_best(cell: dict[str, Any]) -> tuple[float, float, str]:
    """Return the faster time of `infer` and `compile`, the best other time, and its program."""
    ms = dict(cell["ms"])
    own = min(ms.pop("infer"), ms.pop("compiled"))
    ms.pop(BFLOAT16, None)
    best = min(ms, key=lambda name: ms[name])
    return own, ms[best], _NAMES["torch_dense" if best == "torch" else best]


def speed_ups(least: float, most: float, inputs: set[int], threads: int = 2) -> list[float]:
    """Return the speed-ups of `when-to-use.md`: random networks of these densities."""
    return [
        best / own
        for cell in read("real-networks")["cells"]
        for own, best, _ in [ours_and_best(cell)]
        if cell["threads"] == threads and cell["inputs"] in inputs
        if least < cell["density"] <= most
        if not cell["right"] and not cell["cold"]
        if not cell["network"].startswith("features alone")
    ]


def _real_networks(cells: list[dict[str, Any]]) -> str:
    """Return gbdnn's ms on two threads, and how much longer the best other program takes."""
    of = _grouped([each for each in cells if each["threads"] == 2], "network", "inputs", "cold")
    titles = {(1, False): "1 input", (1, True): "1 input, cold", (32, False): "32 inputs"}
    titles[1000, False] = "1,000 inputs"
    counts = {n: name for n, name in titles.items() if n in {key[1:] for key in of}}
    rows = []
    for network in dict.fromkeys(name for name, inputs, _ in of if inputs == 1):
        row = [network]
        for ((own, best, name),) in (map(ours_and_best, of[network, *n]) for n in counts):
            row.append(f"{short(own)}, {_times(best / own)} {name}")
        rows.append(row)
    return table(["network", *(f"{name}: ms, times" for name in counts.values())], rows, left=5)


def _single_layers(cells: list[dict[str, Any]]) -> str:
    """Return the ms of `compile`, and how much longer `infer` and the other programs take."""
    names = list(cells[0]["ms"])
    names.sort(key=lambda name: name not in ("compiled", "infer"))
    rows = [
        [cell["network"], short(cell["ms"]["compiled"])]
        + [_times(cell["ms"][name] / cell["ms"]["compiled"]) for name in names[1:]]
        for cell in cells
    ]
    head = ["layer", "`compile`, ms", "`infer`, times", *(f"{_NAMES[x]}, times" for x in names[2:])]
    return table(head, rows)


def _slower(found: dict[str, Any]) -> str:
    """Return the measurements in which another program was faster, by number of threads."""
    rows: dict[tuple[int, str], dict[int, str]] = {}
    cells = [cell for cell in found["cells"] if not cell["cold"]]
    for cell in sorted(cells, key=lambda cell: cell["inputs"]):
        own, best, name = ours_and_best(cell)
        if best < own:
            row = rows.setdefault((cell["inputs"], cell["network"]), {})
            row[cell["threads"]] = f"{own / best:.2f} {name}"
    head = ["network", "inputs", "on 1 thread: gbdnn's time / the fastest's", "on 2 threads"]
    return table(
        head,
        [[name, f"{n:,}", row.get(1, ""), row.get(2, "")] for (n, name), row in rows.items()],
    )


def _after_torch(cells: list[dict[str, Any]]) -> str:
    """Return the ms of `compile`, and of the faster of PyTorch's products, by setting."""
    settings = {
        "2 threads": "default: gbdnn, PyTorch",
        "passive": "`OMP_WAIT_POLICY=passive`",
        "1 threads": "`torch.set_num_threads(1)`",
    }
    rows = []
    for (inputs, network), of in _grouped(cells, "inputs", "network").items():
        ms = {cell["setting"]: cell["ms"] for cell in of}
        both = [
            (ms[key]["compiled"], min(ms[key]["torch"], ms[key]["torch_csr"])) for key in settings
        ]
        rows.append([f"{network}; {inputs}", *(f"{short(a)}, {short(b)}" for a, b in both)])
    return table(["network, inputs", *settings.values()], rows)


def _accelerate(cells: list[dict[str, Any]]) -> str:
    names = ("gbdnn", "pytorch", "onnxruntime", "openvino", BFLOAT16)
    head = ["model", "zeros", "inputs", "`accelerate`", "PyTorch", "ONNX Runtime", "OpenVINO"]
    rows = []
    for cell in cells:
        texts = {name: short(cell["ms"].get(name)) for name in names}
        best = min(set(cell["ms"]) - {BFLOAT16}, key=cell["ms"].get)
        texts[best] = f"**{texts[best]}**"
        rows.append([cell["model"], f"{cell['zeros']:.0%}", str(cell["inputs"]), *texts.values()])
    return table([*head, "OpenVINO, bfloat16"], rows)


def _graph(cells: list[dict[str, Any]]) -> str:
    names = ("gbdnn", "torch", "pyg-csr", "pyg", "scipy")
    head = ["layers", "nodes", "edges", "threads", *(f"{_NAMES[name]}, s" for name in names)]
    rows = []
    for cell in cells:
        row = [{"gcn": "GCN", "sage": "GraphSAGE"}[cell["what"]]]
        row += [f"{cell[key]:,}" for key in ("nodes", "edges", "threads")]
        row += [short(cell["s"].get(name)) for name in names]
        rows.append([*row, _times(over_best(cell["s"]))])
    return table([*head, "fastest other / gbdnn"], rows)


def _spmm(cells: list[dict[str, Any]]) -> str:
    names = ("gbdnn", "torch", "torch-mkl", "scipy", "graphblas")
    head = ["threads", *(f"{_NAMES[name]}, s" for name in names), "fastest other / gbdnn"]
    rows = []
    for cell in cells:
        seconds = [short(cell["s"][name]) for name in names]
        rows.append([str(cell["threads"]), *seconds, _times(over_best(cell["s"]))])
    return table(head, rows)


def over_best(times: dict[str, float]) -> float:
    """Return the time of the fastest other program, divided by gbdnn's."""
    others = times.keys() - {"gbdnn", "sparse_sequential"}
    return min(times[name] for name in others) / times["gbdnn"]


def _steps(cells: list[dict[str, Any]]) -> str:
    names = ("gbdnn", "sparse_sequential", "torch_mask", "torch_csr", "sparselab", "sparseprop")
    head = ["network", "edges", "threads", *(_NAMES[name] for name in names), "speed-up"]
    rows = []
    for cell in cells:
        row = [cell["network"], f"{cell['edges']:,}", str(cell["threads"])]
        row += [short(cell["ms"].get(name)) for name in names]
        rows.append([*row, f"{over_best(cell['ms']):.1f}"])
    return table(head, rows)


def _layers(cells: list[dict[str, Any]]) -> str:
    names = ("sparse_sequential", "torch_autograd", "sparselab", "torch_mask")
    head = ["network", "edges", "inputs", *(_NAMES[name] for name in names), "speed-up", "`train`"]
    rows = []
    for cell in cells:
        ours, *others = (cell["ms"][name] for name in names)
        row = [cell["network"], f"{cell['edges']:,}", str(cell["inputs"])]
        row += [*map(short, (ours, *others)), f"{min(others) / ours:.1f}"]
        rows.append([*row, short(cell["ms"]["gbdnn"])])
    return table(head, rows)


def _accuracy(cells: list[dict[str, Any]]) -> str:
    rows = []
    cells = sorted(cells, key=lambda cell: -cell["density"])
    for (density, edges), of in _grouped(cells, "density", "edges").items():
        here = {cell["rule"]: cell for cell in of}
        row = [f"{density:g} %", f"{edges:,}"]
        for cell in (here.get(rule) for rule in ("fixed", "rigl")):
            text = "{accuracy:.2f} ({least:.2f}, {most:.2f})".format(**cell) if cell else "-"
            row.append(text)
        rows.append([*row, f"{max(cell['seconds'] for cell in of):.1f}"])
    return table(["edges", "number", "fixed, %", "RigL, %", "s per epoch"], rows)


def _structure(cells: list[dict[str, Any]]) -> str:
    head = ["strength", "network", "removed, %", "error, %", "fine-tuned, %"]
    texts = ("{network}", "{gone:.1f}", "{error_learned:.2f}", "{error:.2f}")
    return table(
        head,
        [
            [f"{strength:g}", *(", ".join(text.format(**cell) for cell in of) for text in texts)]
            for (strength,), of in _grouped(cells, "strength").items()
        ],
    )


def _estimators(cells: list[dict[str, Any]]) -> str:
    """Return a row for each classification: accuracies and seconds of gbdnn and scikit-learn."""
    rows = []
    for (name, hidden), of in _grouped(cells, "table", "hidden").items():
        if hidden != "default":
            row = [name, hidden.replace(",", ", ")]
            row += [f"{100 * cell['mean']:.1f}" for cell in of]
            rows.append([*row, *(short(cell["seconds"]) for cell in of)])
    head = ["data", "hidden neurons", "gbdnn, %", "scikit-learn, %", "gbdnn, s", "scikit-learn, s"]
    return table(head, rows, left=2)


def _wide(cells: list[dict[str, Any]]) -> str:
    """Return a row for each network: published and measured seconds of an epoch."""
    return table(
        ["network", "edges", "published, s", "gbdnn, s", "peak, MiB"],
        [
            [
                cell["network"],
                f"{cell['edges']:,}",
                short(cell["published"] or None),
                short(cell["seconds"]),
                f"{cell['mib']:,}",
            ]
            for cell in cells
        ],
    )


def _runs(runs: list[dict[str, Any]]) -> str:
    head = ["neurons", "layers", "every input, s", "edges/s", "GiB"]
    head += ["equal inputs once, s", "**effective** edges/s", "which run"]
    rows = []
    for neurons, layers in product(NEURONS, LAYERS):
        of = {
            run["deduplicate"]: run
            for run in runs
            if (run["neurons"], run["layers"]) == (neurons, layers)
        }
        row = [str(neurons), str(layers)]
        for run in (of[False], of[True]):
            rate = run["inputs"] * 32 * neurons * layers / run["seconds"]
            row += [f"{run['seconds']:.3f}", _rate(rate)]
            row += [] if run["deduplicate"] else [f"{run['gib']:.1f}"]
        rows.append([*row, of[False]["of"]])
    return table(head, rows)


def _three(of: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return gbdnn with every input computed, its default, and the strongest other program."""
    others = [each for each in of if not each["program"].startswith("`gbdnn")]
    return [*of[:2], min(others, key=lambda each: each["two"])]


def _beside(of: list[dict[str, Any]]) -> str:
    rows = [[e["program"], _with_range(e, "two", of), _with_range(e, "one", of)] for e in of]
    return table(["program (FP32)", "2 threads, s", "1 thread, s"], rows)


def _larger(cells: list[dict[str, Any]]) -> str:
    rows = []
    for (neurons, layers, inputs), of in _grouped(cells, "neurons", "layers", "inputs").items():
        network, every = f"{neurons} x {layers}, {inputs:,}", of[0]
        for each in of:
            times = f"{each['two'] / every['two']:.1f}"
            rows.append([network, each["program"], _with_range(each, "two", of), times])
    head = ["network, inputs", "program (FP32)", "2 threads, s", "times gbdnn's"]
    return table(head, rows, left=2)


def _predicted(cells: list[dict[str, Any]]) -> str:
    counts = [n for n in cells[0]["times"] if n != "1"]
    rows = [
        [f"{cell['inputs']:,}", "yes" if cell["deduplicate"] else "no",
         *(short(cell["times"][n]) for n in counts)]
        for cell in cells
    ]  # fmt: skip
    return table(["inputs", "equal inputs once", *(f"{n} cores" for n in counts)], rows, left=2)


def _with_range(each: dict[str, Any], key: str, of: list[dict[str, Any]]) -> str:
    """Return a time and its range; bold where gbdnn is faster than all others."""
    others = [other[key] for other in of if not other["program"].startswith("`gbdnn")]
    least, most = map(short, each[f"{key}_range"])
    faster = each["program"].startswith("`gbdnn") and each[key] < min(others)
    text = f"**{short(each[key])}**" if faster else short(each[key])
    return f"{text} ({least} to {most})"


def _sources() -> dict[str, str]:
    """Return the sources of published times, in the order in which they are used, with tables."""
    where: dict[str, dict[str, None]] = {}
    for rate in PUBLISHED:
        if rate.system in SHOWN:
            where.setdefault(rate.source, {})[rate.where] = None
    texts = {source: "; ".join(places) for source, places in where.items()}
    return {source: f"{source}. {at[0].upper()}{at[1:]}." for source, at in texts.items()}


def _numbered(lines: Iterable[str]) -> str:
    return "".join(f"{n}. {line}\n" for n, line in enumerate(lines, 1))


def _published() -> str:
    depths = (120, 1920)
    head = ["program", "machine", *(f"{n} x 120 / 1920, s" for n in NEURONS)]
    number = {source: n for n, source in enumerate(_sources(), 1)}
    rows = []
    for system in dict.fromkeys(rate.system for rate in PUBLISHED if rate.system in SHOWN):
        first, *_ = of = [rate for rate in PUBLISHED if rate.system == system]
        seconds = {(rate.neurons, rate.layers): short(rate.seconds) for rate in of}
        effective = ", **effective**" if first.effective else ""
        precision = "" if first.precision == "not stated" else f", {first.precision}"
        row = [f"{system}{effective} [{number[first.source]}]", first.machine + precision]
        for neurons in NEURONS:
            cell = [seconds.get((neurons, layers), "-") for layers in depths]
            row.append(" / ".join(cell) if set(cell) != {"-"} else "")
        rows.append(row)
    return table(head, rows, left=len(head))


def _published_threads() -> str:
    """Return a row for each depth: published speed-ups over one thread, and per core."""
    (of,) = FOUND["threads"]
    head = ["layers", *(f"{neurons} neurons" for neurons in NEURONS)]
    rows = []
    for layers in ("120", "480", "1920"):
        pairs = (of["rates"][str(neurons)][layers] for neurons in NEURONS)
        ratios = [most / one for one, most in pairs]
        rows.append([layers, *(f"{ratio:.1f} ({ratio / of['cores']:.2f})" for ratio in ratios)])
    return table(head, rows)


def _scaling(reports: list[dict[str, Any]]) -> str:
    return _by_threads(reports, "rows", "program", "edges/s")


def _by_threads(reports: list[dict[str, Any]], rows: str, name: str, last: str) -> str:
    """Return a row for each network and program or operation, with numbers by threads."""
    texts = []
    for report in reports:
        threads = ", ".join(map(str, report["threads"]))
        ranges = " (lowest, highest)" if report["rounds"] >= _LEAST else ""
        most = f"on {report['threads'][-1]}: efficiency = parallel x computation"
        head = ["network, inputs", name, f"s on {threads} threads", f"speed-up{ranges}"]
        head += [most, last] if rows == "rows" else [last]
        found = []
        for network in report["networks"]:
            problem = f"{network['neurons']} x {network['layers']}, {network['inputs']:,}"
            for (what,), of in _grouped(network[rows], name).items():
                seconds = [row["seconds"] for row in of]
                gains = ", ".join(_speed_up(row, bool(ranges)) for row in of[1:])
                cells = [", ".join(map(short, seconds)), gains]
                if rows == "rows":
                    cells.append(_losses(of[-1]))
                    cells.append(", ".join(_rate(row["edges_per_second"]) for row in of))
                else:
                    every = [row["seconds"] for row in network[rows] if row["threads"] == 1]
                    cells.append(f"{seconds[0] / sum(every):.0%}")
                found.append([problem, what, *cells])
        rounds = "" if ranges else f"\n{report['rounds']} round{'s'[: report['rounds'] > 1]}.\n"
        texts.append(table(head, found, left=2) + line(report) + rounds)
    return "\n".join(texts)


def _speed_up(row: dict[str, Any], ranges: bool) -> str:
    spread = f" ({row['speed_up_low']:.2f}, {row['speed_up_high']:.2f})" if ranges else ""
    return f"{row['speed_up']:.2f}{spread}"


def _losses(row: dict[str, Any]) -> str:
    """Return the efficiency as a product; files before commit 3406a5fd have the cores busy."""
    parallel = row["parallel"] if "parallel" in row else row["cores_busy"] / row["threads"]
    found = row["efficiency"], parallel, row["efficiency"] / parallel
    return "{:.2f} = {:.2f} x {:.2f}".format(*found)


def _policies(report: dict[str, Any]) -> str:
    beside = {"quiet": "nothing", "busy": "a busy process"}
    rows = []
    for (condition, program), of in _grouped(report["rows"], "condition", "program").items():
        row = {each["policy"]: each for each in of}
        seconds = [row[policy]["seconds"] for policy in ("unset", "active", "passive")]
        ratio = f"{seconds[2] / seconds[0]:.2f}"
        rows.append([program, beside[condition], *map(short, seconds), ratio])
    head = ["program", "next to", "unset, s", "active, s", "passive, s", "passive / unset"]
    return table(head, rows, left=2)


if __name__ == "__main__":
    tables = made()
    for file, text in pages().items():
        file.write_text(filled(text, tables), encoding="utf-8")
