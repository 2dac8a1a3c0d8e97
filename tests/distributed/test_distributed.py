"""Batches of inputs on executors: threads, processes, loky, Dask and the ranks of MPI."""

import gc
import multiprocessing
import os
import pickle
import shutil
import tempfile
import threading
import weakref
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from unittest import mock

import graphblas as gb
import numpy as np
import pytest
import shell
from calls import raises, raising
from conftest import network
from launch import mpiexec
from mortal import mortal
from oracles import case

import gbdnn
from gbdnn import challenge, errors
from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.distributed import BatchStats, Workers, balance
from gbdnn.distributed.rows import CompactRows

pytest.importorskip("safetensors")

CASE = case(5, sizes=(48, 64, 40, 32), inputs=9000, bias="mixed vector", exact=False)
LIVING = np.flatnonzero(CASE.Y.any(axis=1))


def threads():
    return ThreadPoolExecutor(2)


def spawned():
    return ProcessPoolExecutor(2, multiprocessing.get_context("spawn"))


@contextmanager
def loky():
    pool = pytest.importorskip("joblib.externals.loky").ProcessPoolExecutor(1)
    yield pool
    pool.shutdown(kill_workers=True)


@pytest.fixture(scope="module")
def client():
    """A client of two processes."""
    distributed = pytest.importorskip("distributed")
    # By default a LocalCluster gives up workers that restart a while after an earlier loss.
    patient = {"distributed.deploy.lost-worker-timeout": "1h"}
    with (
        mock.patch.dict(os.environ),  # a LocalCluster sets OMP_NUM_THREADS
        pytest.importorskip("dask").config.set(patient),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as found,
    ):
        yield found


@pytest.fixture(scope="module", params=[threads, spawned, loky], ids=lambda f: f.__name__)
def executor(request):
    with request.param() as found:
        yield found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The case in stores."""
    path = tmp_path_factory.mktemp("stores")
    gbdnn.save(network(CASE.layers), path / "net")
    gbdnn.io.write_features(CASE.X.astype("f4"), path / "X")
    return path


@pytest.fixture
def net(folder):
    return gbdnn.load(folder / "net", lazy=True)


@pytest.fixture
def X(folder):
    return gbdnn.io.open_features(folder / "X")


@pytest.fixture(scope="module")
def answer(folder):
    """The answer of one process, close to the oracle's."""
    Y = gbdnn.infer(network(CASE.layers), gbdnn.io.read_features(folder / "X"), engine="full")
    np.testing.assert_allclose(Y.to_dense(fill_value=0), CASE.Y, rtol=1e-5, atol=1e-5)
    return Y


# Equal answers.


def check(executor, net, X, answer, out):
    """`infer`, `infer_batches` and `infer_to_store` answer as one process does."""
    full = {"executor": executor, "engine": "full"}
    assert gbdnn.infer(net, X, **full).isequal(answer)
    found = list(gbdnn.infer_batches(net, X.batches(3000), **full))
    assert [Y.nrows for Y in found] == [3000] * 3
    assert gb.ss.concat([[Y] for Y in found]).isequal(answer)
    assert gbdnn.infer_to_store(net, X, out, **full).matrix().isequal(answer)


def command(folder, out):
    """The command that computes the case."""
    arguments = ["infer", folder / "net", folder / "X", "--engine", "full", "--to", "store"]
    return [*arguments, "-o", out]


def test_equal_answers(executor, net, X, answer, tmp_path):
    check(executor, net, X, answer, tmp_path / "Y")


@pytest.mark.frameworks
def test_equal_answers_of_dask(client, folder, net, X, answer, tmp_path):
    check(client, net, X, answer, tmp_path / "Y")
    with pytest.raises(errors.ArgumentError, match=r"gbdnn\.save\(net, folder\)"):
        gbdnn.infer(network(CASE.layers), X, executor=client)
    address = client.scheduler.address
    shell.well(*command(folder, tmp_path / "Z"), "--scheduler", address)
    assert gbdnn.io.read_features(tmp_path / "Z").isequal(answer)
    with type(client)(address, set_as_default=False) as closed:
        pass
    raises(errors.WorkerError, "the Dask client is closed", gbdnn.infer, net, X, executor=closed)


