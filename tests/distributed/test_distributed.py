"""Batches over executors: real ones, each test under a time limit."""

import contextlib
import errno
import gc
import json
import multiprocessing
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest.mock
import warnings
import weakref
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import graphblas as gb
import numpy as np
import pytest
import shell
from conftest import network
from oracles import case

import gbdnn
from gbdnn import challenge
from gbdnn.distributed import Workers, balance
from gbdnn.distributed.executors.batches import cuts, dealt, part_size
from gbdnn.distributed.executors.worker import compute
from gbdnn.distributed.messages import CompactRows
from gbdnn.distributed.stats import forms
from gbdnn.io.store.parts import PartWriter
from gbdnn.io.store.unfinished import Origin
from gbdnn.runtime.cores import cores

pytest.importorskip("safetensors")

CASE = case(5, sizes=(48, 64, 40, 32), inputs=9000, bias="mixed vector", exact=False)
SECONDS = 300


@pytest.fixture(autouse=True)
def _time_limit():
    """A hang ends the test, and not the run."""

    def ring(*_):
        raise TimeoutError(f"no end after {SECONDS} s")

    if not hasattr(signal, "SIGALRM"):
        yield
        return
    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def threads():
    with ThreadPoolExecutor(2) as executor:
        yield executor


@contextlib.contextmanager
def spawned():
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as executor:
        yield executor


@contextlib.contextmanager
def loky():
    executor = pytest.importorskip("loky").ProcessPoolExecutor(2)
    yield executor
    executor.shutdown(kill_workers=True)


@contextlib.contextmanager
def joblib():
    """As the page on clusters has it; the pool is shared with others of this process."""
    yield pytest.importorskip("joblib.externals.loky").get_reusable_executor(max_workers=2)


