"""The progress of a run, for whoever watches."""

import numpy as np
import pytest
import scipy.sparse as sp
from networks import converging

import gbdnn
from gbdnn.engine.progress import RunProgress, current, watched
from gbdnn.engine.stats import layer_stats


@pytest.mark.parametrize("inputs", [1, 500])
def test_shallow_networks_and_runs_that_nobody_watches(inputs):
    W, X = np.full((64, 64), 0.01), np.ones((inputs, 64))
    with watched(RunProgress()) as work:
        gbdnn.infer([W, W], X, engine="fused")
    assert (work.done, work.fraction) == (inputs * 2 * 64 * 64, 1)
    assert inputs == 1 or set(work.seconds) == {"reading", "writing"}
    gbdnn.infer([W, W, W], X)
    assert work.done == inputs * 2 * 64 * 64
    assert current() is not work


def test_inputs_without_entries_count_once_if_they_are_read_again():
    """Parts that are not begun when the memory is full are read again."""
    X = np.ones((5000, 500))
    X[::2] = 0
    with watched(RunProgress()) as work:
        gbdnn.infer(
            [np.eye(500)] * 8, sp.coo_array(X), engine="sparse", deduplicate=True, memory="1MiB",
            nthreads=1,
        )  # fmt: skip
    assert work.fraction == 1


def test_nothing_takes_less_than_no_time(monkeypatch):
    noted, (net, X) = [], converging()
    monkeypatch.setattr(RunProgress, "spent", lambda _, **seconds: noted.extend(seconds.values()))
    gbdnn.infer(net, X, engine="fused", deduplicate=True, callback=id)
    assert len(noted) > 2
    assert min(noted) >= 0


def test_the_seconds_of_a_block_are_divided_among_its_layers():
    """In proportion to their ticks, or equally where no ticks were counted."""
    counts = np.array([[9, 9, 9, 40, 3], [9, 5, 5, 30, 1], [5, 5, 5, 20, 4]])
    divided = [s.seconds for s in layer_stats(2, counts, 0, "auto", "fused", 4.0)]
    assert divided == [1.5, 0.5, 2.0]
    counts[:, 4] = 0
    divided = [s.seconds for s in layer_stats(2, counts, 0, "auto", "sparse", 4.5)]
    assert divided == pytest.approx([1.5] * 3)