POOL = """
import sys
import gbdnn
from mpi4py.futures import MPIPoolExecutor
from mortal import mortal
if __name__ == "__main__":
    folder, out, mark = sys.argv[1:]
    net, X = gbdnn.load(folder + "/net", lazy=True), gbdnn.io.open_features(folder + "/X")
    if mark:
        net = mortal(folder + "/net", mark)
    with MPIPoolExecutor() as executor:
        records = []
        workers = gbdnn.distributed.Workers(executor, callback=records.append)
        Y = gbdnn.infer(net, X, executor=workers, engine="full")
        gbdnn.infer_to_store(net, X, out, executor=executor, engine="full")
        try:
            gbdnn.infer(net, X.matrix()[:, :5].new(), executor=executor)
        except gbdnn.errors.ShapeError:
            print(len(records), Y.isequal(gbdnn.io.read_features(out)))
"""


@pytest.fixture
def pool(folder, tmp_path):
    """Run the script above on three ranks."""
    (tmp_path / "pool.py").write_text(POOL)

    def run(mark=""):
        arguments = ["-m", "mpi4py.futures", tmp_path / "pool.py", folder, tmp_path / "Y", mark]
        return mpiexec(3, *arguments)

    return run


@pytest.mark.frameworks
def test_equal_answers_of_a_pool_of_mpi(pool, answer, tmp_path):
    done = pool()
    assert (done.stdout.split(), done.returncode) == (["4", "True"], 0), done.stderr
    assert gbdnn.io.read_features(tmp_path / "Y").isequal(answer)


@pytest.mark.parametrize("order", ["given", "hashed"])
def test_records_of_batches(net, X, answer, order):
    records = []
    workers = Workers(Pickling(), order=order, callback=records.append)
    Y = gbdnn.infer(net, X, executor=workers, engine="full")
    assert Y.isequal(answer)
    assert sorted(each.batch for each in records) == [0, 1, 2, 3]
    assert [each.done for each in records] == [1, 2, 3, 4]
    assert all((each.inputs, each.batches) == (2250, 4) for each in records)
    assert sum(each.alive for each in records) == len(LIVING)
    assert sum(each.entries for each in records) == Y.nvals
    assert all(list(each.kernels) == ["full"] and each.kernels["full"] > 0 for each in records)


def test_slices_and_casts_of_a_network(net, X):
    part = net[1:].astype("FP64")
    middle = gbdnn.infer(net[:1], X, engine="full")
    Y = gbdnn.infer(part, middle, executor=Pickling(), engine="full")
    assert Y.isequal(gbdnn.infer(part.loaded(), middle, engine="full"), check_dtype=True)
    assert Y.dtype == "FP64"


def test_a_network_in_memory(executor, X, answer, tmp_path, monkeypatch):
    """Processes of this machine read it from a temporary store, which is removed."""
    (tmp_path / "t").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "t"))
    given = network(CASE.layers)
    check(executor, given, X, answer, tmp_path / "Y")
    for _ in gbdnn.infer_batches(given, X.batches(100), executor=executor):
        break
    gc.collect()
    assert list((tmp_path / "t").iterdir()) == []


def test_a_worker_reads_a_network_once(tmp_path, X):
    gbdnn.save(network(CASE.layers), tmp_path / "net")
    net = gbdnn.load(tmp_path / "net", lazy=True)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        Y = gbdnn.infer(net, X, executor=pool)
        shutil.rmtree(tmp_path / "net")
        assert gbdnn.infer(net, X, executor=pool).isequal(Y)
        with pytest.raises(errors.MissingFileError, match=r"worker on .* file system that all"):
            gbdnn.infer(net[:2], X, executor=pool)


