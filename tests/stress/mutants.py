"""Change the package at random, one expression at a time: which changes do the tests not notice?

    python tests/stress/mutants.py                     # the fixed list: 200 mutants
    python tests/stress/mutants.py gbdnn/io/ --count 20

A mutant turns a comparison round or moves its boundary, exchanges operators, negates a condition,
changes a number or removes a statement. It runs in a copy of the project, first against the tests
of its module (``tests/SUBPACKAGE/test_MODULE*.py``), then against those of its subpackage, then
against all. Every mutant that survives is printed, and at the end how many were killed.

The list is fixed: mutants are ordered by a hash of their file and change, so that an edit of a line
replaces the mutants of this line alone.
"""

import argparse
import ast
import copy
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = [f"gbdnn/{name}/" for name in ("arrays", "engine", "io", "kernels", "training")]
TURNED = {
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
BOUNDARY = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
EXCHANGED = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
REMOVED = (ast.Expr, ast.AugAssign, ast.Raise, ast.Break, ast.Continue, ast.Delete)
KEPT = ("annotation", "returns", "decorator_list")


def expressions(node):
    """Yield what can change: no docstrings, annotations, decorators, imports or messages."""
    for name, value in ast.iter_fields(node):
        for each in value if isinstance(value, list) else [value]:
            if name in KEPT or isinstance(each, ast.JoinedStr | ast.Import | ast.ImportFrom):
                continue
            if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant):
                continue
            if isinstance(each, ast.If) and ast.unparse(each.test) == "TYPE_CHECKING":
                continue
            if isinstance(each, ast.expr | ast.stmt):
                yield each
            if isinstance(each, ast.AST) and not isinstance(each, ast.Raise):
                yield from expressions(each)


def changes(node):
    """Yield pairs of a part of a node and what may replace it."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        for table in (TURNED, BOUNDARY):
            if type(node.ops[0]) in table:
                yield node, changed(node, ops=[table[type(node.ops[0])]()])
    elif isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in EXCHANGED:
        yield node, changed(node, op=EXCHANGED[type(node.op)]())
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield node, ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield node, ast.Constant(node.value + 1)
    elif isinstance(node, REMOVED):
        yield node, ast.Pass()
    elif isinstance(node, ast.If | ast.While | ast.IfExp):
        yield node.test, ast.UnaryOp(ast.Not(), node.test)


def changed(node, **fields):
    other = copy.copy(node)
    for name, value in fields.items():
        setattr(other, name, value)
    return other


def mutants(file):
    """Return for each mutant of a module its file, a description, and the new source."""
    text, found = (ROOT / file).read_bytes(), []
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node in expressions(ast.parse(text)):
        for old, new in changes(node):
            start = starts[old.lineno - 1] + old.col_offset
            stop = starts[old.end_lineno - 1] + old.end_col_offset
            code = ast.unparse(new) if isinstance(new, ast.stmt) else f"({ast.unparse(new)})"
            told = f"{file}:{old.lineno}: {ast.unparse(old)[:70]}  ->  {code[:70]}"
            found.append((file, told, text[:start] + code.encode() + text[stop:]))
    return found


def order(mutant):
    """Return a number that depends on the file and the change alone, not on the line's number."""
    file, told, _ = mutant
    return hashlib.sha256(f"{file}{told.partition(': ')[2]}".encode()).hexdigest()


def tests_of(file):
    """Return the tests that can notice a change of a module, the nearest first."""
    *folders, name = Path(file).with_suffix("").parts[1:]
    folder = Path("tests", *folders[:1])
    near = [str(each) for each in sorted(folder.glob(f"test_{name.strip('_')}*.py"))]
    return [each for each in (near, [str(folder)] if folders else [], ["tests"]) if each]


def fails(tests, folder, limit):
    """Return whether a test fails, or all of them take longer than `limit` seconds."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-xqn2", "-p", "no:cacheprovider", *tests], cwd=folder,
        env=os.environ | {"PYTHONPATH": folder}, start_new_session=True,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        return process.wait(limit) not in (0, 5)  # 5: no tests were collected
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return True


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", nargs="*", default=FOLDERS, help="beginnings of modules' paths")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--limit", type=float, default=900, help="seconds for the tests")
    parser.add_argument("--list", action="store_true", help="print the mutants, and run no tests")
    given = parser.parse_args()
    os.chdir(ROOT)
    files = [str(each) for each in sorted(Path("gbdnn").rglob("*.py"))]
    found = [
        each for file in files if file.startswith(tuple(given.folders)) for each in mutants(file)
    ]
    drawn = sorted(found, key=order)[: given.count]
    if given.list:
        sys.exit("\n".join(told for _, told, _ in drawn))
    survivors = 0
    with tempfile.TemporaryDirectory() as name:
        folder = f"{name}/project"
        shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".git", ".venv", "_build"))
        for tests in {tuple(tests) for file, *_ in drawn for tests in tests_of(file)}:
            if fails(tests, folder, given.limit):
                sys.exit(f"these tests fail without a mutant: {' '.join(tests)}")
        for file, told, source in drawn:
            Path(folder, file).write_bytes(source)
            if not any(fails(tests, folder, given.limit) for tests in tests_of(file)):
                survivors += 1
                print(f"survived: {told}", flush=True)
            shutil.copy(file, Path(folder, file))
    print(f"{len(drawn)} mutants: {len(drawn) - survivors} killed, {survivors} survived")
