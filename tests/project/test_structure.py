"""The folders import only downwards, and private names are used in their own module alone."""

import ast
import importlib
import sys
import tomllib
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"

# Each room imports from those below it. A new room finds its place here.
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

# Private names of other packages, or of none: what else there is would be worse.
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

# What starts threads.
STARTERS = ("Thread", "ThreadPoolExecutor")


@pytest.fixture(scope="module")
def structure():
    pytest.importorskip("matplotlib")
    sys.path.insert(0, str(DOCS))
    yield importlib.import_module("structure")
    sys.path.remove(str(DOCS))
    sys.modules.pop("structure")


def test_every_room_has_its_place(structure):
    assert set(structure.rooms()) <= set(FLOOR)


def test_imports_go_downwards(structure):
    """Those in functions and for types alone, too."""
    found = [
        (structure.room_of(each.module), structure.room_of(each.target), each)
        for each in structure.imports()
    ]
    assert len(found) > 200
    assert not [
        each for here, there, each in found if here != there and FLOOR[here] <= FLOOR[there]
    ]


def test_what_infer_is_made_of_does_not_call_it(structure):
    below = {
        "arrays", "distributed", "engine", "gallery", "io", "kernels", "model", "serving",
        "training",
    }  # fmt: skip
    assert below <= set(structure.rooms())
    assert not [
        each
        for each in structure.imports()
        if each.target == "gbdnn.inference" and structure.room_of(each.module) in below
    ]


def test_few_rooms_on_few_floors_without_a_circle(structure):
    graph = structure.between_rooms("module", "function")
    floors = structure.floors(graph)  # raises on a circle
    assert len(floors) <= 22
    assert max(floors.values()) < 12


def test_no_circle_between_modules(structure):
    """Imports for types, and in functions, count."""
    graph = {}
    for each in structure.imports():
        graph.setdefault(each.target, set())
        graph.setdefault(each.module, set()).add(each.target)
    assert len(graph) > 100
    structure.floors(graph)


def test_a_circle_is_found(structure):
    with pytest.raises(ValueError, match="cycle"):
        structure.floors({"a": {"b"}, "b": {"a"}})


@pytest.mark.slow
def test_picture_and_tree_show_every_room(structure, tmp_path):
    structure.make(tmp_path)
    tree = (tmp_path / "tree.txt").read_text()
    words = {text.get_text() for text in structure.picture().axes[0].texts}
    for name, room in structure.rooms().items():
        assert name == "gbdnn" or f"\n  {room.title} " in tree
        assert name.startswith("_") or room.title in words
    assert (tmp_path / "structure.svg").stat().st_size > 10_000


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


def test_there_is_one_of_each(structure):
    """Of what makes LayerStats, takes blocks through chains, makes fingerprints, locks files.

    One module starts threads that compute; others read layers, or wait for a signal.
    """
    makers, runners, starters, marks, locks = set(), set(), set(), set(), set()
    for name, file in structure.modules().items():
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "LayerStats":
                makers.add(name)
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("chain.run"):
                runners.add(name)
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(STARTERS):
                starters.add(name)
            if isinstance(node, ast.Constant) and node.value == "xxhash":
                marks.add(name)
            if isinstance(node, ast.Attribute) and node.attr in ("flock", "lockf"):
                locks.add(name)
    assert marks == {"gbdnn.io.store.fingerprints"}
    assert locks == {"gbdnn.io.store.writer"}
    assert makers == {"gbdnn.engine.stats"}
    assert runners == {"gbdnn.engine.block_run"}
    reading = {"gbdnn.engine.prefetch", "gbdnn.model.readers"}
    assert starters == {"gbdnn.runtime.threads", "gbdnn.cli.signals", *reading}


def test_every_test_has_its_place(structure):
    """A folder for each room; beside these, what tests share, and what is about several rooms."""
    here = Path(__file__).parents[1]
    folders = {each.name for each in here.iterdir() if any(each.glob("*.py"))}
    rooms = {name for name in structure.rooms() if (here.parent / "gbdnn" / name).is_dir()}
    assert folders == rooms - {"gbdnn"} | {"data", "integration", "project", "support"}
    modules = {each.stem for each in (here.parent / "gbdnn").glob("*.py")}
    alone = {each.stem.removeprefix("test_") for each in here.glob("test_*.py")}
    assert alone <= modules
    configured = tomllib.loads((here.parent / "pyproject.toml").read_text())
    found = configured["tool"]["pytest"]["ini_options"]["pythonpath"]
    assert set(found) == {"tests"} | {f"tests/{each}" for each in folders}