def test_a_replaced_store_is_another_network(executor, X, tmp_path):
    for sign in (1, -1):
        layer = gbdnn.Layer(sign * np.eye(48, dtype="f4"))
        gbdnn.save(gbdnn.Network([layer]), tmp_path / "net", replace=True)
        net = gbdnn.load(tmp_path / "net", lazy=True)
        assert gbdnn.infer(net, X, executor=executor).isequal(gbdnn.infer(net, X))


def test_threads_keep_nothing(folder):
    net, X = gbdnn.load(folder / "net", lazy=True), gbdnn.io.open_features(folder / "X")
    kept = [weakref.ref(net), weakref.ref(X)]
    with ThreadPoolExecutor(2) as pool:
        gbdnn.infer(net, X, executor=Workers(pool, batch_size=500))
        del net, X
        gc.collect()
        assert [ref() for ref in kept] == [None, None]


# Bytes and batches.


class Pickling(Executor):
    """Computes a task when it is submitted; keeps the sizes of the pickled tasks."""

    _max_workers = 4

    def __init__(self):
        self.sizes = []

    def submit(self, fn, /, *args):
        task = pickle.dumps((fn, args))
        self.sizes.append(len(task))
        fn, args = pickle.loads(task)  # noqa: S301
        future = Future()
        future.set_result(pickle.loads(pickle.dumps(fn(*args))))  # noqa: S301
        return future


def test_tasks_are_small(net, X, tmp_path):
    executor, records = Pickling(), []
    gbdnn.save(gbdnn.gallery.radixnet(1024, 60, lazy=True), tmp_path / "deep")
    deep = gbdnn.load(tmp_path / "deep", lazy=True)
    gbdnn.io.write_features(np.zeros((8, 1024), "f4"), tmp_path / "zero")
    gbdnn.infer(deep[2:50], gbdnn.io.open_features(tmp_path / "zero"), executor=executor)
    assert max(executor.sizes) < 2000
    # One byte per column index, four per value; at most four per row, in each direction.
    executor, matrix = Pickling(), X.matrix()
    Y = gbdnn.infer(net, matrix, executor=Workers(executor, callback=records.append))
    rows = 2 * 4 * (9000 + 4)
    assert sum(executor.sizes) < 5 * matrix.nvals + rows + 20_000
    assert sum(each.bytes for each in records) < 5 * (matrix.nvals + Y.nvals) + rows


@pytest.mark.parametrize(
    ("inputs", "workers", "batch", "sizes"),
    [
        (60, 2, None, [60]), (9000, 9, None, [2250] * 4), (30_000, 2, None, [3750] * 8),
        (100, 2, 30, [33, 33, 34]), (100, 2, 1000, [100]),
    ],
)  # fmt: skip
def test_sizes_of_batches(inputs, workers, batch, sizes):
    records = []
    with ThreadPoolExecutor(workers) as pool:
        over = Workers(pool, batch_size=batch, callback=records.append)
        gbdnn.infer([np.eye(2)], np.ones((inputs, 2)), executor=over)
    assert sorted(each.inputs for each in records) == sizes


def test_hashing_spreads_the_living():
    """Inputs sorted by class: one of ten classes survives."""
    X = np.zeros((20_000, 2))
    X[2000:4000] = 1
    spread = {}
    for order in ("given", "hashed"):
        records = []
        with ThreadPoolExecutor(2) as pool:
            workers = Workers(pool, order=order, batch_size=2000, callback=records.append)
            Y = gbdnn.infer([np.eye(2)], X, executor=workers)
        assert np.array_equal(gbdnn.categories(Y), np.arange(2000, 4000))
        spread[order] = sorted(each.alive for each in records)
    assert spread["given"] == [0] * 9 + [2000]
    assert all(abs(living - 200) < 5 * np.sqrt(200) for living in spread["hashed"])


