"""The subpackages import only from those below them, and private names stay in their module."""

import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from imports import imported

PACKAGE = Path(__file__).parents[2] / "gbdnn"

# Each subpackage or module imports only from those below it in this tree.
PAGE = (PACKAGE.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
TREE = re.findall(r"^  (\w+)(?:/|\.py) ", PAGE, re.MULTILINE)
# gbdnn/__init__.py, the index of public names, is right below the command line.
TREE.insert(TREE.index("cli") + 1, "gbdnn")

# Private names of other packages that have no public equivalent.
ALLOWED = {
    # Public in spite of their names.
    "_getframe", "_replace", "_save_to_state_dict",
    # How the standard library renews locks in a forked child.
    "_at_fork_reinit",
    # concurrent.futures has no other way to give up tasks of a broken pool.
    "_call_queue",
    # What C receives for an operator or a Context of python-graphblas.
    "_carg",
    # The type of a function of a library, in an annotation.
    "_NamedFuncPointer",
    # python-graphblas has no other way to ask whether it is initialised.
    "_init_params",
    # PyTorch's named_children leaves a module out that it has named before.
    "_modules",
    # PyTorch has no other way to ask for the hooks of a module, or of all modules.
    "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks",
    "_global_forward_hooks", "_global_forward_pre_hooks",
    # PyTorch's named_parameters, named_buffers and torch.jit.is_tracing take too long in each call.
    "_parameters", "_buffers", "_get_tracing_state",
    # PyTorch counts the changes of a tensor in place, and shows the count only here.
    "_version",
    # PyTorch's pruning hooks have no public name of their parameter.
    "_tensor_name",
    # PyTorch has no other way to ask what records or transforms operations, and for its modes.
    "_C", "_current_level", "_functorch", "_len_torch_dispatch_stack", "_len_torch_function_stack",
    "_get_current_function_mode_stack", "_device",
    # PyTorch has no other way to look at a sparse tensor before it is coalesced.
    "_indices", "_values",
}  # fmt: skip


def modules():
    """The file of every module, by its full name."""
    found = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def subpackage(module):
    """The folder or the module below ``gbdnn/`` that a module is in."""
    return [*module.split("."), "gbdnn"][1]


@pytest.fixture(scope="module")
def imports():
    """What modules import of each other, including imports in functions and for types."""
    known, found = modules(), set()
    for module, file in known.items():
        for name in imported(file):
            assert not name.startswith("."), f"{module}: a relative import, {name}"
            while name and name not in known:
                name = name.rpartition(".")[0]
            if name:
                found.add((module, name))
    return found


def test_imports_go_downwards(imports):
    pairs = {(subpackage(module), subpackage(other)) for module, other in imports}
    assert len(pairs) > 50
    assert not [(a, b) for a, b in pairs if TREE.index(a) > TREE.index(b)]
    assert sorted(TREE) == sorted({subpackage(module) for module in modules()})


def test_no_circle_between_modules(imports):
    graph = {}
    for module, other in imports:
        graph.setdefault(module, set()).add(other)
    assert len(graph) > 100
    TopologicalSorter(graph).prepare()  # raises on a cycle


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


def test_private_names_stay_in_their_module():
    found = []
    for file in modules().values():
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
