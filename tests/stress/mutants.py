"""Mutants of the package, drawn by a seed: how many of them do the tests catch?

    python tests/stress/mutants.py --count 300 --seed 0
    python tests/stress/mutants.py --only gbdnn/io/ --count 20 --limit 120

A mutant is one change of one expression or statement: a comparison turned round or its boundary
moved, + and - (* and /) exchanged, a condition negated, `and` and `or` exchanged, a number or a
truth value changed, a statement removed. Docstrings, annotations, decorators, `__all__`, imports
and the texts of errors stay as they are.

Each is put into a temporary copy of the project, after the tests that they meet have passed there
without a mutant: where one fails, every mutant would count as caught, so the failing tests are
named, and nothing else is done.

Tests of the module itself come first (``tests/ROOM/test_MODULE*.py``), those of its room next, and
for what survives these ``tests/integration``, the tests beside the rooms and, of kernels, those of
the rooms that call them. One that takes longer than `--limit` seconds in one of the three has timed
out, which counts as caught: an endless loop is one. The last lines are the counts, and the
survivors with their lines.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).parents[2]

_TURNED = {
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_BOUNDARY = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
_OTHER = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
# Statements that can go without leaving a name behind that no one has defined.
_REMOVED = (ast.Expr, ast.AugAssign, ast.Raise, ast.Break, ast.Continue, ast.Delete)

# Rooms that are tested in those that call them, too.
_CALLERS = {"kernels": ("engine", "training", "graph")}


@dataclass(frozen=True, order=True)
class Mutant:
    """A change of a file: what stands from `start` to `stop`, bytes, becomes `new`."""

    file: str
    line: int
    start: int
    stop: int
    kind: str
    new: str

    def applied(self, source: str) -> str:
        """Return the source with the change."""
        text = source.encode()
        return (text[: self.start] + self.new.encode() + text[self.stop :]).decode()

    def told(self, source: str) -> str:
        """Return place and change, for people."""
        old = source.encode()[self.start : self.stop].decode()
        old, new = (" ".join(each.split())[:80] for each in (old, self.new))
        return f"{self.file}:{self.line}: {self.kind}: {old}  ->  {new}"


def mutants(source: str, file: str) -> list[Mutant]:
    """Return all mutants of a module."""
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    for node, is_condition in _changeable(ast.parse(source)):
        start = starts[node.lineno - 1] + node.col_offset
        stop = starts[node.end_lineno - 1] + node.end_col_offset
        found += [
            Mutant(file, node.lineno, start, stop, kind, new)
            for kind, new in _changes(node, is_condition)
        ]
    return found


def _changeable(node):
    """Yield the expressions and statements that can be changed, and whether each is a condition."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for each in value if isinstance(value, list) else [value]:
            if not isinstance(each, ast.AST) or _is_left(each):
                continue
            if isinstance(each, ast.expr | ast.stmt):
                yield each, name == "test" and isinstance(node, ast.If | ast.While)
            if not isinstance(each, ast.Raise):  # its text is for people
                yield from _changeable(each)


def _is_left(node):
    """Whether a node stays as it is, with all that is in it."""
    if isinstance(node, ast.JoinedStr | ast.Import | ast.ImportFrom):
        return True
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.If):
        return ast.unparse(node.test) == "TYPE_CHECKING"
    targets = getattr(node, "targets", [])
    return any(getattr(each, "id", "").startswith("__") for each in targets)