@contextlib.contextmanager
def dask():
    distributed = pytest.importorskip("distributed")
    # A LocalCluster gives up workers that happen to restart so long after an earlier loss.
    patient = {"distributed.deploy.lost-worker-timeout": "1h"}
    with (
        unittest.mock.patch.dict(os.environ),  # a LocalCluster sets OMP_NUM_THREADS here, too
        pytest.importorskip("dask").config.set(patient),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module", params=[threads, spawned, loky], ids=lambda f: f.__name__)
def executor(request):
    with request.param() as found:
        yield found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The case in stores, and the answer of one process."""
    path = tmp_path_factory.mktemp("stores")
    gbdnn.save(network(CASE.layers), path / "net")
    gbdnn.save(CASE.X.astype("f4"), path / "X")
    return path


@pytest.fixture
def net(folder):
    return gbdnn.load(folder / "net", lazy=True)


@pytest.fixture
def X(folder):
    return gbdnn.io.open_features(folder / "X")


@pytest.fixture(scope="module")
def answers(folder):
    """What one process answers, by engine."""
    net, X = network(CASE.layers), gbdnn.load(folder / "X")
    return {engine: gbdnn.infer(net, X, engine=engine) for engine in ("full", "fused")}


@pytest.mark.pairwise
@pytest.mark.parametrize("engine", ["full", "fused"])
@pytest.mark.parametrize("order", ["given", "hashed"])
@pytest.mark.parametrize("kind", ["stored", "part", "sparse", "dense", "scipy"])
def test_the_answer_of_one_process(executor, net, X, answers, engine, order, kind):
    features = {
        "stored": lambda: X,
        "part": lambda: X[:9000],
        "sparse": X.matrix,
        "dense": lambda: CASE.X.astype("f4"),
        "scipy": lambda: pytest.importorskip("scipy.sparse").csr_array(CASE.X.astype("f4")),
    }[kind]()
    records = []
    Y = gbdnn.infer(
        net, features, executor=Workers(executor, order=order), engine=engine, stats=records.append
    )
    want = gbdnn.infer(net.loaded(), features, engine=engine)
    assert Y.isequal(want)
    assert kind == "dense" or Y.isequal(answers[engine])
    assert sorted(each.batch for each in records) == [0, 1, 2, 3]
    assert all(each.inputs == 2250 and each.batches == 4 for each in records)
    assert [each.done for each in records] == [1, 2, 3, 4]
    assert sum(each.living for each in records) == np.count_nonzero(CASE.Y.any(axis=1))
    assert sum(each.entries for each in records) == Y.nvals
    assert all(each.forms[engine] > 0 for each in records)
    assert forms(records) == (sum_of_forms(records), max(each.compiling for each in records))


def sum_of_forms(records):
    names = {name for each in records for name in each.forms}
    return {name: sum(each.forms.get(name, 0) for each in records) for name in names}


@pytest.mark.parametrize("kind", [joblib, pytest.param(dask, marks=pytest.mark.frameworks)])
def test_recipes_of_the_page(kind, net, X, answers, tmp_path):
    with kind() as executor:
        assert gbdnn.infer(net, X, executor=executor, engine="full").isequal(answers["full"])
        Y = gbdnn.infer_to_store(net, X, tmp_path / "Y", executor=executor, engine="full")
        assert Y.matrix().isequal(answers["full"])


def test_batches_come_in_order(executor, net, X, answers):
    found = list(gbdnn.infer_batches(net, X.batches(3000), executor=executor, engine="full"))
    assert [Y.nrows for Y in found] == [3000] * 3
    assert gb.ss.concat([[Y] for Y in found]).isequal(answers["full"])


def test_workers_write_the_store(executor, net, X, answers, tmp_path):
    Y = gbdnn.infer_to_store(net, X, tmp_path / "Y", executor=executor, engine="full")
    assert Y.matrix().isequal(answers["full"])
    assert gbdnn.load(tmp_path / "Y").isequal(answers["full"])
    assert [each.name for each in (tmp_path / "Y").iterdir() if each.name.startswith(".")] == []


def test_an_error_names_the_batch_and_leaves_the_executor_usable(executor, net, X, answers):
    wrong = CASE.X.astype("f4")
    wrong[5000, 3] = np.nan  # the third of four
    with pytest.raises(gbdnn.ArgumentError, match=r"^batch 2: features: contains nan"):
        gbdnn.infer(net, wrong, executor=executor)
    assert gbdnn.infer(net, X, executor=executor, engine="full").isequal(answers["full"])


def test_ctrl_c_leaves_the_executor_usable(executor, net, X, answers):
    def interrupt(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gbdnn.infer(net, X, executor=executor, batch=300, stats=interrupt)
    assert gbdnn.infer(net, X, executor=executor, engine="full").isequal(answers["full"])


def test_a_network_in_memory_is_for_workers_of_this_machine(
    executor, X, answers, tmp_path, monkeypatch
):
    (tmp_path / "t").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "t"))
    given = network(CASE.layers)
    if not hasattr(executor, "get_executor"):
        records = []
        Y = gbdnn.infer(given, X, executor=executor, engine="full", stats=records.append)
        assert Y.isequal(answers["full"])
        found = list(gbdnn.infer_batches(given, X.batches(3000), executor=executor, engine="full"))
        assert gb.ss.concat([[Y] for Y in found]).isequal(answers["full"])
        Y = gbdnn.infer_to_store(given, X, tmp_path / "Y", executor=executor, engine="full")
        assert Y.matrix().isequal(answers["full"])
        # The same run, by whoever computes it.
        gbdnn.infer_to_store(given, X, tmp_path / "Y", engine="full", stats=pytest.fail)
        for _ in gbdnn.infer_batches(given, X.batches(100), executor=executor):
            break  # the store is removed with the generator
        gc.collect()
        assert list((tmp_path / "t").iterdir()) == []
        return
    with pytest.raises(gbdnn.ArgumentError, match=r"gbdnn\.save\(net, folder\)"):
        gbdnn.infer(given, X, executor=executor)
    with pytest.raises(gbdnn.ArgumentError, match=r"gbdnn\.save\(net, folder\)"):
        gbdnn.infer_batches(given, [X], executor=executor)


def test_parts_of_a_network_and_other_dtypes_travel(executor, net, X):
    part = net[1:].astype("FP64")
    middle = gbdnn.infer(net[:1], X, engine="full")
    Y = gbdnn.infer(part, middle, executor=executor, engine="full")
    assert Y.isequal(gbdnn.infer(part.loaded(), middle, engine="full"), check_dtype=True)
    assert Y.dtype == "FP64"


def test_a_small_network_that_was_loaded_travels_as_its_store(executor, X, tmp_path, answers):
    gbdnn.save(network(CASE.layers), tmp_path / "net")
    net = gbdnn.load(tmp_path / "net")
    assert net.in_memory
    assert gbdnn.infer(net, X, executor=executor, engine="full").isequal(answers["full"])


def test_the_network_is_read_once(executor, X, tmp_path):
    gbdnn.save(network(CASE.layers), tmp_path / "net")
    net, workers = gbdnn.load(tmp_path / "net", lazy=True)[:2], set()
    while len(workers) < 2:
        Y = gbdnn.infer(
            net, X, executor=executor, batch=500, stats=lambda record: workers.add(record.worker)
        )
    shutil.rmtree(tmp_path / "net")
    assert gbdnn.infer(net, X, executor=executor, batch=500).isequal(Y)


def test_a_replaced_store_is_another_network(executor, X, tmp_path):
    layers = [gbdnn.Layer(np.eye(48, dtype="f4")), gbdnn.Layer(-np.eye(48, dtype="f4"))]
    gbdnn.save(gbdnn.Network(layers[:1]), tmp_path / "net")
    old = gbdnn.load(tmp_path / "net", lazy=True)
    assert gbdnn.infer(old, X, executor=executor).nvals > 0
    gbdnn.save(gbdnn.Network(layers[1:]), tmp_path / "net")
    new = gbdnn.load(tmp_path / "net", lazy=True)
    want = gbdnn.infer(new.loaded(), X)
    assert gbdnn.infer(new, X, executor=executor).isequal(want)
    wide = old[:1].astype("FP64")
    if isinstance(executor, ThreadPoolExecutor):  # they share what the caller has opened
        assert gbdnn.infer(wide, X, executor=executor).isequal(gbdnn.infer(wide, X))
        return
    with pytest.raises(gbdnn.FormatError, match=r"batch \d: .*has been saved anew"):
        gbdnn.infer(wide, X, executor=executor)


# One call, seen from the caller.


class Recording(Executor):
    """Computes at once what it is given; keeps the pickled tasks and the unfinished futures."""

    _max_workers = 4

    def __init__(self):
        self.tasks, self.held = [], []

    def submit(self, fn, /, *args):
        self.tasks.append(pickle.dumps((fn, args)))
        future = Future()
        fn, args = pickle.loads(self.tasks[-1])  # noqa: S301
        try:
            future.set_result(pickle.loads(pickle.dumps(fn(*args))))  # noqa: S301
        except Exception as err:
            future.set_exception(err)
        return future


def test_a_task_is_small(tmp_path):
    executor = Recording()
    gbdnn.save(gbdnn.radixnet(1024, 480, lazy=True), tmp_path / "net")
    deep, X = gbdnn.load(tmp_path / "net", lazy=True), np.zeros((8, 1024), "f4")
    gbdnn.save(X, tmp_path / "X")
    stored = gbdnn.io.open_features(tmp_path / "X")
    gbdnn.infer(deep[2:50], stored, executor=executor)
    assert max(map(len, executor.tasks)) < 2000
    assert len(pickle.dumps(deep)) > 100_000


def test_rows_travel_in_few_bytes(net, X):
    executor = Recording()
    matrix = X.matrix()
    gbdnn.infer(net, matrix, executor=executor)
    entries = matrix.nvals
    assert sum(map(len, executor.tasks)) < 1.1 * entries * (1 + 4) + 9000 * 4 + 20_000


def test_hashed_batches_have_inputs_from_everywhere(net, X):
    executor = Recording()
    gbdnn.infer(net, X, executor=Workers(executor, count=2, order="hashed"))
    tasks = [pickle.loads(each)[1][0] for each in executor.tasks]  # noqa: S301
    ids = [task.features.ids.astype(int) for task in tasks]
    assert np.array_equal(np.sort(np.concatenate(ids)), np.arange(9000))
    for each in ids:
        assert (np.diff(each) > 0).all()
        assert np.histogram(each, 9, (0, 9000))[0].min() > 150  # 250 of each thousand
    assert all(task.features.ids.dtype == np.uint16 for task in tasks)


def test_hashed_batches_of_a_large_store_warn(net, X, answers, monkeypatch, recwarn):
    hashed = {"executor": Workers(Recording(), count=2, order="hashed"), "engine": "full"}
    gbdnn.infer(net, X, **hashed)
    monkeypatch.setattr(gbdnn.io.store.features, "PART", X.nvals - 1)
    gbdnn.infer(net, X, executor=Workers(Recording(), count=2))
    gbdnn.infer(net, X.matrix(), **hashed)
    gbdnn.infer(net, X, batch=9000, **hashed)
    assert not recwarn.list
    with pytest.warns(RuntimeWarning, match=rf"all {X.nvals:,} values .* each of 4 batches"):
        Y = gbdnn.infer(net, X, **hashed)
    assert Y.isequal(answers["full"])


def test_two_networks_are_kept(tmp_path, monkeypatch):
    nets, read = [], []
    for n in range(3):
        gbdnn.save(gbdnn.Network([gbdnn.Layer(np.eye(4) / (n + 1))]), tmp_path / str(n))
        nets.append(gbdnn.load(tmp_path / str(n), lazy=True))
    loaded = gbdnn.Network.loaded
    monkeypatch.setattr(gbdnn.Network, "loaded", lambda net: read.append(net) or loaded(net))
    for n in (0, 1, 0, 1, 0, 2, 0, 1):
        Y = gbdnn.infer(nets[n], np.eye(4), executor=Recording(), batch=1)
        assert Y[0, 0].value == 1 / (n + 1)
    assert len(read) == 4  # 0, 1, 2 in place of 1, and 1 again


@pytest.mark.parametrize("call", ["infer", "infer_batches", "infer_to_store", "hashed", "a part"])
def test_threads_keep_nothing_that_their_caller_does_not(call, tmp_path, monkeypatch):
    """A network is read once for all calls; it is freed with its last user, as features are."""
    gbdnn.save(gbdnn.Network([gbdnn.Layer(np.eye(4) / 2)] * 2), tmp_path / "net")
    gbdnn.save(np.eye(4)[np.arange(40) % 4], tmp_path / "X")
    net, X = gbdnn.load(tmp_path / "net", lazy=True), gbdnn.io.open_features(tmp_path / "X")
    part, read = X[10:30] if call == "a part" else X, []
    expected = part.matrix().to_dense(fill_value=0) / 4
    kept = [weakref.ref(net), weakref.ref(X)]
    loaded = gbdnn.Network.loaded

    def observed(self, **options):
        found = loaded(self, **options)
        read.append(weakref.ref(found))
        return found

    monkeypatch.setattr(gbdnn.Network, "loaded", observed)
    with ThreadPoolExecutor(2) as pool:
        for again in range(2):
            over = {"executor": Workers(pool, order="hashed") if call == "hashed" else pool}
            if call == "infer_batches":
                answers = list(gbdnn.infer_batches(net, X.batches(7), **over))
            elif call == "infer_to_store":
                folder = tmp_path / f"Y{again}"
                answers = [gbdnn.infer_to_store(net, X, folder, batch=7, **over).matrix()]
            else:
                answers = [gbdnn.infer(net, part, batch=7, **over)]
            found = np.concatenate([Y.to_dense(fill_value=0) for Y in answers])
            np.testing.assert_array_equal(found, expected)
    assert len(read) == 1
    del net, X, part, answers, found
    gc.collect()
    assert [ref() for ref in (*kept, *read)] == [None] * 3


def test_compact_rows_are_the_rows():
    for ncols, dtype in [(200, "u1"), (300, "u2"), (70_000, "u4")]:
        columns = np.array([0, ncols - 1, 5], np.uint64)
        rows = gbdnn.arrays.sparse_rows.SparseRows(
            np.array([0, 2, 2, 3], np.uint64), columns, np.array([0.5], "f4"), ncols
        )
        compact = CompactRows.of(rows)
        numbered = CompactRows.of(rows, ids=np.array([3, 7, 300]))
        assert compact.columns.dtype == dtype
        assert len(compact.values) == 1
        back = compact.rows()
        assert back.is_iso
        assert back.columns.tolist() == columns.tolist()
        assert back.matrix().isequal(rows.matrix())
        assert numbered.ids.dtype == np.uint16
        assert numbered.nbytes == compact.nbytes + 6
        assert numbered.rows().ids.tolist() == [3, 7, 300]


def test_full_rows_travel_without_columns():
    values = np.arange(1, 7, dtype="f4")
    rows = gbdnn.arrays.sparse_rows.SparseRows(
        np.array([0, 3, 6], np.uint64), np.array([0, 1, 2, 0, 1, 2], np.uint64), values, 3
    )
    compact = CompactRows.of(rows)
    assert compact.nbytes == 3 + values.nbytes
    back = compact.rows().matrix().to_dense(fill_value=0)
    assert back.tolist() == [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize("ahead", [None, 1, 3])
def test_a_million_batches(net, ahead):
    asked = []

    def batches():
        for n in range(1_000_000):
            asked.append(n)
            yield np.full((2, 48), n % 7, "f4")

    with ThreadPoolExecutor(2) as executor:
        answers = gbdnn.infer_batches(net, batches(), executor=Workers(executor, ahead=ahead))
        assert asked == []
        for given in range(200):
            next(answers)
            assert len(asked) <= given + (ahead or 4)
        answers.close()


def test_an_iterator_that_raises_comes_in_its_turn(net):
    def batches():
        yield np.ones((2, 48), "f4")
        yield np.ones((2, 5), "f4")

    def failing():
        yield np.ones((2, 48), "f4")
        raise KeyError("mine")

    for each in (Recording(), ThreadPoolExecutor(2)):
        answers = gbdnn.infer_batches(net, batches(), executor=each)
        assert next(answers).nrows == 2
        with pytest.raises(gbdnn.ShapeError, match=r"^batch 1: features are 2 x 5"):
            next(answers)
        answers = gbdnn.infer_batches(net, failing(), executor=each)
        assert next(answers).nrows == 2
        with pytest.raises(KeyError, match="mine"):
            next(answers)


def test_an_error_cancels_the_rest(net):
    """Of 100 batches few are submitted, and those that wait are cancelled."""
    submitted, release = [], threading.Event()

    class Slow(ThreadPoolExecutor):
        def submit(self, fn, task):
            def run():
                if task.batch == 0:
                    raise gbdnn.ArgumentError("mine")
                release.wait()

            submitted.append(super().submit(run))
            return submitted[-1]

    with Slow(2) as executor:
        with pytest.raises(gbdnn.ArgumentError, match=r"^batch 0: mine"):
            gbdnn.infer(
                net, np.ones((100, 48), "f4"), executor=Workers(executor, ahead=10), batch=1
            )
        release.set()
    assert 10 <= len(submitted) <= 11
    assert sum(future.cancelled() for future in submitted) >= 6


class Unfinished(Executor):
    """Never begins a task."""

    _max_workers = 2

    def __init__(self, failing=None):
        self.futures, self.failing = [], failing

    def submit(self, fn, /, *args):
        if self.failing:
            raise self.failing
        self.futures.append(Future())
        return self.futures[-1]


def test_an_executor_that_takes_no_task(net):
    for failure in (BrokenProcessPool("gone"), RuntimeError("after shutdown")):
        with pytest.raises(gbdnn.WorkerError, match="batch 0: the executor takes no task"):
            gbdnn.infer(net, np.ones((3, 48)), executor=Unfinished(failure))


def test_a_cancelled_task_is_said_to_be_one(net):
    class Cancelling(Unfinished):
        def submit(self, fn, /, *args):
            future = super().submit(fn, *args)
            threading.Thread(target=future.cancel).start()
            return future

    told = r"^batch 0: it was cancelled \(CancelledError\); 0 batches were done\. With a new"
    with pytest.raises(gbdnn.WorkerError, match=told):
        gbdnn.infer(net, np.ones((3, 48)), executor=Cancelling())
    with pytest.raises(gbdnn.WorkerError, match=told):
        next(gbdnn.infer_batches(net, [np.ones((3, 48))], executor=Cancelling()))


@pytest.mark.parametrize("answer", [None, 3, [], {}, "done", Future, object()])
def test_an_executor_that_returns_no_future(net, tmp_path, answer):
    class Wrong(Executor):
        def submit(self, fn, /, *args):
            return answer

    X, executor = np.ones((3, 48)), Wrong()
    for call in (
        lambda: gbdnn.infer(net, X, executor=Workers(executor, count=2)),
        lambda: next(gbdnn.infer_batches(net, [X], executor=Workers(executor, count=2))),
        lambda: gbdnn.infer_to_store(net, X, tmp_path / "Y", executor=Workers(executor, count=2)),
    ):
        with pytest.raises(gbdnn.ArgumentTypeError, match="its submit returns a concurrent"):
            call()


def test_forked_processes_are_refused_before_any_task(net, X, tmp_path):
    with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as executor:
        calls = [
            lambda: gbdnn.infer(net, X, executor=executor),
            lambda: gbdnn.infer_batches(net, [X], executor=executor),
            lambda: gbdnn.infer_to_store(net, X, tmp_path / "Y", executor=executor),
        ]
        for call in calls:
            with pytest.raises(gbdnn.ForkError, match="spawn"):
                call()
        assert not executor._processes
    assert not (tmp_path / "Y").exists()


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"executor": 5}, "a concurrent.futures.Executor, a dask.distributed.Client or a gbdnn"),
        ({"executor": ThreadPoolExecutor}, "needed, not the class concurrent.futures.thread.Thr"),
        ({"batch": 2}, "batch= goes with executor="),
        ({"stats": print}, "stats= goes with executor="),
        ({"executor": Recording(), "batch": 0}, "batch is at least 1"),
        ({"executor": Recording(), "engine": "fast"}, "engine is"),
        ({"executor": Recording(), "nthreads": 0}, "nthreads is at least 1"),
        ({"executor": Recording(), "callback": print}, "callback= .* stats="),
        (
            {"executor": Executor()},
            "does not tell how many workers it has: give gbdnn.distributed.Workers",
        ),
    ],
)
def test_mistakes_before_any_task(net, X, options, match):
    for layers in (net, []):
        with pytest.raises(gbdnn.GbdnnError, match=match):
            gbdnn.infer(layers, X, **options)


@pytest.mark.parametrize(
    ("executor", "options", "match"),
    [
        (ThreadPoolExecutor, {"count": 2}, "not the class concurrent.futures"),
        (Recording(), {"order": []}, r"order is 'given' or 'hashed', not \[\]"),
        (Recording(), {"order": ""}, "order is 'given' or 'hashed', not ''"),
        (Recording(), {"order": "sorted"}, "order is 'given' or 'hashed'"),
        (Recording(), {"ahead": 0}, "ahead is at least 1"),
        (Recording(), {"count": 0}, "count is at least 1"),
    ],
)
def test_mistakes_about_workers(executor, options, match):
    with pytest.raises(gbdnn.GbdnnError, match=match):
        Workers(executor, **options)


def test_inputs_are_dealt_by_infer_alone(net, X, tmp_path):
    executor = Workers(Recording(), order="hashed")
    for call in (
        lambda: gbdnn.infer_batches(net, [X], executor=executor),
        lambda: gbdnn.infer_to_store(net, X, tmp_path / "Y", executor=executor),
    ):
        with pytest.raises(gbdnn.ArgumentError, match="order='hashed' is for infer"):
            call()
    assert not (tmp_path / "Y").exists()


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"engine": "fast"}, gbdnn.ArgumentError, "^engine is"),
        ({"compress": "no"}, gbdnn.ArgumentError, "^compress is"),
        ({"memory": "1"}, gbdnn.ArgumentTypeError, "^memory is"),
        ({"nthreads": 0}, gbdnn.ArgumentError, "^nthreads is at least 1"),
        ({"callback": 3}, gbdnn.ArgumentTypeError, "^callback"),
        ({"dtype": "INT8"}, gbdnn.GbdnnError, "INT8"),
        ({"order": "given"}, TypeError, r"^infer_batches\(\) got an unexpected .* 'order'$"),
        ({"quick": 1}, TypeError, r"^infer_batches\(\) got an unexpected .* 'quick'$"),
    ],
)
@pytest.mark.parametrize("layers", ["net", "none"])
@pytest.mark.parametrize("executor", [None, Recording()], ids=["here", "executor"])
def test_options_are_checked_at_the_call_of_infer_batches(
    options, error, match, layers, executor, net
):
    """Not when its first answer is asked for."""
    with pytest.raises(error, match=match):
        gbdnn.infer_batches(net if layers == "net" else [], [], executor=executor, **options)


@pytest.mark.parametrize("executor", [None, Recording()], ids=["here", "executor"])
def test_an_unknown_keyword_is_the_public_call_s(executor, net, X, tmp_path):
    with pytest.raises(TypeError, match=r"^infer\(\) got an unexpected keyword argument 'quick'$"):
        gbdnn.infer(net, X, executor=executor, quick=1)
    with pytest.raises(TypeError, match=r"^infer_to_store\(\) got an unexpected .* 'quick'$"):
        gbdnn.infer_to_store(net, X, tmp_path / "Y", executor=executor, quick=1)
    assert not (tmp_path / "Y").exists()


@pytest.mark.parametrize("executor", [None, Recording()], ids=["here", "executor"])
@pytest.mark.parametrize("layers", [[], gbdnn.Network([])], ids=["list", "network"])
def test_without_layers_features_are_cast(executor, layers):
    X = np.array([[1, 0], [2, 3]], "i4")
    for dtype in ("FP32", "FP64"):
        Y = gbdnn.infer(layers, X, dtype=dtype, executor=executor)
        (Z,) = gbdnn.infer_batches(layers, [X], dtype=dtype, executor=executor)
        for found in (Y, Z):
            assert found.dtype == dtype
            assert found.to_dense(fill_value=0).tolist() == X.tolist()


def test_workers_are_counted():
    with ThreadPoolExecutor(3) as pool:
        found = Workers(pool)
        assert (found.count, found.shares_memory) == (3, True)
        assert Workers(pool, count=7).count == 7

    class Client:
        def nthreads(self):
            return {"tcp://a": 2, "tcp://b": 3}

        def get_executor(self, *, pure):
            assert pure is False
            return Recording()

    found = Workers(Client())
    assert (found.count, found.shares_memory, found.nthreads) == (5, False, 1)
    assert Workers(Recording()).nthreads == 1


class Cluster:
    """A client whose workers come and go; they compute at once."""

    def __init__(self, **workers):
        self.workers = workers

    def nthreads(self):
        if self.workers is None:
            raise AttributeError("'NoneType' object has no attribute 'ncores'")
        return self.workers

    def get_executor(self, *, pure):
        return Recording()


def test_workers_that_come_and_go_are_counted_at_each_submission(net):
    asked, client = [], Cluster(a=1)

    def batches():
        for n in range(1000):
            asked.append(n)
            yield np.full((2, 48), n % 7, "f4")

    answers = gbdnn.infer_batches(net, batches(), executor=client)
    done = 0
    for workers in ({"a": 1}, {"a": 1, "b": 2}, {"a": 1, "b": 2, "c": 4}, {"c": 2}, {}, {"d": 9}):
        client.workers = workers
        for _ in range(20):
            next(answers)
            done += 1
        # Two for each thread, one of which has been answered.
        assert len(asked) - done == 2 * max(1, sum(workers.values())) - 1


class Plan:
    """A cluster that has asked for workers."""

    def __init__(self, workers, most=None):
        self.plan = set(range(workers))
        if most is not None:
            self._adaptive = unittest.mock.Mock(maximum=most)


def test_workers_that_a_cluster_is_to_have_get_batches():
    client = Cluster(a=2)
    assert (Workers(client).asked, Workers(client).expected(10**5)) == (2, 2)
    assert Workers(client).expected(10**6) == 15  # in batches of 16,667 inputs
    assert Workers(client, count=3).expected(10**6) == 3
    for cluster, asked in ((Plan(1), 2), (Plan(4), 8), (Plan(0, 6), 12), (Plan(1, np.inf), 32)):
        client.cluster = cluster
        assert Workers(client).asked == asked
    client.workers = {}
    assert (Workers(client).count, Workers(client).asked) == (1, 16)


def test_a_wait_for_workers():
    waited, client = [], Cluster(a=1)
    client.wait_for_workers = waited.append
    assert Workers(client, wait_for=4).count == 1
    assert waited == [4]
    with pytest.raises(gbdnn.ArgumentError, match="wait_for: is for a Dask client"):
        Workers(Recording(), wait_for=4)


@pytest.mark.slow
def test_dask_workers_that_come_late_compute(net, X, answers):
    """A cluster that adapts has none at first; another is scaled when a batch is done."""
    distributed = pytest.importorskip("distributed")
    options = {"threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with (
        unittest.mock.patch.dict(os.environ),
        distributed.LocalCluster(n_workers=0, **options) as cluster,
        distributed.Client(cluster) as client,
    ):
        cluster.adapt(minimum=0, maximum=3)
        records = []
        Y = gbdnn.infer(net, X, executor=client, engine="full", stats=records.append)
        assert Y.isequal(answers["full"])
        assert sorted(each.inputs for each in records) == [3000] * 3
    with (
        unittest.mock.patch.dict(os.environ),
        distributed.LocalCluster(n_workers=1, **options) as cluster,
        distributed.Client(cluster) as client,
    ):
        records = []

        def scale(record):
            records.append(record)
            if len(records) == 1:
                cluster.scale(3)
                client.wait_for_workers(3)

        Y = gbdnn.infer(net, X, executor=client, batch=100, engine="full", stats=scale)
        assert Y.isclose(answers["full"], rel_tol=1e-5, abs_tol=1e-5)
        assert len({each.worker for each in records}) == 3


def test_threads_of_dead_workers_are_not_counted():
    from gbdnn.distributed.executors.in_flight import _Threads

    host, most = socket.gethostname(), cores(bound=False)
    done = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"],
                          capture_output=True, text=True, check=True)  # fmt: skip
    dead, living = int(done.stdout), os.getpid()

    def result(pid, thread):
        worker = f"{host}-{pid}-{thread}"
        return unittest.mock.Mock(worker=worker, host=host, threads=most, cores=most)

    threads = _Threads()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        threads.check(result(dead, 1))
        threads.check(result(living, 2))
    with pytest.warns(RuntimeWarning, match=f"2 workers compute with {2 * most} threads"):
        threads.check(result(living, 3))


def test_an_engines_own_error_is_of_a_worker(net):
    class NodeDiedError(Exception):
        __module__ = "ray.exceptions"

    class RayTaskError(NodeDiedError, gbdnn.ShapeError):
        __module__ = "ray.exceptions"

    class Failing(Unfinished):
        def __init__(self, error):
            super().__init__()
            self.error = error

        def submit(self, fn, /, *args):
            future = super().submit(fn, *args)
            future.set_exception(self.error)
            return future

    with pytest.raises(gbdnn.WorkerError, match=r"a worker died \(NodeDiedError: gone\)"):
        gbdnn.infer(net, np.ones((3, 48)), executor=Failing(NodeDiedError("gone")))
    with pytest.raises(gbdnn.ShapeError, match="batch 0: 3 x 5"):
        gbdnn.infer(net, np.ones((3, 48)), executor=Failing(RayTaskError("3 x 5")))


def test_a_scheduler_that_does_not_answer(net):
    client = Cluster(a=1)
    answers = gbdnn.infer_batches(net, [np.ones((2, 48))] * 9, executor=client)
    assert next(answers).nrows == 2
    client.workers = None
    for call in (lambda: next(answers), lambda: gbdnn.infer(net, CASE.X, executor=client)):
        with pytest.raises(gbdnn.WorkerError, match="Dask's scheduler does not answer"):
            call()


def test_a_closed_client(net):
    with dask() as client:
        client.close()
        with pytest.raises(gbdnn.WorkerError, match="Dask's scheduler does not answer"):
            gbdnn.infer(net, CASE.X, executor=client)
        with pytest.raises(gbdnn.WorkerError, match="batch 0: the executor takes no task"):
            gbdnn.infer(net, CASE.X, executor=Workers(client, count=2))


def test_threads_reach_the_worker_and_too_many_warn(net, X):
    executor = Recording()
    records = []
    gbdnn.infer(net, X, executor=executor, stats=records.append)
    assert {each.threads for each in records} == {1}
    many = 10 * (os.cpu_count() or 1)
    with pytest.warns(RuntimeWarning, match=rf"{many} threads on \d+ cores .*--bind-to none"):
        gbdnn.infer(net, X, executor=executor, nthreads=many)


# Which inputs are computed together.


@pytest.mark.parametrize("workers", [1, 2, 24, 1000])
@pytest.mark.parametrize("inputs", [0, 1, 2047, 5000, 60_000, 10**6])
def test_batches_cover_the_inputs(inputs, workers):
    found = cuts(inputs, workers)
    sizes = np.diff(found)
    assert found[0] == 0
    assert found[-1] == inputs
    assert (sizes >= min(inputs, 2048)).all()
    assert len(sizes) <= 5 * workers
    if inputs >= 4 * 2048 * workers:
        assert len(sizes) >= 4 * workers


def test_the_last_batches_are_smaller():
    sizes = np.diff(cuts(640_000, 8))
    assert sizes[:24].tolist() == [20_000] * 24
    assert sizes[24:].tolist() == [10_000] * 16
    assert np.diff(cuts(480_000, 8)).tolist() == [15_000] * 32
    assert np.diff(cuts(60_000, 24)).tolist() == [2500] * 24  # one round, not one and a bit
    assert np.diff(cuts(10, 2, 3)).tolist() == [3, 3, 4]


def test_parts_do_not_depend_on_workers():
    assert [part_size(n) for n in (100, 60_000, 640_000, 10**9)] == [2048, 2048, 10_000, 16_384]


def test_hashing_deals_neighbours_evenly():
    order = dealt(48_000)
    assert np.array_equal(np.sort(order), np.arange(48_000))
    assert np.array_equal(order, dealt(48_000))
    # 10 classes in stretches: every batch of 2,000 gets a tenth of each, within five deviations
    classes = np.sort(np.arange(48_000) % 10)
    for batch in order.reshape(24, 2000):
        counts = np.bincount(classes[batch], minlength=10)
        assert (abs(counts - 200) < 5 * np.sqrt(200)).all()


def end(work, batches, workers):
    """When the last of some workers is done, each taking the next batch as it becomes idle."""
    idle = [0.0] * workers
    for batch in batches:
        idle[idle.index(min(idle))] += work[batch].sum()
    return max(idle)


def test_inputs_sorted_by_class_are_balanced():
    """Work differs by class, as that of the challenge's digits does."""
    workers, inputs = 24, 24 * 4 * 2500
    classes = np.sort(np.arange(inputs) % 10)
    work = np.array([1, 9, 2, 3, 2, 1, 4, 2, 6, 2])[classes] / 10
    ideal = work.sum() / workers
    numbers, starts = np.arange(inputs), cuts(inputs, workers)
    assert len(starts) - 1 == 4 * workers
    static = end(work, np.array_split(numbers, workers), workers) / ideal
    dynamic = end(work, np.split(numbers, starts[1:-1]), workers) / ideal
    hashed = end(work, np.split(dealt(inputs), starts[1:-1]), workers) / ideal
    assert static > 2
    assert dynamic < 1.3
    assert hashed < 1.03


# What workers did.


def test_balance():
    def record(batch, worker, seconds, inputs):
        return gbdnn.distributed.BatchStats(
            batch=batch, worker=worker, inputs=inputs, living=1, entries=2, seconds=seconds,
            loading=0.0, bytes=100, threads=1, cores=2, done=batch + 1, batches=3,
        )  # fmt: skip

    records = [record(0, "a", 1.0, 10), record(1, "b", 2.0, 20), record(2, "a", 3.0, 30)]
    found = balance(records)
    assert found.workers["worker"].tolist() == ["a", "b"]
    assert found.workers["batches"].tolist() == [2, 1]
    assert (found.seconds.min, found.seconds.mean, found.seconds.max) == (2.0, 3.0, 4.0)
    assert found.seconds.imbalance == pytest.approx(4 / 3)
    assert found.inputs.imbalance == pytest.approx(4 / 3)
    assert found.bytes.max == 200
    assert balance(records, workers=4).seconds.imbalance == pytest.approx(4 / 1.5)
    assert "seconds" in str(found)
    with pytest.raises(gbdnn.ArgumentError, match="records of 2 workers; workers=1"):
        balance(records, workers=1)
    with pytest.raises(gbdnn.ArgumentError, match="0 workers"):
        balance([])


def test_the_balance_as_a_picture(net, X):
    pytest.importorskip("matplotlib")
    records = []
    with ThreadPoolExecutor(2) as pool:
        gbdnn.infer(net, X, executor=pool, stats=records.append)
    for of in ("seconds", "inputs", "living", "bytes"):
        ax = gbdnn.viz.plot_balance(records, of=of, workers=3)
        heights = sum(bar.get_height() for bar in ax.patches)
        assert heights == pytest.approx(sum(getattr(each, of) for each in records))
        mean = ax.lines[0].get_ydata()[0]
        assert mean == pytest.approx(heights / 3)
    with pytest.raises(gbdnn.ArgumentError, match=r"of is .*, not 'time'"):
        gbdnn.viz.plot_balance(records, of="time")


# Stores that are written part by part.


def test_one_process_writes_part_by_part(net, X, answers, tmp_path):
    records = []
    Y = gbdnn.infer_to_store(
        net, X, tmp_path / "Y", stats=records.append, batch=2250, engine="full"
    )
    assert Y.matrix().isequal(answers["full"])
    assert [each.inputs for each in records] == [2250] * 4
    again = gbdnn.infer_to_store(net, X, tmp_path / "Y", stats=records.append, engine="full")
    assert again.matrix().isequal(answers["full"])
    assert len(records) == 4


@pytest.mark.parametrize("kind", ["stored", "in memory"])
def test_a_second_call_computes_what_is_missing(net, X, answers, tmp_path, kind):
    if kind == "in memory":
        net, X = net.loaded(), X.matrix()
    records = []

    def stop(record):
        records.append(record)
        if len(records) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gbdnn.infer_to_store(net, X, tmp_path / "Y", stats=stop, batch=2250, engine="full")
    with pytest.raises(gbdnn.MissingFileError):
        gbdnn.load(tmp_path / "Y")
    with ThreadPoolExecutor(2) as pool:  # another number of workers
        Y = gbdnn.infer_to_store(
            net, X, tmp_path / "Y", executor=pool, stats=records.append, engine="full"
        )
    assert sorted(each.batch for each in records) == [0, 1, 2, 3]
    assert [each.batches for each in records] == [4, 4, 2, 2]
    assert Y.matrix().isequal(answers["full"])


@pytest.mark.parametrize("other", ["network", "features", "options", "parts", "weights", "rows"])
def test_parts_of_something_else_are_not_taken(net, X, tmp_path, other):
    def stop(_):
        raise KeyboardInterrupt

    path = tmp_path / "Y"
    if other in ("weights", "rows"):
        net, X = gbdnn.Network(net), X.matrix()
    with pytest.raises(KeyboardInterrupt):
        gbdnn.infer_to_store(net, X, path, stats=stop, batch=2250, engine="full")
    options = {"engine": "full"}
    if other == "network":
        net = net[:2]
    elif other == "features":
        gbdnn.save(2 * CASE.X.astype("f4"), tmp_path / "X2")
        X = gbdnn.io.open_features(tmp_path / "X2")
    elif other == "options":
        options = {"engine": "sparse"}
    elif other == "parts":
        options |= {"batch": 3000}
    elif other == "weights":
        first = net[0]
        W = first.W.dup()
        W[0, 0] = 0.125
        net = gbdnn.Network(
            [gbdnn.Layer(W, first.bias, bias_rule=first.bias_rule, clip=first.clip), *net[1:]]
        )
    else:
        X = X.dup()
        X[0, 0] = 0.125
    records = []
    reason = {
        "network": "network: .*net, 3 layers, here .*net, 2 layers",
        "features": "features: .*X, 9,000 inputs, here .*X2, 9,000 inputs",
        "options": "engine: full, here sparse",
        "parts": "holds parts of 2,250 inputs, not 3,000, of the same run",
        "weights": "network: a network of 3 layers in memory, here with another content",
        "rows": "features: 9,000 inputs in memory, here with another content",
    }[other]
    with pytest.raises(gbdnn.OutputError, match=reason) as caught:
        gbdnn.infer_to_store(net, X, path, stats=records.append, **options)
    assert other == "parts" or "holds 2,250 of 9,000 inputs of another run" in str(caught.value)
    assert not records
    assert gbdnn.io.find_unfinished(path).done == 2250
    options = {"batch": 2250} | options
    Y = gbdnn.infer_to_store(net, X, path, stats=records.append, restart=True, **options)
    assert len(records) == (3 if other == "parts" else 4)
    want = gbdnn.infer(net.loaded(), X, engine=options["engine"])
    assert Y.matrix().isequal(want)
    assert len(list(path.glob(".gbdnn-*"))) == 0


def test_a_damaged_part_is_computed_again(net, X, answers, tmp_path):
    records = []

    def stop(record):
        records.append(record)
        if len(records) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gbdnn.infer_to_store(net, X, tmp_path / "Y", stats=stop, batch=2250, engine="full")
    parts = sorted((tmp_path / "Y").glob(".gbdnn-*/part-*"))
    next(parts[0].glob("shard-*")).unlink()
    (parts[1] / "index.json").write_text("{")
    Y = gbdnn.infer_to_store(net, X, tmp_path / "Y", stats=records.append, engine="full")
    assert sorted(each.batch for each in records) == [0, 0, 1, 1, 2, 3]
    assert Y.matrix().isequal(answers["full"])


def test_an_old_store_is_replaced_at_the_end(net, X, tmp_path):
    gbdnn.save(np.eye(3), tmp_path / "Y")

    def look(_):
        assert gbdnn.load(tmp_path / "Y").shape == (3, 3)

    Y = gbdnn.infer_to_store(net, X, tmp_path / "Y", stats=look)
    assert Y.shape == CASE.Y.shape
    named = {each["file"] for each in _index(tmp_path / "Y")["shards"]}
    assert {each.name for each in (tmp_path / "Y").iterdir()} == named | {"index.json"}


def _index(path):
    from gbdnn.io.store.index import read_index

    return read_index(path)


def test_two_callers_do_not_write_one_store(net, X, tmp_path):
    origin = Origin.of({"network": "0" * 16})
    with (
        PartWriter(tmp_path / "Y", origin, [0, 5]),
        pytest.raises(gbdnn.OutputError, match="another"),
    ):
        gbdnn.infer_to_store(net, X, tmp_path / "Y")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("mine")
    with pytest.raises(gbdnn.OutputError, match="is not empty and not a store"):
        gbdnn.infer_to_store(net, X, tmp_path / "mine")


def test_two_writers_of_a_part_wait_for_each_other(tmp_path, monkeypatch):
    from gbdnn.io.store import parts
    from gbdnn.io.store.parts import write_part
    from gbdnn.io.store.writer import Writer

    refused, sleep = threading.Event(), time.sleep
    monkeypatch.setattr(parts.time, "sleep", lambda seconds: (refused.set(), sleep(seconds)))
    Y = gb.Matrix.from_coo([0, 2], [1, 3], [0.5, 2.0], nrows=4, ncols=4)
    with ThreadPoolExecutor(1) as pool:
        with Writer(tmp_path / "part"):
            with pytest.raises(gbdnn.OutputError) as caught, Writer(tmp_path / "part"):
                pass
            assert caught.value.errno == errno.EAGAIN
            waiting = pool.submit(write_part, tmp_path / "part", Y)
            assert refused.wait(SECONDS)
            assert not waiting.done()
        waiting.result(SECONDS)
    assert gbdnn.load(tmp_path / "part").isequal(Y)


def test_no_inputs(net, tmp_path):
    empty = np.zeros((0, 48), "f4")
    assert gbdnn.infer(net, empty, executor=Recording()).shape == (0, 32)
    assert gbdnn.infer_to_store(net, empty, tmp_path / "Y").shape == (0, 32)
    assert gbdnn.infer(net, empty, executor=Workers(Recording(), order="hashed")).shape == (0, 32)


# Workers that die.


def pid_of(record):
    return int(record.worker.split("-")[-2])


@pytest.mark.parametrize("kind", [spawned, loky])
def test_a_killed_worker_is_an_error_and_its_parts_are_computed_later(
    kind, net, X, answers, tmp_path
):
    records = []

    def kill(record):
        if not records:
            os.kill(pid_of(record), signal.SIGKILL)
        records.append(record)

    with kind() as executor, pytest.raises(gbdnn.WorkerError) as caught:
        gbdnn.infer_to_store(
            net, X, tmp_path / "Y", executor=executor, stats=kill, batch=500, engine="full"
        )
    assert "Complete parts are kept" in str(caught.value)
    assert str(tmp_path / "Y") in str(caught.value)
    before = len(list((tmp_path / "Y").glob(".gbdnn-*/part-*/index.json")))
    assert 1 <= before < 18
    later = []
    with kind() as executor:
        Y = gbdnn.infer_to_store(
            net, X, tmp_path / "Y", executor=executor, stats=later.append, batch=500,
            engine="full",
        )  # fmt: skip
    assert len(later) == 18 - before
    assert Y.matrix().isequal(gbdnn.infer(net.loaded(), X, engine="full")) or np.allclose(
        Y.matrix().to_dense(fill_value=0), answers["full"].to_dense(fill_value=0), atol=1e-5
    )


@pytest.mark.frameworks
def test_a_killed_dask_worker_is_replaced(net, X, answers):
    with dask() as client:
        for _ in range(2):
            killed = []

            def kill(record, killed=killed):
                if not killed:
                    killed.append(pid_of(record))
                    os.kill(killed[0], signal.SIGKILL)

            two = Workers(client, count=2)
            Y = gbdnn.infer(net, X, executor=two, stats=kill, engine="full")
            assert Y.isequal(answers["full"])
            client.wait_for_workers(2)
            signal.alarm(SECONDS)


# Ranks of MPI.

MPI = """
import sys
import gbdnn
from mpi4py.futures import MPIPoolExecutor
if __name__ == "__main__":
    folder = sys.argv[1]
    net, X = gbdnn.load(folder + "/net", lazy=True), gbdnn.io.open_features(folder + "/X")
    with MPIPoolExecutor() as executor:
        records = []
        Y = gbdnn.infer(net, X, executor=executor, engine="full", stats=records.append)
        gbdnn.infer_to_store(net, X, sys.argv[2], executor=executor, engine="full")
        try:
            gbdnn.infer(net, X.matrix()[:, :5].new(), executor=executor)
        except gbdnn.ShapeError:
            pass
        assert Y.isequal(gbdnn.load(sys.argv[2]))
        print(len({each.worker for each in records}), Y.isequal(gbdnn.infer(net, X, engine="full")))
"""


def mpiexec(ranks, *arguments):
    """Run ``python -m mpi4py.futures`` on some ranks of this machine."""
    pytest.importorskip("mpi4py")
    here = os.path.dirname(sys.executable)  # noqa: PTH120
    path = os.pathsep.join([here, os.environ.get("PATH", "")])
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    command = ["mpiexec", "-n", str(ranks), "--oversubscribe", "--bind-to", "none",
               sys.executable, "-m", "mpi4py.futures", *map(str, arguments)]  # fmt: skip
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=SECONDS,
            env={**os.environ, **root, "PATH": path},
        )  # fmt: skip
    except FileNotFoundError:
        pytest.skip("there is no mpiexec")


