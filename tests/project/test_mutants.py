"""What `tests/support/mutants.py` changes, and what it leaves as it is."""

import ast
import sys

import mutants
import pytest

SOURCE = '''
"""A 1 < 2 of a docstring."""
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    LIMIT = 9
__all__ = ["f"]

@cache(maxsize=None, typed=True)
def f(x: Literal[3] = 4, y=True) -> Literal[5]:
    """And 6."""
    if x < 7 and not y:
        raise ValueError("above %d" % (8 + x))
    self.total += x
    return x - 1 if y else f"{x + 2}"
'''


def test_what_is_changed():
    found = mutants.mutants(SOURCE, "f.py")
    told = {each.told(SOURCE).removeprefix("f.py:") for each in found}
    assert told == {
        "9: number: 4  ->  (5)",
        "9: truth: True  ->  False",
        "11: condition: x < 7 and not y  ->  (not (x < 7 and (not y)))",
        "11: operator: x < 7 and not y  ->  (x < 7 or not y)",
        "11: comparison: x < 7  ->  (x >= 7)",
        "11: boundary: x < 7  ->  (x <= 7)",
        "11: number: 7  ->  (8)",
        "11: condition: not y  ->  (y)",
        '12: removed: raise ValueError("above %d" % (8 + x))  ->  pass',
        "13: removed: self.total += x  ->  pass",
        "14: condition: x - 1 if y else f\"{x + 2}\"  ->  (x - 1 if not y else f'{x + 2}')",
        "14: operator: x - 1  ->  (x + 1)",
        "14: number: 1  ->  (2)",
    }
    whole = ast.dump(ast.parse(SOURCE))
    assert all(ast.dump(ast.parse(each.applied(SOURCE))) != whole for each in found)


def test_conditions_are_negated():
    source = "if a(b):\n    pass\nwhile c:\n    d()\n"
    told = [each.told(source) for each in mutants.mutants(source, "f.py")]
    assert "f.py:1: condition: a(b)  ->  (not a(b))" in told
    assert "f.py:3: condition: c  ->  (not c)" in told


def test_a_seed_draws_the_same_mutants_of_a_part():
    drawn = mutants.drawn(20, 3, "gbdnn/io/")
    assert drawn == mutants.drawn(20, 3, "gbdnn/io/")
    assert drawn != mutants.drawn(20, 4, "gbdnn/io/")
    assert len(set(drawn)) == 20
    assert all(each.file.startswith("gbdnn/io/") for each in drawn)


def test_the_nearest_tests_come_first():
    near, room, last = mutants.nearest("gbdnn/io/idx.py", mutants.ROOT)
    assert near == ["tests/io/test_idx.py"]
    assert room == ["tests/io"]
    assert "tests/integration" in last
    assert "tests/test_answers.py" in last
    assert "tests/training" not in last


def test_kernels_are_tested_where_they_are_called():
    *_, last = mutants.nearest("gbdnn/kernels/compiled/steps.py", mutants.ROOT)
    assert {"tests/engine", "tests/training", "tests/graph"} <= set(last)


def copied(tmp_path, test):
    """A project of one module and one test."""
    (tmp_path / "gbdnn/io").mkdir(parents=True)
    (tmp_path / "gbdnn/__init__.py").touch()
    (tmp_path / "gbdnn/io/half.py").write_text(
        "def half(x):\n    if x < 0:\n        pass\n    return x / 2\n"
    )
    (tmp_path / "tests/io").mkdir(parents=True)
    (tmp_path / "tests/io/test_half.py").write_text(f"from gbdnn.io.half import half\n\n{test}")


@pytest.mark.slow  # processes that run pytest
def test_a_mutant_that_no_test_reaches_survives(tmp_path):
    copied(tmp_path, "def test_half():\n    assert half(4) == 2\n")
    assert mutants.failing({"gbdnn/io/half.py"}, tmp_path, 60, 0) == []
    found = mutants.drawn(9, 0, "gbdnn/io/", tmp_path)
    outcomes = {
        each.kind: mutants.outcome(each, tmp_path, 60, 0)
        for each in found
        if each.kind in ("operator", "boundary")
    }
    assert outcomes["operator"] == "caught"
    assert outcomes["boundary"] == "survived"
    assert "x / 2" in (tmp_path / "gbdnn/io/half.py").read_text()


@pytest.mark.slow
def test_no_mutant_is_tried_where_tests_fail_without_one(tmp_path, monkeypatch):
    right, wrong = (f"def test_{n}():\n    assert half(4) == {n}\n" for n in (2, 3))
    copied(tmp_path, f"{right}\n\n{wrong}")
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    monkeypatch.setattr(mutants, "outcome", None)
    options = ["--only", "gbdnn/io/", "--count", "1", "--workers", "0"]
    monkeypatch.setattr(sys, "argv", ["mutants.py", *options])
    monkeypatch.setattr(mutants.drawn, "__defaults__", ("", tmp_path))
    with pytest.raises(SystemExit) as ended:
        mutants.main()
    first, line = ended.value.code.splitlines()
    assert first == "tests fail without a mutant:"
    assert line.startswith("FAILED tests/io/test_half.py::test_3")
    found = mutants.failing({"gbdnn/io/half.py"}, tmp_path, 0.01, 0)
    assert found == [
        "no end after 0.01 s: tests/io",
        "no end after 0.01 s: tests/io/test_half.py",
    ]
