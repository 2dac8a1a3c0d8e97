import os
import signal
import sys
from functools import partial
from pathlib import Path
from zlib import crc32

import machines
import numpy as np
import pytest
from hypothesis import settings
from patches import eager, narrow, reordered, uncompiled

import gbdnn
from gbdnn.kernels.compiled import loading
from gbdnn.runtime import machine as machine_module
from gbdnn.runtime.first_use import gb

# A shell starts what runs in its background with SIGINT ignored, nohup with SIGHUP; processes that
# tests start would inherit it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Workers of pytest-xdist share the cores: threads that wait would take them by spinning.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# The first example of a test may wait for GraphBLAS to start.
settings.register_profile("gbdnn", deadline=None, max_examples=10, derandomize=True, database=None)
settings.register_profile("thorough", deadline=None, max_examples=200)
settings.load_profile("gbdnn")


def pytest_sessionstart(session):
    """Without kernels from these sources, most tests would fail with the same error."""
    if machine_module.machine().level and loading.library("float32") is None:
        pytest.exit(
            "the compiled kernels are missing, or older than their sources; run"
            " python gbdnn/kernels/compiled/build.py (after pip install ziglang==0.17.1)", 4,
        )  # fmt: skip


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Frameworks may warn."""
    for item in items:
        if item.get_closest_marker("frameworks"):
            item.add_marker(pytest.mark.filterwarnings("default"), append=False)


@pytest.fixture
def on(monkeypatch):
    """Make choices for another machine of `machines.MACHINES`: ``on("Apple M")``."""

    def replace(name):
        monkeypatch.setattr(machine_module, "_current", machines.named(name))

    return replace


# These tests make the choices of another machine, with another default number of threads. The
# compiled kernels are those of the processor at hand.
VARIED = tuple(f"tests/{name}" for name in ("engine", "graph", "kernels", "training", "test_inf"))
NAMES, THREADS = list(machines.MACHINES), (1, 3, 8)


@pytest.fixture(autouse=True)
def variation(request):
    """Use another machine and number of threads for each combination of a test's parameters.

    They depend on the test's name and on the positions of its parameters: neighbouring combinations
    have other machines and threads, and 33 of them all pairs.
    """
    nodeid, parameters = request.node.nodeid, getattr(request.node, "callspec", None)
    if not nodeid.startswith(VARIED):
        yield
        return
    at = crc32(nodeid.partition("[")[0].encode())
    at += sum(parameters.indices.values()) if parameters else 0
    name, threads = NAMES[at % len(NAMES)], THREADS[at % len(THREADS)]
    print("machine:", name, threads)  # noqa: T201 -- shown if the test fails
    with pytest.MonkeyPatch.context() as patch:
        if not machines.IS_AVX2:
            patch.setattr(machine_module, "_current", machines.named(name))
        before = gb.ss.config["nthreads"]
        if "OMP_NUM_THREADS" not in os.environ:
            gb.ss.config["nthreads"] = threads
        yield
        gb.ss.config["nthreads"] = before


@pytest.fixture(autouse=True)
def environment():
    """What a test sets is gone after it: Dask sets OMP_NUM_THREADS=1 in the head of a cluster."""
    before = dict(os.environ)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
    yield
    own = "PYTEST_CURRENT_TEST"  # differs between the start and the end of a test
    if dict(os.environ) | {own: before[own]} != before:
        os.environ.clear()
        os.environ.update(before)


ENGINES = ("auto", "fused", "graphblas", "lagraph", "sparse", "full")
CONFIGURATIONS = {
    **{engine: ({"engine": engine}, []) for engine in ENGINES},
    "auto, uncompiled": ({}, [uncompiled]), "full, narrow": ({"engine": "full"}, [narrow]),
    "fused, reordered, five threads": ({"engine": "fused", "nthreads": 5}, [narrow, reordered]),
    "auto, changing kernels": ({}, [narrow, reordered, eager]),
    "sparse, small batches": ({"engine": "sparse", "memory": 60_000}, []),
}  # fmt: skip


@pytest.fixture(params=CONFIGURATIONS.values(), ids=CONFIGURATIONS.keys())
def infer(request, monkeypatch):
    """`gbdnn.infer` by every engine, with blocks and pools of every kind."""
    options, patches = request.param
    for patch in patches:
        patch(monkeypatch)
    return partial(gbdnn.infer, **options)


@pytest.fixture(scope="session")
def data():
    """The folder with official data: its `graphchallenge/` and `mnist/`."""
    folder = os.environ.get("GBDNN_DATA")
    if not folder:
        pytest.skip("GBDNN_DATA is not set: official data are needed")
    return Path(folder)


@pytest.fixture(scope="session")
def official(data):
    """The official challenge files."""
    return data / "graphchallenge"


@pytest.fixture
def trained(tmp_path):
    """A store with a network of biases, a clip and no last activation."""
    rng = np.random.default_rng(0)
    first = gbdnn.Layer(rng.normal(size=(4, 3)), rng.normal(size=3), clip=6)
    last = gbdnn.Layer(rng.normal(size=(3, 2)), rng.normal(size=2), activation="identity")
    gbdnn.save([first, last], tmp_path / "trained")
    return tmp_path / "trained"


def network(layers, dtype="FP32"):
    """The oracle's layers as a Network."""
    return gbdnn.Network([
        gbdnn.Layer(x.W, x.b, bias_rule=x.rule, activation=x.activation, clip=x.clip, dtype=dtype)
        for x in layers
    ])  # fmt: skip