def _changes(node, is_condition):
    """Yield kinds of change, and what is to stand in a node's place."""
    if is_condition and not isinstance(node, ast.Compare | ast.UnaryOp):
        yield "condition", f"({ast.unparse(ast.UnaryOp(ast.Not(), node))})"
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        for kind, other in (("comparison", _TURNED), ("boundary", _BOUNDARY)):
            if type(node.ops[0]) in other:
                yield kind, _changed(node, ops=[other[type(node.ops[0])]()])
    elif isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in _OTHER:
        yield "operator", _changed(node, op=_OTHER[type(node.op)]())
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield "truth", repr(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield "number", f"({node.value + 1!r})"
    elif isinstance(node, _REMOVED) or (isinstance(node, ast.Assign) and _sets_a_part(node)):
        yield "removed", "pass"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "condition", f"({ast.unparse(node.operand)})"
    if isinstance(node, ast.IfExp):
        yield "condition", _changed(node, test=ast.UnaryOp(ast.Not(), node.test))


def _sets_a_part(node):
    """Whether an attribute or an element is assigned to, which no name hangs on."""
    return isinstance(node.targets[0], ast.Attribute | ast.Subscript)


def _changed(node, **fields):
    other = copy.copy(node)
    for name, value in fields.items():
        setattr(other, name, value)
    return f"({ast.unparse(other)})"


def drawn(count: int, seed: int, only: str = "", root: Path = ROOT) -> list[Mutant]:
    """Return some mutants of the package, or of the files whose paths begin with `only`."""
    found = []
    for path in sorted((root / "gbdnn").rglob("*.py")):
        file = path.relative_to(root).as_posix()
        if file.startswith(only):
            found += mutants(path.read_text(encoding="utf-8"), file)
    return sorted(random.Random(seed).sample(found, min(count, len(found))))


def nearest(file: str, root: Path) -> list[list[str]]:
    """Return the tests that can reach a module, the nearest first."""
    _, *rooms, name = Path(file).with_suffix("").parts
    folder = root.joinpath("tests", *rooms[:1])
    near = sorted(folder.glob(f"test_{name.strip('_')}*.py"))
    beside = sorted((root / "tests").glob("test_*.py"))
    callers = [root / "tests" / each for room in rooms[:1] for each in _CALLERS.get(room, ())]
    steps = [near, [folder] if rooms else [], [*callers, root / "tests/integration", *beside]]
    there = [[path.relative_to(root).as_posix() for path in x if path.exists()] for x in steps]
    return list(filter(None, there))


def outcome(mutant: Mutant, copied: Path, limit: float, workers: int, steps: int = 3) -> str:
    """Return caught, survived or timed out."""
    path = copied / mutant.file
    source = path.read_text(encoding="utf-8")
    path.write_text(mutant.applied(source), encoding="utf-8")
    try:
        for tests in nearest(mutant.file, copied)[:steps]:
            code, _ = _pytest(tests, copied, limit, workers)
            if code is None:
                return "timed out"
            if code not in (0, 5):  # 5: no test was collected
                return "caught"
        return "survived"
    finally:
        path.write_text(source, encoding="utf-8")


def failing(files: set[str], copied: Path, limit: float, workers: int, steps: int = 3) -> list[str]:
    """Return which tests of these modules fail, or take too long, while nothing is changed."""
    found = []
    for tests in sorted({tuple(x) for file in files for x in nearest(file, copied)[:steps]}):
        code, printed = _pytest([*tests], copied, limit, workers, "--maxfail=20", "-rfE")
        names = [line for line in printed.splitlines() if line.startswith(("FAILED ", "ERROR "))]
        if code is None:
            found.append(f"no end after {limit:g} s: {' '.join(tests)}")
        elif code not in (0, 5):
            found += names or [f"exit code {code}: {' '.join(tests)}"]
    return list(dict.fromkeys(found))


def _pytest(
    tests: list[str], copied: Path, limit: float, workers: int, *more: str
) -> tuple[int | None, str]:
    """Return the exit code of the tests, None where they take too long, and what they print."""
    options = ["-x", "-q", "-n", str(workers), "-p", "no:cacheprovider", *more]
    environment = {
        "PYTHONPATH": str(copied), "PYTHONDONTWRITEBYTECODE": "1",
        "GBDNN_CACHE_DIR": str(copied / "cache"),
    }  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *options, f"--basetemp={copied / 'tmp'}", *tests],
        cwd=copied, env=os.environ | environment, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        printed, _ = process.communicate(timeout=limit)
        return process.returncode, printed
    except subprocess.TimeoutExpired:
        return None, ""
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def main() -> None:
    """Draw mutants, and tell which of them the tests catch."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=300, help="mutants (default: 300)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", metavar="PATH", help="such as gbdnn/io/")
    parser.add_argument("--limit", type=float, default=300, help="seconds of a step's tests")
    parser.add_argument("--steps", type=int, default=3, help="1: tests of the module itself alone")
    parser.add_argument("--workers", type=int, default=2, help="of pytest")
    parser.add_argument("--list", action="store_true", help="print the mutants, and run nothing")
    asked = parser.parse_args()
    chosen = drawn(asked.count, asked.seed, asked.only)
    sources = {each.file: (ROOT / each.file).read_text(encoding="utf-8") for each in chosen}
    if asked.list:
        print(*(each.told(sources[each.file]) for each in chosen), sep="\n")
        return
    found: dict[str, list[Mutant]] = {"caught": [], "timed out": [], "survived": []}
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copied = Path(folder) / "project"
        unneeded = shutil.ignore_patterns(".git", "__pycache__", "_build", ".*_cache")
        shutil.copytree(ROOT, copied, ignore=unneeded)
        if broken := failing(set(sources), copied, asked.limit, asked.workers, asked.steps):
            sys.exit("tests fail without a mutant:\n" + "\n".join(broken))
        for each in chosen:
            began = perf_counter()
            what = outcome(each, copied, asked.limit, asked.workers, asked.steps)
            found[what].append(each)
            told = each.told(sources[each.file])
            print(f"{what} ({perf_counter() - began:.0f} s): {told}", flush=True)
    print(f"\n{len(chosen)} mutants:", ", ".join(f"{len(found[key])} {key}" for key in found))
    print(*(each.told(sources[each.file]) for each in found["survived"]), sep="\n")


if __name__ == "__main__":
    main()