@pytest.mark.frameworks
def test_ranks_of_mpi(folder, tmp_path):
    (tmp_path / "run.py").write_text(MPI)
    done = mpiexec(3, tmp_path / "run.py", folder, tmp_path / "Y")
    assert (done.stdout.split(), done.returncode) == (["2", "True"], 0), done.stderr


# The shell.


def test_workers_of_the_shell(folder, X, answers, tmp_path):
    arguments = ["infer", folder / "net", folder / "X", "--engine", "full", "-o"]
    printed = shell.well(*arguments, tmp_path / "Y", "--to", "store", "--workers", 2)
    living = np.count_nonzero(CASE.Y.any(axis=1))
    assert f"{living} of 9000 inputs have a category, {answers['full'].nvals} act" in printed
    assert "4 batches on " in printed
    assert gbdnn.load(tmp_path / "Y").isequal(answers["full"])
    again = shell.well(*arguments, tmp_path / "Y", "--to", "store", "--workers", 1)
    assert "nothing was left to compute" in again
    printed = shell.well(*arguments, tmp_path / "c.tsv", "--categories", "--workers", 1)
    assert "on 1 worker" in printed
    ids = gbdnn.io.read_categories(tmp_path / "c.tsv")
    assert np.array_equal(ids, np.flatnonzero(CASE.Y.any(axis=1)))


