"""What counts the work of a run while it runs."""

import threading

import numpy as np
import pytest

import gbdnn
from gbdnn.engine.progress import RunProgress, current, watched
from gbdnn.gallery import digits, features_from_images


@pytest.fixture(scope="module")
def net():
    return gbdnn.radixnet(1024, 24)


@pytest.fixture(scope="module")
def X():
    return features_from_images(digits(), 1024, inputs=1500)


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("engine", ["sparse", "full", "fused"])
def test_edges_processed_are_those_that_a_callback_is_told(net, X, engine, compress):
    options = {"engine": engine, "compress": compress, "nthreads": 1}
    records = []
    gbdnn.infer(net, X, callback=records.append, **options)
    with watched(RunProgress()) as work:
        gbdnn.infer(net, X, **options)
    told = sum(each.inputs * net.infos[each.layer].edges for each in records)
    # With a callback blocks stop at each layer, and may drop their dead elsewhere.
    assert work.done == pytest.approx(told, rel=0.05)
    assert engine == "sparse" or work.done < X.nrows * net.edges
    assert (work.runs, work.ended) == (1, True)
    assert work.fraction > 0.98


def test_the_part_that_is_done_grows_while_it_is_done(net, X):
    seen, ended = [], threading.Event()
    with watched(RunProgress()) as work:

        def look():
            while not ended.wait(0.002):
                seen.append(work.fraction)

        watcher = threading.Thread(target=look)
        watcher.start()
        gbdnn.infer(net, X, engine="full", compress=False, memory=12 << 20, nthreads=1)
        ended.set()
        watcher.join()
    assert len({round(each, 2) for each in seen}) > 5
    assert min(np.diff(seen)) > -0.2  # a guess


def test_direct_runs_and_runs_that_nobody_watches(net):
    W, X = np.full((64, 64), 0.01), np.ones((500, 64))
    with watched(RunProgress()) as work:
        gbdnn.infer([W, W], X, engine="fused")
        assert current() is work
    assert work.done == 500 * 2 * 64 * 64
    assert work.fraction == 1
    gbdnn.infer([W, W], X)
    assert work.runs == 1
    assert current() is not work


def test_what_is_dropped_is_no_longer_possible(net):
    work = RunProgress()
    assert (work.fraction, work.ended) == (0, True)
    work.begin(net.infos[:4], {0: 100})
    edges = net.infos[0].edges
    assert (work.done, work.possible, work.ended) == (0, 400 * edges, False)
    work.computed(0, [50], 50)
    assert work.fraction == 50 / 400
    work.dropped(1, 20)  # of those, dead or equal to others
    assert work.possible == (400 - 3 * 20) * edges
    work.computed(0, [50, 40, 10], 10)  # three layers at once
    assert work.done == 150 * edges
    assert work.possible == (400 - 3 * 20 - 3 * 10 - 2 * 30) * edges
    work.begin(net.infos[:2], {1: 7})  # resumes in the middle
    work.computed(1, [7], 7)
    assert (work.runs, work.fraction) == (2, 1)
