"""The subpackages import only from those below them, and private names stay in their module."""

import ast
import importlib
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"

# Each subpackage or module imports only from the lines below it.
DOWNWARDS = [
    ["__main__"],
    ["cli"],
    ["gbdnn"],  # gbdnn/__init__.py, the index of public names
    ["viz"],
    ["challenge"],
    ["training"],
    ["torch"],
    ["inference", "answers", "graph"],
    ["distributed", "serving"],
    ["engine"],
    ["io"],
    ["gallery"],
    ["kernels"],
    ["model"],
    ["arrays"],
    ["runtime"],
    ["errors", "_version"],
]
FLOOR = {room: floor for floor, rooms in enumerate(reversed(DOWNWARDS)) for room in rooms}

# Private names of other packages that have no public equivalent.
ALLOWED = {
    "_replace": "public, in spite of its name, of every NamedTuple",
    "_init_params": "python-graphblas has no other way to ask whether it is initialised",
    "_modules": "PyTorch's named_children leaves a module out that it has named before",
    "_forward_hooks": "nor PyTorch one to ask for the hooks of a module",
    "_forward_pre_hooks": "nor PyTorch one to ask for the hooks of a module",
    "_indices": "nor PyTorch one to look at a sparse tensor's indices before it is coalesced",
    "_values": "nor PyTorch one to look at a sparse tensor's values before it is coalesced",
    "_NamedFuncPointer": "the type of a function of a library, in an annotation",
}


@pytest.fixture(scope="module")
def structure():
    pytest.importorskip("matplotlib")
    sys.path.insert(0, str(DOCS))
    yield importlib.import_module("structure")
    sys.path.remove(str(DOCS))
    sys.modules.pop("structure")


@pytest.fixture(scope="module")
def imports(structure):
    return list(structure.imports())


def test_imports_go_downwards(structure, imports):
    """Including imports in functions and for types."""
    found = [
        (structure.room_of(each.module), structure.room_of(each.target), each) for each in imports
    ]
    assert len(found) > 200
    assert not [
        each for here, there, each in found if here != there and FLOOR[here] <= FLOOR[there]
    ]


def test_no_circle_between_modules(structure, imports):
    """Including imports in functions and for types."""
    graph = {}
    for each in imports:
        graph.setdefault(each.target, set())
        graph.setdefault(each.module, set()).add(each.target)
    assert len(graph) > 100
    structure.floors(graph)  # raises on a cycle


def private(name):
    return name.startswith("_") and not name.endswith("__")


def owned(tree):
    """Names that a module defines: functions, classes, variables and attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def test_private_names_stay_in_their_module(structure):
    found = []
    for file in structure.modules().values():
        tree = ast.parse(file.read_text(encoding="utf-8"))
        mine = set(owned(tree)) | set(ALLOWED)
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and private(node.attr) and node.attr not in mine:
                if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
                    found.append(f"{file.name}, line {node.lineno}: {ast.unparse(node)}")
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gbdnn"):
                names = [each.name for each in node.names if private(each.name)]
                found += [f"{file.name}, line {node.lineno}: imports {name}" for name in names]
    assert not found
