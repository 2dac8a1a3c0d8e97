"""The tables of training, from ``training.toml``; and that file.

python docs/training_tables.py steps.json accuracy.json fssl.json ... > docs/training.toml
python docs/training_tables.py docs/training.toml   # prints the tables, in Markdown
"""

from __future__ import annotations

import json
import sys
import tomllib
from datetime import date
from pathlib import Path
from typing import Any

from tables import table

_PROGRAMS = {
    "gbdnn": "gbdnn",
    "torch_mask": "PyTorch dense + mask",
    "torch_csr": "PyTorch CSR",
    "sparselab": "sparselab",
    "sparseprop": "SparseProp",
}
_RULES = {"fixed": "fixed", "rigl": "RigL", "set": "SET"}
_COMMANDS = {
    "steps": "python benchmarks/comparison/training_steps.py --nthreads 1 --nthreads 2",
    "accuracy": "python benchmarks/learning/training_accuracy.py --density 100,10,5,2,1",
    "structure": "python benchmarks/learning/fssl.py",
}


def make(source: Path, folder: Path) -> None:
    """Write the tables into a folder, as Markdown to include."""
    found = tomllib.loads(source.read_text(encoding="utf-8"))
    for name, text in tables_of(found).items():
        (folder / f"training-{name}.md").write_text(text, encoding="utf-8")


def tables_of(found: dict[str, Any]) -> dict[str, str]:
    """Return the tables by name: steps, accuracy, structure."""
    making = {"steps": _steps, "accuracy": _accuracy, "structure": _structure}
    made = {}
    for name, make_text in making.items():
        if not found.get(name):
            made[name] = f"Not measured yet: `{_COMMANDS[name]}`.\n"
            continue
        facts = found["facts"][name]
        made[name] = make_text(found[name]) + (
            f"\n{facts['machine']}. {_shown(facts['versions'])}. {facts['date']},"
            f" `{_COMMANDS[name]}`\n"
        )
    return made


def _shown(versions: str) -> str:
    """Return the versions of gbdnn and of the programs that it is compared with."""
    shown = ("gbdnn", "torch", "sparselab", "sparseprop")
    return ", ".join(each for each in versions.split(", ") if each.split()[0] in shown)


def _steps(cells: list[dict[str, Any]]) -> str:
    """Return a row for each network, with the times on one thread and on more in each cell."""
    ran = [name for name in _PROGRAMS if any(name in cell["ms"] for cell in cells)]
    lines = []
    for network in dict.fromkeys(cell["network"] for cell in cells):
        here = sorted(
            (cell for cell in cells if cell["network"] == network), key=lambda cell: cell["threads"]
        )
        columns = [
            [f"{cell['ms'][name]:.3g}" if name in cell["ms"] else "-" for cell in here]
            for name in ran
        ]
        columns.append([_times(cell["ms"]) for cell in here])
        lines.append([network, f"{here[0]['edges']:,}", *map(", ".join, columns)])
    head = ["network", "edges", *(_PROGRAMS[name] for name in ran), "speed-up"]
    return table(head, lines, right=tuple(range(1, len(head))))


def _times(ms: dict[str, float]) -> str:
    """Return the fastest of the others over gbdnn."""
    others = [each for name, each in ms.items() if name != "gbdnn"]
    return f"{min(others) / ms['gbdnn']:.1f}" if others else "-"


def _accuracy(cells: list[dict[str, Any]]) -> str:
    """Return a row for each density, with the accuracies (least, most) of each rule."""
    rules = [name for name in _RULES if any(cell["rule"] == name for cell in cells)]
    lines = []
    for density in sorted({cell["density"] for cell in cells}, reverse=True):
        here = {cell["rule"]: cell for cell in cells if cell["density"] == density}
        texts = [
            f"{here[name]['accuracy']:.2f} ({here[name]['least']:.2f}, {here[name]['most']:.2f})"
            if name in here
            else "-"
            for name in rules
        ]
        any_of_them = next(iter(here.values()))
        seconds = max(cell["seconds"] for cell in here.values())
        lines.append([f"{density:g} %", f"{any_of_them['edges']:,}", *texts, f"{seconds:.1f}"])
    head = ["edges", "number", *(f"{_RULES[name]}, %" for name in rules), "s per epoch"]
    return table(head, lines, right=tuple(range(len(head))))