@pytest.mark.frameworks
def test_a_scheduler_of_the_shell(folder, answers, tmp_path):
    with dask() as client:
        arguments = ["infer", folder / "net", folder / "X", "--engine", "full", "--to", "store"]
        address = client.scheduler.address
        shell.well(*arguments, "-o", tmp_path / "Y", "--scheduler", address)
    assert gbdnn.load(tmp_path / "Y").isequal(answers["full"])


@pytest.mark.frameworks
def test_ranks_of_the_shell(folder, answers, tmp_path):
    done = mpiexec(
        3, "-m", "gbdnn", "infer", folder / "net", folder / "X", "--engine", "full",
        "-o", tmp_path / "Y", "--to", "store", "--mpi",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "4 batches on 2 workers" in done.stdout
    assert gbdnn.load(tmp_path / "Y").isequal(answers["full"])


def test_mistakes_in_the_shell(folder, tmp_path):
    net, X, out = folder / "net", folder / "X", tmp_path / "Y"
    shell.fails(
        "infer", net, X, "-o", out, "--workers", 2, "--mpi",
        match="--mpi beside --workers: one of them",
    )  # fmt: skip
    shell.fails("infer", net, X, "-o", out, "--mpi", match="mpiexec -n 5 python -m mpi4py.futures")
    gbdnn.io.write_network(gbdnn.radixnet(1024, 2), tmp_path / "tsv")
    shell.fails(
        "infer", tmp_path / "tsv", X, "-o", out, "--workers", 1, match="gbdnn convert"
    )  # fmt: skip


# The challenge.


@pytest.fixture(scope="module")
def problem():
    pytest.importorskip("sklearn")
    return challenge.generated(1024, 8, inputs=9000)


@pytest.fixture
def forgetting(tmp_path, monkeypatch):
    """The weights are gone when the clock starts: every worker has them in memory."""
    from gbdnn.challenge import outcome

    warmed = outcome.warmed

    def then_gone(*arguments):
        count = warmed(*arguments)
        shards = list(tmp_path.glob("*/network/shard-*"))
        assert shards
        for shard in shards:
            shard.unlink()
        return count

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(outcome, "warmed", then_gone)


@pytest.mark.slow
@pytest.mark.usefixtures("forgetting")
def test_the_challenge_on_workers(executor, problem, tmp_path):
    records, there = [], []

    def add(record):
        records.append(record)
        there.append(len(list(tmp_path.iterdir())))

    outcome = challenge.run(problem, executor=executor, repeat=2, compress=True, stats=add)
    assert outcome.check == "PASSED"
    assert 0 < len(outcome.categories) < 9000
    assert len(outcome.seconds) == len(outcome.balances) == 2
    assert len(records) == 8
    for found, some in zip(outcome.balances, (records[:4], records[4:]), strict=True):
        assert len(found.workers) == 2
        assert found.workers["inputs"].sum() == 9000
        assert found.workers["seconds"].sum() == pytest.approx(sum(r.seconds for r in some))
    assert outcome.balance is outcome.balances[outcome.seconds.index(min(outcome.seconds))]
    assert outcome.nthreads == records[0].threads
    assert set(there) == {1}  # the network, in a store
    assert list(tmp_path.iterdir()) == []
    once = challenge.run(problem, compress=True).processed
    assert outcome.processed == pytest.approx(once, rel=0.1)
    told = json.loads(json.dumps(outcome.as_json()))
    assert told["workers"] == 2
    for busy, found in zip(told["busy_seconds"], outcome.balances, strict=True):
        assert busy["min"] <= busy["mean"] <= busy["max"]
        assert busy["imbalance"] == found.seconds.imbalance == busy["max"] / busy["mean"]


@pytest.mark.usefixtures("forgetting")
def test_every_worker_is_warm_before_few_inputs():
    few = challenge.generated(1024, 8, inputs=300)
    with spawned() as pool:
        records = []
        outcome = challenge.run(few, executor=pool, repeat=3, stats=records.append)
        assert outcome.check == "PASSED"
        assert len(pool._processes) == 2
    assert len(records) == 3
    assert outcome.balance.seconds.min == 0
    assert outcome.balance.seconds.imbalance == 2


def test_the_network_is_removed_after_an_error(problem, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def interrupt(_):
        raise KeyboardInterrupt

    with ThreadPoolExecutor(2) as pool:
        with pytest.raises(KeyboardInterrupt):
            challenge.run(problem, executor=pool, stats=interrupt)
        with pytest.raises(gbdnn.ArgumentError, match="memory"):
            challenge.run(problem, executor=pool, memory=1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_challenge_in_the_shell(tmp_path, monkeypatch):
    (tmp_path / "T").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "T"))
    few = ["challenge", "--layers", 8, "--inputs", 9000]
    options = ["--repeat", 2, "--nthreads", 1, "--json", tmp_path / "outcome.json"]
    printed = shell.well(*few, *options, "--workers", 2)
    facts = dict(line.split(maxsplit=1) for line in printed.splitlines())
    assert facts["check"].startswith("PASSED (against SciPy in FP64), ")
    assert facts["threads"] == "1 on each of 2 workers"
    told = json.loads((tmp_path / "outcome.json").read_text())
    assert (told["workers"], told["nthreads"], len(told["seconds"])) == (2, 1, 2)
    at = told["seconds"].index(min(told["seconds"]))
    busy = told["busy_seconds"][at]
    words = "min {min:.3f}, mean {mean:.3f}, max {max:.3f} s, imbalance {imbalance:.2f}"
    assert facts["busy"] == words.format(**busy)
    assert 0 < len(told["categories"]) < 9000
    assert "busy" not in shell.well(*few)
    shell.fails(*few, "--workers", 2, "--mpi", match="--mpi beside --workers: one of them")
    shell.fails(*few, "--workers", 0, match="--workers")
    shell.fails(*few, "--mpi", match="mpiexec -n 5 python -m mpi4py.futures")
    shell.fails(*few, "--workers", 1, "--memory", 1, match="memory")
    left = [each.name for each in (tmp_path / "T").iterdir() if each.name.startswith("gbdnn-")]
    assert left == []


def test_the_task_is_a_function_of_a_module():
    """So that every engine can pickle it."""
    assert pickle.loads(pickle.dumps(compute)) is compute  # noqa: S301
