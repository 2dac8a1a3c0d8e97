"""The progress of a run, for whoever watches."""

import numpy as np
import pytest

import gbdnn
from gbdnn.engine.progress import RunProgress, current, watched
from gbdnn.engine.stats import layer_stats
from gbdnn.gallery import digits, features_from_images


@pytest.mark.parametrize("deduplicate", [False, True])
@pytest.mark.parametrize("engine", ["sparse", "full", "fused"])
def test_edges_processed_are_those_that_a_callback_gets(engine, deduplicate):
    net, X = gbdnn.gallery.radixnet(1024, 24), features_from_images(digits()[:300], 1024)
    options = {"engine": engine, "deduplicate": deduplicate, "nthreads": 1}
    records = []
    with watched(RunProgress()) as work:
        gbdnn.infer(net, X, callback=records.append, **options)
        assert current() is work
    processed = sum(each.inputs * net.infos[each.layer].edges for each in records)
    assert work.done == processed > 0
    assert work.kernels == {engine: processed}
    assert work.done < X.nrows * net.edges  # inputs die
    assert work.fraction == 1
    assert 0 <= work.seconds["reading"] < 600  # a difference, not a point in time


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


def test_the_seconds_of_a_block_are_divided_among_its_layers():
    """In proportion to their ticks, or equally where no ticks were counted."""
    counts = np.array([[9, 9, 9, 40, 3], [9, 5, 5, 30, 1], [5, 5, 5, 20, 4]])
    divided = [s.seconds for s in layer_stats(2, counts, 0, "auto", "fused", 4.0)]
    assert divided == [1.5, 0.5, 2.0]
    counts[:, 4] = 0
    divided = [s.seconds for s in layer_stats(2, counts, 0, "auto", "sparse", 4.5)]
    assert divided == pytest.approx([1.5] * 3)


def test_the_fraction_grows_to_one():
    net = gbdnn.gallery.radixnet(1024, 4)
    work, edges = RunProgress(), net.infos[0].edges
    assert work.fraction == 0
    work.begin(net.infos, 100)
    assert (work.done, work.fraction) == (0, 0)
    work.computed(0, [50], 50, "fused")
    assert (work.done, work.fraction) == (50 * edges, 50 / 400)
    work.dropped(1, 20)  # of these, dead or equal to others
    assert work.fraction == (50 + 3 * 20) / 400
    work.computed(1, [30, 20, 10], 10, "full")
    assert (work.fraction, work.kernels) == (0.5, {"fused": 50 * edges, "full": 60 * edges})
    work.begin(net.infos[:2], 7)
    assert (work.fraction, work.done) == (0, 0)