def record(batch, worker, seconds=1.0, inputs=1):
    return BatchStats(
        batch=batch, worker=worker, inputs=inputs, alive=1, entries=2, seconds=seconds,
        bytes=100, threads=1, done=batch + 1, batches=3,
    )  # fmt: skip


def test_balance():
    records = [record(0, "a", 1.0, 10), record(1, "b", 2.0, 20), record(2, "a", 3.0, 30)]
    found = balance(records)
    assert found.workers["worker"].tolist() == ["a", "b"]
    assert found.workers["batches"].tolist() == [2, 1]
    assert (found.seconds.min, found.seconds.mean, found.seconds.max) == (2.0, 3.0, 4.0)
    assert found.inputs.imbalance == pytest.approx(4 / 3)
    assert found.bytes.max == 200
    assert balance(records, workers=4).seconds.imbalance == pytest.approx(4 / 1.5)
    assert "seconds" in str(found)
    raises(errors.ArgumentError, "records of 2 workers, but workers=1", balance, records, workers=1)
    raises(errors.ArgumentError, "0 workers", balance, [])


# What is in flight.


def batches(asked):
    """Many batches; each one's number is added to a list when it is asked for."""
    for n in range(1_000_000):
        asked.append(n)
        yield np.full((2, 48), n % 7, "f4")


@pytest.mark.parametrize("ahead", [None, 1, 3])
def test_a_bounded_number_of_batches_is_in_flight(net, ahead):
    asked = []
    with ThreadPoolExecutor(2) as executor:
        answers = gbdnn.infer_batches(net, batches(asked), executor=Workers(executor, ahead=ahead))
        assert asked == []
        for given in range(200):
            next(answers)
            assert len(asked) <= given + (ahead or 4)
        answers.close()


class Client(Pickling):
    """A Dask client whose workers come and go."""

    status, workers = "running", {"a": 1}

    def nthreads(self):
        return self.workers

    def get_executor(self, *, pure):
        assert not pure
        return Pickling()


def test_workers_that_come_and_go_are_counted(net):
    asked, client = [], Client()
    assert (Workers(client).count, Workers(client).nthreads) == (1, 1)
    answers = gbdnn.infer_batches(net, batches(asked), executor=client)
    done = 0
    for workers in ({"a": 1}, {"a": 1, "b": 2}, {}, {"d": 9}):
        client.workers = workers
        for _ in range(20):
            next(answers)
            done += 1
        assert len(asked) - done == 2 * max(1, sum(workers.values())) - 1


class Gated(ThreadPoolExecutor):
    """Threads whose tasks wait for `gate`, but for the first; keeps the futures."""

    def __init__(self, first):
        super().__init__(2)
        self.gate, self.futures, self.first = threading.Event(), [], first

    def submit(self, fn, /, *args):
        is_first = not self.futures

        def run():
            if is_first:
                return self.first(lambda: fn(*args))
            self.gate.wait()
            return fn(*args)

        self.futures.append(super().submit(run))
        return self.futures[-1]


@pytest.mark.parametrize(
    ("first", "stats", "error", "match"),
    [
        (raising(errors.ArgumentError("mine")), None, errors.ArgumentError, "^batch 0: mine"),
        (lambda call: call(), raising(KeyboardInterrupt), KeyboardInterrupt, None),
    ],
    ids=["error", "interrupt"],
)
def test_the_other_tasks_are_cancelled(net, first, stats, error, match):
    few = np.ones((100, 48), "f4")
    with Gated(first) as pool:
        workers = Workers(pool, ahead=10, batch_size=1, callback=stats)
        raises(error, match, gbdnn.infer, net, few, executor=workers)
        cancelled = [future.cancelled() for future in pool.futures]
        pool.gate.set()
        assert gbdnn.infer(net, few[:3], executor=Workers(pool, batch_size=1)).nrows == 3
    assert len(cancelled) == 10
    assert sum(cancelled) >= 7  # one has finished, two may run


