"""When code is compiled, and what is said about it."""

import numpy as np
import pytest
from conftest import uncompiled

import gbdnn
from gbdnn.errors import MissingPackageError
from gbdnn.kernels import costs, gather
from gbdnn.kernels.fused import FUSED
from gbdnn.kernels.worth import Code


class Library:
    """A library that is compiled at once, or not at all."""

    is_at_hand, is_carried, seconds = False, False, 3.0

    def __init__(self, fault=None):
        self.fault, self.compiled = fault, 0

    def functions(self):
        self.compiled += 1
        if self.fault:
            raise self.fault
        return {"f": len}


def code(price, library=None):
    library = library or Library()
    return Code(lambda: library, lambda: price, "fused kernel")


def test_code_that_compiles_in_less_than_a_second_is_due_after_milliseconds():
    quick, slow = code(0.5e9), code(5e9)
    assert quick.work_left() == 5e6
    assert slow.work_left() == 1e9
    slow.went_without(4e6)
    assert slow.work_left() == 1e9 - 4e6
    slow.went_without(2e9)
    assert slow.work_left() == 0


def test_the_code_of_a_wheel_compiles_in_a_quarter_of_the_time(monkeypatch):
    monkeypatch.setattr(Library, "is_carried", True)
    assert code(8e9).work_left() == 0.4e9
    assert code(3e9).work_left() == 7.5e6


@pytest.mark.filterwarnings("error")
def test_one_message_at_the_first_slow_call():
    slow = code(5e9)
    slow.went_without(0.09e9)
    with pytest.warns(RuntimeWarning, match=r"about 5 s, once .* after 1 s of calls; .*compile\("):
        slow.went_without(0.02e9)
    slow.went_without(0.5e9)
    code(0.9e9).went_without(1e9)  # is compiled now
    code(np.inf).went_without(1e9)  # never is


@pytest.mark.filterwarnings("ignore:the fused kernel")
def test_a_network_called_with_single_inputs_is_compiled_when_the_calls_took_long(monkeypatch):
    """Nearly all of their time is the overhead of runs and layers."""
    uncompiled(monkeypatch)
    calls, each = 10, costs.RUN + 2 * costs.FULL_CALL
    monkeypatch.setattr(costs, "COMPILE_SMALL", 5 * (calls - 0.5) * each)
    monkeypatch.setattr(costs, "AT_ONCE", 0.0)
    net, x = gbdnn.Network([np.eye(8)] * 2), np.ones((1, 8))
    kernels = []
    while "fused" not in kernels and len(kernels) < 2 * calls:
        kernels.append(gbdnn.plan(net, x).kernel)
        gbdnn.infer(net, x)
    assert kernels == ["full"] * (calls - 1) + ["fused"]
    assert FUSED.code(np.dtype(float), one_by_one=True).work_left() == 0
    assert FUSED.code(np.dtype(float)).work_left() > 0  # of blocks, which no call needed


@pytest.mark.parametrize(("edges", "kernel"), [(1000, "full"), (200_000, "fused")])
def test_the_first_large_graph_product_is_compiled(edges, kernel, monkeypatch):
    uncompiled(monkeypatch)
    monkeypatch.setattr(gather, "_CODES", {np.dtype("f4"): code(0.9e9)})
    rows = gbdnn.arrays.sparse_rows.SparseRows.from_array(np.ones((1, edges), "f4"))
    monkeypatch.setattr(Library, "functions", lambda _: {"gather": len})
    assert gather.Gather(rows, "sum", 1, 64).kernel == kernel


def test_code_for_single_inputs_is_for_calls_without_blocks(monkeypatch):
    uncompiled(monkeypatch)
    found = code(0.9e9)
    monkeypatch.setitem(FUSED._codes, (np.dtype(float), True), found)
    assert found.functions()
    net, x = gbdnn.Network([np.eye(8)] * 2), np.ones((1, 8))
    assert gbdnn.plan(net, x).kernel == "fused"
    assert gbdnn.plan(net, x, deduplicate=True).kernel == "full"
    assert gbdnn.plan(net, np.ones((costs.SINGLES + 1, 8))).kernel == "full"


def test_a_compiled_network_needs_the_code_for_single_inputs(monkeypatch):
    """A failure is reported once; it is not tried again."""
    library = Library(RuntimeError("no LLVM"))
    broken = code(0.9e9, library)
    monkeypatch.setitem(FUSED._codes, (np.dtype(float), True), broken)
    with pytest.warns(RuntimeWarning, match="no fused kernel, .*: RuntimeError: no LLVM"):
        run = gbdnn.compile([2 * np.eye(3)])
    np.testing.assert_array_equal(run(np.ones(3)), [2, 2, 2])
    with pytest.raises(MissingPackageError, match="needs a working numba: RuntimeError: no LLVM"):
        broken.required()
    assert (broken.functions(), broken.work_left(), library.compiled) == (None, np.inf, 1)
