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


@cache
def defined(module):
    """Return the names that a module of the project outside gbdnn defines or imports."""
    return {
        getattr(node, key, None)
        for file in LOCAL[module]
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        for key in ("name", "id", "asname")
    }


def member(found, name):
    """Return what a module of gbdnn has by a name; None of other things, where it is not known.

    A local module is the set of its names. Raise ModuleNotFoundError if there is no such name.
    """
    if isinstance(found, set) and name not in found:
        raise ModuleNotFoundError(name)
    if not isinstance(found, types.ModuleType):
        return None
    try:
        return getattr(found, name) if hasattr(found, name) else module(f"{found.__name__}.{name}")
    except MissingPackageError:
        return None


def module(path):
    """Return a module of gbdnn; None for modules of other packages, and for a missing one."""
    if path in LOCAL:
        return defined(path)
    try:
        return importlib.import_module(path) if path.partition(".")[0] == "gbdnn" else None
    except MissingPackageError:
        return None
    except ModuleNotFoundError as err:
        if (err.name or "").partition(".")[0] == "gbdnn":
            raise
        return None


def missing(tree):
    """Yield the names that code imports or reads from gbdnn or local modules and do not exist."""
    nodes = list(ast.walk(tree))
    known = {}
    for node in nodes:
        for each in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
            try:
                if isinstance(node, ast.Import):
                    found = module(each.name)
                    top = each.name.partition(".")[0]
                    known[each.asname or top] = found if each.asname else module(top)
                elif not node.level:
                    known[each.asname or each.name] = member(module(node.module), each.name)
            except ModuleNotFoundError:
                yield ast.unparse(node)
    stored = [node for node in nodes if isinstance(getattr(node, "ctx", None), ast.Store)]
    assigned = {getattr(node, "id", None) for node in stored}
    assigned |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    for node in nodes:
        first, *names = chain(node)
        found = None if first in assigned else known.get(first)
        try:
            for name in names:
                found = member(found, name)
        except ModuleNotFoundError:
            yield ".".join([first, *names])


def chain(node):
    """Return the names of ``a.b.c``; one empty name for other expressions."""
    names = []
    while isinstance(node, ast.Attribute):
        names.insert(0, node.attr)
        node = node.value
    return [node.id, *names] if isinstance(node, ast.Name) else [""]


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
