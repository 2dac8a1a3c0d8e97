"""infer as a guest: settings, callbacks, threads, and what it leaves behind."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import graphblas as gb
import numpy as np
import pytest
from conftest import network
from oracles import case, dense_layer

import gbdnn

CASE = case(7, bias="mixed vector", sizes=(40, 60, 50, 30), inputs=60, density=0.08)
NET = network(CASE.layers)


def settings():
    from graphblas.core.ss.context import threadlocal

    return (threadlocal.context, dict(gb.ss.config), dict(threadlocal.context))


def test_one_record_per_layer_in_the_callers_thread():
    stats, threads = [], set()

    def callback(record):
        stats.append(record)
        threads.add(threading.current_thread())

    gbdnn.infer(NET, CASE.X, callback=callback)
    assert threads == {threading.current_thread()}
    assert [s.layer for s in stats] == [0, 1, 2]
    Y = CASE.X
    for record, layer in zip(stats, CASE.layers, strict=True):
        Y = dense_layer(layer, Y)
        assert record.inputs == 60
        assert record.live == np.count_nonzero(Y.any(axis=1))
        assert record.entries == np.count_nonzero(Y)
        assert record.seconds > 0
        with pytest.raises(AttributeError):
            record.live = 0


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError("stop")])
@pytest.mark.parametrize("nthreads", [None, 1, 2])
def test_settings_are_as_before(error, nthreads):
    def fail(record):
        raise error

    with gb.ss.Context(nthreads=2, chunk=1234):
        before = settings()
        gbdnn.infer(NET, CASE.X, nthreads=nthreads)
        assert settings() == before
        with pytest.raises(type(error) if isinstance(error, Exception) else error):
            gbdnn.infer(NET, CASE.X, nthreads=nthreads, callback=fail)
        assert settings() == before
    outside = settings()
    gbdnn.infer(NET, CASE.X, nthreads=nthreads)
    assert settings() == outside


def test_nthreads_is_engaged_during_the_call():
    from graphblas.core.ss.context import threadlocal

    seen = []
    gbdnn.infer(
        NET, CASE.X, nthreads=1, callback=lambda _: seen.append(threadlocal.context["nthreads"])
    )
    assert set(seen) == {1}
    with gb.ss.Context(nthreads=2):
        gbdnn.infer(NET, CASE.X, callback=lambda _: seen.append(threadlocal.context["nthreads"]))
    assert seen[-1] == 2


def test_prints_nothing(capfd):
    gbdnn.infer(NET, CASE.X)
    assert capfd.readouterr() == ("", "")


def test_bits_do_not_depend_on_nthreads():
    rough = case(8, exact=False, sizes=(200, 300, 200), inputs=300, density=0.02)
    net = network(rough.layers)
    one, two = (gbdnn.infer(net, rough.X, nthreads=n) for n in (1, 2))
    assert one.isequal(two)


def test_concurrent_calls_on_one_network():
    net = network(CASE.layers)  # nothing prepared yet
    alone = gbdnn.infer(NET, CASE.X)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: gbdnn.infer(net, CASE.X, nthreads=1), range(16)))
    assert all(Y.isequal(alone) for Y in answers)


def run_python(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=os.environ
    )


def test_import_leaves_the_blocking_mode_to_the_caller():
    done = run_python(
        "import gbdnn, gbdnn.io, gbdnn.images, gbdnn.challenge, graphblas as gb\n"
        "gb.init(blocking=True)\n"
        "import numpy as np\n"
        "print(gbdnn.infer([np.eye(2)], np.eye(2)).nvals)"
    )
    assert (done.stdout, done.stderr, done.returncode) == ("2\n", "", 0)


def test_import_brings_in_little():
    done = run_python(
        "import sys, gbdnn\n"
        "print([m for m in ('scipy', 'polars', 'sklearn', 'typer', 'rich', 'torch', 'matplotlib')"
        " if m in sys.modules])"
    )
    assert done.stdout == "[]\n", done.stderr
