"""Numbers in sentences of the pages, by name: from the files of results, as they are to be read.

A page has them between ``<!-- =NAME -->`` and ``<!-- = -->``; `inlined` fills them in.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import beside_figure
import scaling_page
from dense_tables import BFLOAT16

from gbdnn.challenge.published import PUBLISHED
from gbdnn.kernels.blocks import padded
from gbdnn.kernels.costs import DENSE_LAYER

HERE = Path(__file__).parent
MIB, GIB = 2**20, 2**30
LARGEST = (65536, 1920)  # neurons, layers
OWN = ("infer", "compiled")  # in real-networks.toml


def made() -> dict[str, str]:
    """Return the numbers by name."""
    return {
        **_challenge(),
        **_published(),
        **_sizes(),
        **_networks(),
        **_deepsparse(),
        **_graphs(),
        **_rest(),
        **_threads(),
    }


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((HERE / name).read_text(encoding="utf-8"))


def _challenge() -> dict[str, str]:
    """Return what `results.toml` says of the challenge's networks."""
    found = _read("results.toml")
    run = {
        (each["setup"], each["neurons"], each["layers"], each["deduplicate"]): each
        for each in reversed(found["runs"])  # the first one counts
    }
    seconds = {key: each["seconds"] for key, each in run.items()}
    programs = beside_figure.shown()
    ours = next(each for each in programs if "deduplication" not in each["program"])
    best = found["strongest"]
    zen4 = {
        each["program"].rpartition(", ")[2]: each["two"]
        for each in found["beside"]
        if each["group"] == "zen4" and each["program"].startswith("PyTorch")
    }
    return {
        "challenge": f"{ours['seconds']:#.3g} s",
        "challenge-best": f"{best['seconds']:#.3g} s",
        "challenge-best-name": best["program"],
        "challenge-times": f"{best['times']} times",
        "ours-4096": f"{seconds['zen4', 4096, 120, False]:.1f} s",
        "ours-16384": f"{seconds['zen4', 16384, 120, False]:.0f} s",
        "ours-largest": f"{seconds['zen4', *LARGEST, False] / 60:.0f} minutes",
        "ours-largest-once": f"{seconds['zen4', *LARGEST, True] / 60:.0f} minutes",
        "peak-largest": f"{run['zen4', *LARGEST, False]['gib']:.0f} GiB",
        "nothing-dropped": f"{zen4['nothing dropped'] / zen4['dead inputs dropped']:.1f} times",
        "floor-one": f"{found['floor']['one']} times",
        "floor-two": f"{found['floor']['two']} times",
        "alive-27": f"{found['living']['alive']['27']:,}",
    }


def _published() -> dict[str, str]:
    """Return what others have published."""
    seconds = {(each.system, each.neurons, each.layers): each.seconds for each in PUBLISHED}
    snicit = [each.seconds for each in PUBLISHED if each.system == "SNICIT"]
    nodes = "KK-SpDNN, best of 2 to 24 nodes"
    best = max(
        (each for each in PUBLISHED if each.system == nodes), key=lambda each: each.edges_per_second
    )
    return {
        "snicit-least": f"{min(snicit)} s",
        "snicit-most": f"{max(snicit)} s",
        "nodes-4096": f"{seconds[nodes, 4096, 120]:.2f} s",
        "nodes-16384": f"{seconds[nodes, 16384, 120]:.1f} s",
        "nodes-rate": f"{best.edges_per_second:.3g}".replace("e+", "e"),
        "nodes-rate-of": f"{best.neurons} x {best.layers}",
    }


def _sizes() -> dict[str, str]:
    """Return sizes that follow from numbers of neurons, edges and bytes."""
    neurons, layers = LARGEST
    stored = 4 * layers * (32 * neurons + neurons + 1)  # 32-bit indices; all values are one
    return {
        "stored-largest": f"{stored / GIB:.1f} GiB",
        **{f"block-{n}": f"{4 * padded(64) * n / MIB:.0f} MiB" for n in (16384, 65536)},
        "dense": f"{DENSE_LAYER:.0%}".replace("%", " %"),
    }


def times(cell: dict[str, Any], *own: str) -> float:
    """Return the best of all other programs over the better of gbdnn's."""
    others = [ms for name, ms in cell["ms"].items() if name not in (*OWN, BFLOAT16)]
    return min(others) / min(cell["ms"][name] for name in own or OWN)


def random_networks() -> list[dict[str, Any]]:
    """Return the cells of random networks in ``real-networks.toml``."""
    cells = _read("real-networks.toml")["cells"]
    return [c for c in cells if not c["right"] and not c["network"].startswith("features alone")]


def _networks() -> dict[str, str]:
    """Return ratios to the best of PyTorch, ONNX Runtime, OpenVINO and DeepSparse in FP32."""
    cells = random_networks()
    groups = {
        "few-edges-many": lambda c: c["density"] <= 0.105 and c["inputs"] >= 1000,
        "few-edges-32": lambda c: c["density"] <= 0.105 and c["inputs"] == 32,
        "few-edges-one": lambda c: c["density"] <= 0.105 and c["inputs"] == 1,
        "more-edges-many": lambda c: 0.105 < c["density"] < DENSE_LAYER and c["inputs"] >= 1000,
        "more-edges-few": lambda c: 0.105 < c["density"] < DENSE_LAYER and c["inputs"] <= 32,
        "dense-many": lambda c: c["density"] >= DENSE_LAYER and c["inputs"] >= 1000,
        "dense-few": lambda c: c["density"] >= DENSE_LAYER and c["inputs"] <= 32,
    }
    found: dict[str, str | tuple[str, str]] = {
        name: _spread([times(c) for c in cells if of(c)]) for name, of in groups.items()
    }
    found["lost"] = f"{sum(times(c) < 1 for c in cells)} of {len(cells)}"
    for name in ("many", "one"):
        few = [c for c in cells if groups[f"few-edges-{name}"](c)]
        found[f"lost-{name}"] = f"{sum(times(c) < 1 for c in few)} of {len(few)}"
    two = {(c["network"], c["inputs"]): c for c in cells if c["threads"] == 2}
    compiled = two["1024x4, 30 %", 1000]
    found["compiled-30-many"] = f"{times(compiled, 'compiled'):.1f} times"
    return {name: text for each in found.items() for name, text in _named(*each)}