def test_an_executor_stays_usable(executor, net, X, answer):
    wrong = CASE.X.astype("f4")
    wrong[5000, 3] = np.nan  # in the third of four batches
    raises(errors.ArgumentError, r"^batch 2: .*nan", gbdnn.infer, net, wrong, executor=executor)
    workers = Workers(executor, batch_size=300, callback=raising(KeyboardInterrupt))
    raises(KeyboardInterrupt, None, gbdnn.infer, net, X, executor=workers)
    assert gbdnn.infer(net, X, executor=executor, engine="full").isequal(answer)


def test_an_error_of_the_batches_comes_in_its_turn(net):
    narrow = [np.ones((2, 48), "f4"), np.ones((2, 5), "f4")]

    def broken():
        yield narrow[0]
        raise KeyError("mine")

    for pool in (None, Pickling(), ThreadPoolExecutor(2)):
        for given, error, match in (
            (narrow, errors.ShapeError, "^batch 1: features are 2 x 5"),
            (broken(), KeyError, "mine"),
        ):
            answers = gbdnn.infer_batches(net, given, executor=pool)
            assert next(answers).nrows == 2
            raises(error, match, next, answers)


# Workers that die, and executors that fail.


@pytest.mark.parametrize("kind", [spawned, pytest.param(loky, marks=pytest.mark.slow)])
def test_a_lost_worker_is_an_error(kind, folder, X, tmp_path):
    net = mortal(folder / "net", tmp_path / "mark")
    match = r"^batch \d+: the executor failed"
    with kind() as pool:
        raises(errors.WorkerError, match, gbdnn.infer, net, X, executor=pool, engine="full")


@pytest.mark.frameworks
def test_dask_replaces_a_lost_worker(client, folder, X, answer, tmp_path):
    net, workers = mortal(folder / "net", tmp_path / "mark"), Workers(client, count=2)
    assert gbdnn.infer(net, X, executor=workers, engine="full").isequal(answer)
    client.wait_for_workers(2)
    assert (tmp_path / "mark").exists()


@pytest.mark.frameworks
def test_dask_gives_batches_to_workers_that_come_late(client, net, X):
    records = []

    def scale(record):
        records.append(record)
        if len(records) == 1:
            client.cluster.scale(3)
            client.wait_for_workers(3)

    gbdnn.infer(net, X, executor=Workers(client, batch_size=100, callback=scale))
    assert len({each.worker for each in records}) == 3


@pytest.mark.frameworks
def test_a_lost_rank_ends_the_job(pool, tmp_path):
    done = pool(tmp_path / "mark")
    assert done.returncode != 0
    assert "True" not in done.stdout


def calls(net, X, out, **options):
    """The calls that compute on an executor, by name."""
    return {
        "infer": lambda: gbdnn.infer(net, X, **options),
        "infer_batches": lambda: next(gbdnn.infer_batches(net, [X], **options)),
        "infer_to_store": lambda: gbdnn.infer_to_store(net, X, out, **options),
    }


class Failing(Executor):
    """Its `submit` returns what `answer` returns."""

    _max_workers = 2

    def __init__(self, answer):
        self.answer = answer

    def submit(self, fn, /, *args):
        return self.answer()


def failed(error):
    future = Future()
    future.set_exception(error)
    return future


def cancelled():
    """Cancelled as a shutdown does, without a notice to those that wait."""
    future = Future()
    threading.Thread(target=future.cancel).start()
    return future


class NodeDiedError(Exception):
    __module__ = "ray.exceptions"


class RayTaskError(NodeDiedError, errors.ShapeError):
    __module__ = "ray.exceptions"


