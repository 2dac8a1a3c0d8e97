"""Change the package at random, one expression at a time: which changes do the tests not notice?

    pip install coverage
    python tests/stress/mutants.py                     # the fixed list: 200 mutants
    python tests/stress/mutants.py gbdnn/io/ --count 20

A mutant turns a comparison round or moves its boundary, exchanges operators, negates a condition,
changes a number or removes a statement. The default tests run once under coverage, in a copy of the
project, which shows the branches that they take and the tests that reach each line. A mutant meets
the tests that reach its line, those named after its module first, then one case of each test before
the next case, up to `--seconds` of them. What runs when a module is imported is reached by no test
in particular and meets the tests of its subpackage. Every mutant that survives is printed, and at
the end how many were killed.

The list is fixed: mutants are ordered by a hash of their file and change, so that an edit of a line
replaces the mutants of this line alone.
"""

import argparse
import ast
import copy
import functools
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import coverage
import pytest

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
    """Return for each mutant of a module its file, lines, a description, and the new source."""
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
            lines = range(old.lineno, old.end_lineno + 1)
            found.append((file, lines, told, text[:start] + code.encode() + text[stop:]))
    return found


def order(mutant):
    """Return a number that depends on the file and the change alone, not on the line's number."""
    file, _, told, _ = mutant
    return hashlib.sha256(f"{file}{told.partition(': ')[2]}".encode()).hexdigest()


# This module is a plugin of pytest, too: it names the running test to coverage.
seconds, failed = defaultdict(float), set()


def pytest_collection_modifyitems(items):
    """Interrupted calls end the tracing, so their tests come last."""
    items.sort(key=lambda item: item.nodeid.startswith("tests/runtime/"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    coverage.Coverage.current().switch_context(item.nodeid)
    result = yield
    coverage.Coverage.current().switch_context("")
    return result


def pytest_runtest_logreport(report):
    seconds[report.nodeid] += report.duration
    if report.failed:
        failed.add(report.nodeid)


def pytest_sessionfinish():
    passed = {name: taken for name, taken in seconds.items() if name not in failed}
    Path(os.environ["GBDNN_SECONDS"]).write_text(json.dumps(passed))


class Reached:
    """The tests that reach a line, with their seconds, from one run under coverage."""

    def __init__(self, folder, kept):
        file, self._data = kept / "seconds.json", coverage.CoverageData(kept / "reached")
        command, data = [sys.executable, "-m", "coverage"], f"--data-file={kept}/reached"
        tests = ["-m", "pytest", "-q", "-n0", "-p", "mutants", "-p", "no:cacheprovider"]
        run(
            [*command, "run", "--branch", "--source=gbdnn", data, *tests], folder,
            GBDNN_SECONDS=str(file), PYTHONPATH=f"{folder}:{Path(__file__).parent}",
        )  # fmt: skip
        run([*command, "report", "-m", "--skip-covered", data], folder)
        self._seconds = json.loads(file.read_text())
        self._data.read()
        files = {each.partition("/gbdnn/")[2]: each for each in self._data.measured_files()}
        self._lines = functools.cache(
            lambda file: self._data.contexts_by_lineno(files.get(file.removeprefix("gbdnn/"), ""))
        )

    def tests(self, file, lines, limit):
        """Return tests in the order to run, at most `limit` seconds of them, and their seconds."""
        reached, folder = self._lines(file), f"tests/{Path(file).parts[1]}/"
        found = {test for line in lines for test in reached.get(line, ())} & self._seconds.keys()
        if not found:
            found = {test for test in self._seconds if test.startswith(folder)}
        near, cases, order = f"{folder}test_{Path(file).stem.strip('_')}", defaultdict(int), []
        for test in sorted(found, key=lambda test: (self._seconds[test], test)):
            cases[test.partition("[")[0]] += 1
            case = cases[test.partition("[")[0]]
            far = 0 if test.startswith(near) else 1 if test.startswith(folder) else 2
            order.append((case if far else 0, far, self._seconds[test], test))
        chosen, total = [], 0.0
        for *_, seconds, test in sorted(order):
            if total + seconds > limit and chosen:
                break
            chosen.append(test)
            total += seconds
        return chosen, total


def run(command, folder, limit=None, **environment):
    """Run a command; return status and output; the status is None after `limit` seconds."""
    process = subprocess.Popen(
        command, cwd=folder, env=os.environ | {"PYTHONPATH": folder} | environment, text=True,
        start_new_session=True, stdout=None if limit is None else subprocess.PIPE,
    )  # fmt: skip
    try:
        output = process.communicate(timeout=limit)[0]
        return process.returncode, output
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return None, process.communicate()[0]


def failing(tests, folder, limit):
    """Return the first test that fails, or what else ended the tests; nothing if all pass."""
    command = [sys.executable, "-m", "pytest", "-xq", "-n0", "-p", "no:cacheprovider", *tests]
    status, output = run(command, folder, limit, PYTHONDONTWRITEBYTECODE="1")
    if status in (0, 5):  # 5: no tests were collected
        return ""
    found = re.search(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", output, re.MULTILINE)
    return found[1] if found else f"status {status}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", nargs="*", default=FOLDERS, help="beginnings of modules' paths")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=40, help="of tests for a mutant")
    given = parser.parse_args()
    os.chdir(ROOT)
    files = [str(each) for each in sorted(Path("gbdnn").rglob("*.py"))]
    chosen = [file for file in files if file.startswith(tuple(given.folders))]
    found = [each for file in chosen for each in mutants(file)]
    drawn = sorted(found, key=order)[: given.count]
    survivors = 0
    with tempfile.TemporaryDirectory() as name:
        folder = f"{name}/project"
        shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".git", ".venv", "_build"))
        reached = Reached(folder, Path(name))
        noticed = set()
        for file, lines, told, source in drawn:
            Path(folder, file).write_bytes(source)
            tests, seconds = reached.tests(file, lines, given.seconds)
            for some in filter(None, (tests[:50], tests[50:])):
                if found := failing(some, folder, 60 + 4 * seconds):
                    noticed.add(found)
                    break
            else:
                survivors += 1
                print(f"survived {len(tests)} tests: {told}", flush=True)
            shutil.copy2(file, Path(folder, file))
        tests = sorted(test for test in noticed if "::" in test)
        while tests and (found := failing(tests, folder, 900)):
            print(f"fails without a mutant: {found}")
            tests = tests[tests.index(found) + 1 :] if found in tests else []
    print(f"{len(drawn)} mutants: {len(drawn) - survivors} killed, {survivors} survived")