def _spread(ratios: list[float]) -> tuple[str, str]:
    """Return the least and the greatest ratio, and their geometric mean."""
    return f"{min(ratios):.1f} to {max(ratios):.1f} times", f"{geometric_mean(ratios):.1f} times"


def _named(name: str, found: str | tuple[str, str]) -> list[tuple[str, str]]:
    if isinstance(found, str):
        return [(name, found)]
    return [(name, found[0]), (f"{name}-mean", found[1])]


def _deepsparse() -> dict[str, str]:
    """Return how many times as long DeepSparse takes, up to 10 % of the edges, on two threads."""
    ratios = {
        (cell["network"], cell["inputs"]): cell["ms"]["deepsparse"]
        / min(cell["ms"][name] for name in OWN)
        for cell in random_networks()
        if "deepsparse" in cell["ms"] and cell["threads"] == 2 and cell["density"] <= 0.105
    }
    many = [ratio for (_, inputs), ratio in ratios.items() if inputs >= 1000]
    return {
        "deepsparse": f"{geometric_mean(ratios.values()):.1f} times",
        "deepsparse-many": f"{geometric_mean(many):.1f} times",
        "deepsparse-least": f"{min(ratios.values()):.2g} times",
    }


def _graphs() -> dict[str, str]:
    """Return ratios of other programs to gbdnn on graph convolutions."""
    cells = [dict(cell["s"]) for cell in _read("graph.toml")["cells"]]
    ours = [cell.pop("gbdnn") for cell in cells]
    best = [min(cell.values()) / mine for cell, mine in zip(cells, ours, strict=True)]
    found = {"graph-best": _spread(best)[0], "graph-best-mean": _spread(best)[1]}
    for name in ("pyg", "pyg-csr"):
        ratios = [c[name] / mine for c, mine in zip(cells, ours, strict=True) if name in c]
        found[f"graph-{name}"] = _spread(ratios)[0]
    return found


def _rest() -> dict[str, str]:
    """Return what was measured of training."""
    training = _read("training.toml")
    steps = {(each["network"], each["threads"]): each for each in training["steps"]}
    shown = steps["784-1024x2-10, 5 %", 2]
    step = shown["ms"]
    ratios = [
        min(ms for name, ms in each["ms"].items() if name != "gbdnn") / each["ms"]["gbdnn"]
        for each in steps.values()
    ]
    learnt = {(each["density"], each["rule"]): each for each in training["accuracy"]}
    right = {key: each["accuracy"] for key, each in learnt.items()}
    dense = right[100.0, "fixed"]
    return {
        "step": f"{step['gbdnn']:.1f} ms",
        "step-csr": f"{step['torch_csr'] / step['gbdnn']:.1f} times",
        "step-mask": f"{step['torch_mask'] / step['gbdnn']:.1f} times",
        "steps": _spread(ratios)[0],
        "right-rigl-1": f"{right[1.0, 'rigl']:.1f} %",
        "right-fixed-1": f"{right[1.0, 'fixed']:.1f} %",
        "right-dense": f"{dense:.1f} %",
        "lost-1": f"{dense - right[1.0, 'fixed']:.1f}",
        "lost-rigl-1": f"{dense - right[1.0, 'rigl']:.1f}",
        "lost-10": f"{dense - right[10.0, 'fixed']:.1f}",
        "lost-rigl-10": f"{dense - right[10.0, 'rigl']:.1f}",
    }


def _threads() -> dict[str, str]:
    """Return what was measured of threads, on the first network and the most threads."""
    (first, *_) = scaling_page.read(scaling_page.files())
    network, policies = first["networks"][0], scaling_page.wait_policy()
    fused = [row for row in network["rows"] if row["program"] == "fused"][-1]
    busy = fused["cpu_to_wall"] / fused["threads"]
    problem = policies["problem"]
    times = {
        (row["condition"], row["program"]): 1 / row["to_unset"]
        for row in policies["rows"]
        if row["policy"] == "passive"
    }
    loop = "LAGraph's loop (ours)"
    return {
        "fused-of": f"{network['neurons']} x {network['layers']}",
        "cpu-to-wall": f"{fused['cpu_to_wall']:.2f} of {fused['threads']}",
        "idle": f"{max(0, 1 - busy):.0%}".replace("%", " %"),
        "wait-machine": scaling_page.machine(policies),
        "wait-of": f"{problem['neurons']} x {problem['layers']}, {problem['inputs']:,} inputs",
        "wait-threads": str(policies["threads"]),
        "passive-loop-quiet": f"{times['quiet', loop]:.1f} times",
        "passive-loop-busy": f"{times['busy', loop]:.1f} times",
        "passive-sparse-quiet": f"{times['quiet', 'sparse']:.1f} times",
        "passive-sparse-busy": f"{times['busy', 'sparse']:.1f} times",
    }