@pytest.mark.parametrize(
    ("answer", "error", "match"),
    [
        (
            raising(RuntimeError("after shutdown")), errors.WorkerError,
            "cannot submit a task to the executor: aft",
        ),
        (cancelled, errors.WorkerError, "^batch 0: .* after 0 finished batches: CancelledError"),
        (lambda: failed(NodeDiedError("gone")), errors.WorkerError, "NodeDiedError: gone"),
        (lambda: failed(RayTaskError("3 x 5")), errors.ShapeError, "^batch 0: 3 x 5"),
        (lambda: None, errors.ArgumentTypeError, "submit must return a concurrent.futures.Future"),
    ],
)  # fmt: skip
def test_executors_that_fail(net, tmp_path, answer, error, match):
    X = np.ones((3, 48), "f4")
    for call in calls(net, X, tmp_path / "Y", executor=Failing(answer)).values():
        raises(error, match, call)


# Wrong calls.


def test_forked_processes_are_refused(net, X, tmp_path):
    with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
        for call in calls(net, X, tmp_path / "Y", executor=pool).values():
            raises(errors.ForkError, "spawn", call)
    assert not (tmp_path / "Y").exists()


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"executor": Pickling(), "nthreads": 0}, "nthreads"),
        ({"executor": Pickling(), "callback": print}, "callback=.*Workers"),
        ({"executor": Executor()}, r"the number of workers of Executor is unknown; .*Workers\("),
    ],
)
def test_wrong_options(net, X, options, match):
    for layers in (net, []):
        raises(gbdnn.GbdnnError, match, gbdnn.infer, layers, X, **options)


def test_hashing_is_for_infer(net, X, tmp_path):
    found = calls(net, X, tmp_path / "Y", executor=Workers(Pickling(), order="hashed"))
    for name in ("infer_batches", "infer_to_store"):
        raises(errors.ArgumentError, "order='hashed'", found[name])
    assert not (tmp_path / "Y").exists()


@pytest.mark.parametrize("executor", [None, Pickling()], ids=["here", "executor"])
def test_unknown_keywords(executor, net, X, tmp_path):
    for name, call in calls(net, X, tmp_path / "Y", executor=executor, quick=1).items():
        raises(TypeError, rf"^{name}\(\) got an unexpected .* 'quick'", call)


# The shell and the challenge.


def test_workers_of_the_shell(folder, answer, tmp_path):
    printed = shell.well(*command(folder, tmp_path / "Y"), "--workers", 2)
    assert "activations of 9000 inputs, " in printed
    assert ", batches: 4, busy for " in printed
    assert gbdnn.io.read_features(tmp_path / "Y").isequal(answer)
    shell.fails(*command(folder, tmp_path / "Z"), "--workers", 2, "--mpi", match="--mpi")


@pytest.mark.frameworks
def test_a_pool_of_mpi_in_the_shell(folder, answer, tmp_path):
    launched = ["-m", "mpi4py.futures", "-m", "gbdnn", *command(folder, tmp_path / "Y"), "--mpi"]
    done = mpiexec(3, *launched)
    assert done.returncode == 0, done.stderr
    assert gbdnn.io.read_features(tmp_path / "Y").isequal(answer)


def test_the_challenge_on_workers():
    problem, records = challenge.generate(1024, 8, inputs=300), []
    with ThreadPoolExecutor(2) as pool:
        outcome = challenge.run(problem, executor=Workers(pool, callback=records.append), repeat=2)
    assert outcome.check == "PASSED"
    assert 0 < len(outcome.categories) < 300
    assert [len(found.workers) for found in outcome.balances] == [2, 2]
    assert [found.workers["inputs"].sum() for found in outcome.balances] == [300, 300]
    assert len(records) == 3


def test_an_asynchronous_client_is_refused():
    client = Client()
    client.asynchronous = True
    raises(errors.ArgumentError, "an asynchronous Dask client is not supported", Workers, client)


def test_rows_that_are_sent_keep_their_numbers():
    rows = SparseRows.from_array(np.eye(2))
    assert CompactRows.of(rows, ids=np.array([3, 1000])).rows().ids.tolist() == [3, 1000]
