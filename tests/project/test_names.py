"""Every name of this project that a script, a notebook or a page imports or reads exists."""

import ast
import importlib
import json
import re
import sys
import types
from functools import cache
from pathlib import Path

import pytest

from gbdnn.errors import MissingPackageError

ROOT = Path(__file__).parents[2]
FOLDERS = ("benchmarks", "docs", "notebooks", "tests/stress", "tests/support", ".ci")
MADE = {"_build", "_generated", "made", "jupyter_execute", ".ipynb_checkpoints"}
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILES = [
    *sorted(ROOT.glob("*.md")),
    *(
        file
        for folder in FOLDERS
        for file in sorted((ROOT / folder).rglob("*"))
        if file.suffix in {".py", ".md", ".ipynb"} and not MADE & set(file.parts)
    ),
]
LOCAL = {}
for each in FILES:
    if each.suffix == ".py" and each.stem not in sys.stdlib_module_names:
        LOCAL.setdefault(each.stem, []).append(each)


def codes(file):
    """Return the blocks of code of a file that share their names."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".ipynb":
        cells = [each for each in json.loads(text)["cells"] if each["cell_type"] == "code"]
        some = ["".join(each["source"]) for each in cells]
        some += [each["metadata"].get("gbdnn", {}).get("small", "") for each in cells]
        return [re.sub(r"^\s*[%!].*$", "", "\n".join(some), flags=re.MULTILINE)]
    return BLOCK.findall(text) if file.suffix == ".md" else [text]


def value_of(module, name=None):
    """Return a module of gbdnn, or a name in it; None if an optional package is missing."""
    try:
        found = importlib.import_module(module)
        if name is None or hasattr(found, name):
            return found if name is None else getattr(found, name)
        return importlib.import_module(f"{module}.{name}")
    except MissingPackageError:
        return None
    except ModuleNotFoundError as err:
        if (err.name or "").partition(".")[0] == "gbdnn":
            raise
        return None


@cache
def defined(module):
    """Return the names that a module of the project outside gbdnn defines or imports."""
    return {
        name
        for file in LOCAL[module]
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        for name in (
            getattr(node, "name", None),
            getattr(node, "id", None),
            getattr(node, "asname", None),
        )
    }


def missing(tree):
    """Yield the names that code imports or reads from gbdnn or local modules and do not exist."""
    known, local, assigned = {}, set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            assigned.add(node.id)
        elif isinstance(node, ast.arg):
            assigned.add(node.arg)
        elif isinstance(node, ast.Import):
            for each in node.names:
                if each.name.partition(".")[0] == "gbdnn":
                    try:
                        found = value_of(each.name)
                    except ModuleNotFoundError:
                        yield each.name
                        continue
                    known[each.asname or "gbdnn"] = found if each.asname else value_of("gbdnn")
                elif each.name in LOCAL and not each.asname:
                    local.add(each.name)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for each in node.names:
                if node.module.partition(".")[0] == "gbdnn":
                    try:
                        known[each.asname or each.name] = value_of(node.module, each.name)
                    except ModuleNotFoundError:
                        yield f"{node.module}.{each.name}"
                elif node.module in LOCAL and each.name not in defined(node.module):
                    yield f"{node.module}.{each.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (names := chain(node)):
            if names[0] in local - assigned and names[1] not in defined(names[0]):
                yield ".".join(names)
            found = None if names[0] in assigned else known.get(names[0])
            for name in names[1:]:
                if not isinstance(found, types.ModuleType):
                    break
                try:
                    found = value_of(found.__name__, name)
                except ModuleNotFoundError:
                    yield ".".join(names)
                    break


def chain(node):
    """Return the names of ``a.b.c``; nothing for attributes of other expressions."""
    names = []
    while isinstance(node, ast.Attribute):
        names.insert(0, node.attr)
        node = node.value
    return [node.id, *names] if isinstance(node, ast.Name) else []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_names_exist(file):
    found = {name for code in codes(file) for name in missing(ast.parse(code))}
    assert not found


@pytest.mark.parametrize(
    "code",
    [
        "from gbdnn.training import fssl", "import gbdnn\ngbdnn.grahp.infer", "import gbdnn.kernel",
        "from gbdnn import graph as g\ng.infr()", "from oracles import cases",
        "import oracles\noracles.cases()",
    ],
)  # fmt: skip
def test_a_missing_name_is_found(code):
    assert list(missing(ast.parse(code)))


def test_files_are_found():
    assert {file.suffix for file in FILES} == {".py", ".md", ".ipynb"}
    assert len(FILES) > 100
