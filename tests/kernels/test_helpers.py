"""Threads that help with single inputs and narrow blocks."""

import os
import signal
import sys

import numpy as np
import pytest

from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.kernels.compiled import table
from gbdnn.kernels.fused_shares import FusedSingle
from gbdnn.model.layer_info import LayerInfo

GATE, WITHIN = 8, 16  # counters


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_while_a_helper_is_within_a_call_does_not_hang_the_child():
    W = np.eye(4, dtype="f4")
    info, parts = LayerInfo((4, 4), 4, 1, W.dtype), [(0, W), (0, W[:, :2]), (2, W[:, 2:])]
    whole, *halves = (
        table.prepare_rows(SparseRows.from_array(A.copy()), 0.0, info, first=first, dense=False)
        for first, A in parts
    )
    single, x, found = FusedSingle([[whole]], [halves], [info], 0), np.arange(4.0), np.empty(4)
    single._job._asleep = []
    single._job._counters[[GATE, WITHIN]] = 1, -1
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # a process that hangs is ended
        os._exit(single.run(x, found) != -1 or not np.array_equal(found, x))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
