"""The tables of networks with dense features, from ``real-networks.toml``; and that file.

python docs/dense_tables.py real-networks.json > docs/real-networks.toml
python docs/dense_tables.py docs/real-networks.toml   # prints the tables, in Markdown
"""

from __future__ import annotations

import json
import sys
import tomllib
from datetime import date
from pathlib import Path
from typing import Any

from tables import table

# Programs of `real_networks.py`, as the tables call them.
_PROGRAMS = {
    "infer": "`infer`, ms",
    "compiled": "`compile`, ms",
    "torch": "PyTorch dense, ms",
    "torch_csr": "PyTorch CSR, ms",
    "onnxruntime": "ONNX Runtime, ms",
}


def make(source: Path, folder: Path) -> None:
    """Write the tables into a folder, as Markdown to include."""
    found = tomllib.loads(source.read_text(encoding="utf-8"))
    (folder / "real-networks.md").write_text(real_networks(found), encoding="utf-8")
    some = [each for each in found["cells"] if each["threads"] == 2 and each["inputs"] in (1, 1000)]
    short = real_networks(found | {"cells": some})
    (folder / "real-networks-short.md").write_text(short, encoding="utf-8")


def make_deepsparse(source: Path, folder: Path) -> None:
    """Write a table of ratios to DeepSparse into a folder, as Markdown to include."""
    found = tomllib.loads(source.read_text(encoding="utf-8"))
    head = ["network"]
    for machine in found["machines"]:
        head += [f"{machine['name'].split(':')[0]}; {n:,}" for n in found["inputs"]]
    first, *_ = tables = [each["times"] for each in found["machines"]]
    rows = [[name, *(_ratio(x) for each in tables for x in each[name])] for name in first]
    text = table(head, rows, right=tuple(range(1, len(head)))) + f"\n{found['program']}.\n"
    (folder / "deepsparse.md").write_text(text, encoding="utf-8")


def _ratio(times: float) -> str:
    return f"**{times:g}**" if times < 1 else f"{times:g}"


def real_networks(found: dict[str, Any]) -> str:
    """Return a table for each number of threads, and what it was measured with."""
    cells = found["cells"]
    if not cells:
        return f"Not measured yet: `{found['command']}`.\n"
    text = ""
    for threads in dict.fromkeys(cell["threads"] for cell in cells):
        here = [cell for cell in cells if cell["threads"] == threads]
        ran = [name for name in _PROGRAMS if any(name in cell["ms"] for cell in here)]
        head = ["network", "inputs", *(_PROGRAMS[name] for name in ran)]
        head += [f"times, `{name}`" for name in ("infer", "compile")]
        lines = [
            [
                cell["network"],
                f"{cell['inputs']:,}",
                *(_short(cell["ms"].get(name)) for name in ran),
                *(_times(cell["ms"], name) for name in ("infer", "compiled")),
            ]
            for cell in here
        ]
        text += f"On {threads} {'thread' if threads == 1 else 'threads'}:\n\n"
        text += table(head, lines, right=tuple(range(1, len(head)))) + "\n"
    text += _right(cells)
    return (
        text + f"{found['machine']}. {found['versions']}. {found['date']}, `{found['command']}`\n"
    )


def _right(cells: list[dict[str, Any]]) -> str:
    """Return which share of the images the trained network gets right."""
    known = [cell for cell in cells if cell["right"]]
    if not known:
        return ""
    last = max(known, key=lambda cell: cell["inputs"])
    shares: dict[str, list[str]] = {}
    for name, share in last["right"].items():
        shares.setdefault(f"{share:.2%}", []).append(_PROGRAMS[name].removesuffix(", ms"))
    told = "; ".join(f"{share} by {', '.join(names)}" for share, names in shares.items())
    return (
        "Of MNIST's 10,000 test images the trained network has learnt from 2,000; of the other"
        f" 8,000 it gets right: {told}.\n\n"
    )


def _short(ms: float | None) -> str:
    return "-" if ms is None else f"{ms:.0f}" if ms >= 100 else f"{ms:.3g}"


def _times(ms: dict[str, float], name: str) -> str:
    """Return the best of all other libraries' programs over one of gbdnn's."""
    peers = [taken for peer, taken in ms.items() if peer not in ("infer", "compiled")]
    if name not in ms or not peers:
        return "-"
    times = min(peers) / ms[name]
    text = f"{times:.1f}" if times < 9.95 else f"{times:.0f}"
    return f"**{text}**" if times < 1 else text


def toml_of(found: dict[str, Any]) -> str:
    """Return ``real-networks.toml`` for the JSON of `real_networks.py`."""
    on = found["machine"]
    programs = ("python", "SuiteSparse:GraphBLAS", "numpy", "numba", "torch", "onnxruntime")
    versions = {name: found["versions"].get(name) for name in programs}
    counts = " ".join(
        f"--nthreads {n}" for n in dict.fromkeys(c["nthreads"] for c in found["cells"])
    )
    facts = {
        "machine": f"{on['processor']}, {on['cores']} cores, {on['system']}",
        "versions": ", ".join(f"{name} {is_}" for name, is_ in versions.items() if is_),
        "date": date.today().isoformat(),
        "command": f"python benchmarks/comparison/real_networks.py {counts} --mnist DIR",
    }
    lines = [f"{key} = {json.dumps(value)}" for key, value in facts.items()]
    return "\n".join([_HEAD, *lines, "cells = [", *map(_cell, found["cells"]), "]", ""])


_HEAD = """\
# What the page "when to use gbdnn" shows of networks with dense features. This file is printed by
#
#     python docs/dense_tables.py real-networks.json
#
# from what benchmarks/comparison/real_networks.py writes. `ms`: medians; `right`: share of images,
# of the trained network.
"""


def _cell(cell: dict[str, Any]) -> str:
    if cell["check"] != "PASSED":
        raise ValueError(f"{cell['network']}, {cell['inputs']} inputs: {cell['check']}")
    alone = "features alone: " if cell["features_alone"] else ""
    tables = {
        "ms": {name: float(f"{1e3 * s:.4g}") for name, s in cell["median"].items()},
        "right": {name: round(share, 5) for name, share in cell["right"].items() if share},
    }
    inner = {
        key: "{ " + ", ".join(f"{name} = {value}" for name, value in table.items()) + " }"
        for key, table in tables.items()
    }
    return (
        f"  {{ network = {json.dumps(alone + cell['network'])}, threads = {cell['nthreads']},"
        f" inputs = {cell['inputs']}, density = {cell['density']:.4f},"
        f" ms = {inner['ms']}, right = {inner['right']} }},"
    )


if __name__ == "__main__":
    for name in sys.argv[1:]:
        given = Path(name).read_text(encoding="utf-8")
        if name.endswith(".toml"):
            print(real_networks(tomllib.loads(given)))
        else:
            print(toml_of(json.loads(given)), end="")
