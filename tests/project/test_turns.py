"""The loop by which the benchmarks time, and the sentence that it ends in."""

import importlib
import itertools
import sys
from pathlib import Path

import pytest

pytest.importorskip("typer")

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def turns(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS / "support")
    return importlib.import_module("turns")


def test_programs_take_turns(turns):
    clock, told = itertools.count(1), []
    calls = {name: lambda: {"seconds": next(clock)} for name in "ab"}
    found = turns.in_turn(calls, 4, told=lambda turn, name, run: told.append((turn, name)))
    assert found.first == {"a": [{"seconds": 1}], "b": [{"seconds": 2}]}
    assert [turn for turn, _ in told] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert "".join(name for _, name in told) == "abbabaabab"
    assert found.seconds("a") == [4, 6, 7, 9]
    assert found.median("b") == 6.5
    assert found.ratios("a", "b") == [4 / 3, 6 / 5, 7 / 8, 9 / 10]


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_every_program_follows_every_other_one(turns, count):
    names = list(range(count))
    orders = [turns.ordered(names, turn) for turn in range(2 * count)]
    assert all(sorted(order) == names for order in orders)
    assert {order[0] for order in orders} == set(names)
    if count == 3:
        assert len(set(map(tuple, orders))) == 6
    for a, b in itertools.permutations(names, 2):
        assert any(order.index(a) < order.index(b) for order in orders)


def test_what_is_made_of_an_answer(turns):
    run = turns.timed(lambda: [3], lambda answer: {"length": len(answer)})()
    assert run.keys() == {"seconds", "cpu", "length"}
    assert run["length"] == 1
    assert run["seconds"] > 0
    calls = []
    assert len(turns.repeated(lambda: calls.append(1), 3)) == 3
    assert len(calls) == 4


def test_quartiles(turns):
    assert turns.quartiles([7, 1, 2, 3, 4, 5, 6]) == (2, 4, 6)
    assert turns.quartiles([7]) == (7, 7, 7)


def test_a_verdict_names_the_faster_program(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS / "comparison"), *sys.path])
    verdict = importlib.import_module("your_model").verdict

    def cells(inputs, **seconds):
        return [{"inputs": inputs, "program": name, "p50": s} for name, s in seconds.items()]

    told = [
        *cells(1, infer=3.0, compiled=2.0, torch=1.0, onnxruntime=4.0),
        *cells(32, infer=3.0, compiled=4.0, torch=6.0, onnxruntime=9.0),
        *cells(1000, infer=2.0, compiled=4.0, torch=6.0, onnxruntime=5.0),
        *cells(2000, infer=5.0, compiled=5.0, torch=5.1, onnxruntime=9.0),
    ]
    assert verdict(told) == (
        "PyTorch dense is faster with 1 input (2.00 times as fast as gbdnn.compile);"
        " gbdnn.infer is faster with 32 inputs (2.00 times as fast as PyTorch dense),"
        " with 1,000 inputs (2.50 times as fast as ONNX Runtime);"
        " neither is faster with 2,000 inputs (gbdnn.infer and PyTorch dense)."
    )
    assert "nothing to compare with" in verdict(cells(1, infer=3.0, compiled=2.0))