def _structure(rows: list[dict[str, Any]]) -> str:
    """Return a row for each strength, with the results of all seeds in each cell."""
    lines = []
    for strength in dict.fromkeys(row["strength"] for row in rows):
        here = [row for row in rows if row["strength"] == strength]
        columns = [
            [row["network"] for row in here],
            [f"{row['gone']:.1f}" for row in here],
            [f"{row['error_learned']:.2f}" for row in here],
            [f"{row['error']:.2f}" for row in here],
        ]
        lines.append([f"{strength:g}", *map(", ".join, columns)])
    head = ["strength", "network", "removed, %", "error, %", "fine-tuned, %"]
    return table(head, lines, right=(0, 2, 3, 4))


def toml_of(*measured: dict[str, Any]) -> str:
    """Return ``training.toml`` for the JSON of the three programs, in any order."""
    parts: dict[str, list[str]] = {"steps": [], "accuracy": [], "structure": []}
    facts: dict[str, dict[str, str]] = {}
    for found in measured:
        name = _kind(found)
        parts[name] += [_line(each) for each in _cells(name, found)]
        on, versions = found["machine"], found["versions"]
        facts[name] = {
            "machine": f"{on['processor']}, {on['cores']} cores, {on['system']}",
            "versions": ", ".join(f"{each} {versions[each]}" for each in sorted(versions)),
            "date": date.today().isoformat(),
        }
    text = _HEAD
    for name, lines in parts.items():
        text += f"\n{name} = [\n" + "".join(f"  {line},\n" for line in lines) + "]\n"
    for name, each in facts.items():
        text += f"\n[facts.{name}]\n"
        text += "".join(f"{key} = {json.dumps(value)}\n" for key, value in each.items())
    return text


_HEAD = """\
# What the page on training shows. This file is printed by
#
#     python docs/training_tables.py steps.json accuracy.json fssl.json
#
# from what benchmarks/comparison/training_steps.py, and training_accuracy.py and fssl.py in
# benchmarks/learning, write. `ms`: medians.
"""


def _kind(found: dict[str, Any]) -> str:
    if "cells" in found:
        return "steps"
    return "accuracy" if "rule" in found["rows"][0] else "structure"


def _cells(name: str, found: dict[str, Any]) -> list[dict[str, Any]]:
    if name == "accuracy":
        kept = ("density", "edges", "rule", "accuracy", "least", "most", "seconds")
        seeds = len({row["seed"] for row in found["rows"]})
        return [{key: cell[key] for key in kept} | {"seeds": seeds} for cell in found["summary"]]
    if name == "structure":
        kept = ("strength", "seed", "gone", "error_learned", "error")
        return [
            {key: row[key] for key in kept} | {"network": "-".join(map(str, row["sizes"]))}
            for row in found["rows"]
        ]
    for cell in found["cells"]:
        if cell["check"] != "PASSED":
            raise ValueError(f"{cell['network']}: {cell['check']}")
    return [
        {
            "network": cell["network"],
            "threads": cell["nthreads"],
            "edges": cell["edges"],
            "ms": {each: float(f"{1e3 * s:.4g}") for each, s in cell["median"].items()},
        }
        for cell in found["cells"]
    ]


def _line(cell: dict[str, Any]) -> str:
    def value(x: Any) -> str:
        if isinstance(x, dict):
            return "{ " + ", ".join(f"{key} = {value(each)}" for key, each in x.items()) + " }"
        return str(round(x, 4)) if isinstance(x, float) else json.dumps(x)

    return value(cell)


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1].endswith(".toml"):
        for text in tables_of(tomllib.loads(Path(sys.argv[1]).read_text())).values():
            print(text)
    else:
        print(toml_of(*(json.loads(Path(name).read_text()) for name in sys.argv[1:])), end="")
