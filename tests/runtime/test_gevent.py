"""gevent makes threads of Python greenlets: those that compute stay threads of the system."""

import pytest
from shell import python

pytest.importorskip("gevent")

pytestmark = pytest.mark.frameworks

PATCH = "from gevent import monkey; monkey.patch_all()"
CALLS = """
import faulthandler, sys
faulthandler.dump_traceback_later(100, exit=True)
import gevent, numpy as np, gbdnn
net, X = gbdnn.gallery.radixnet(1024, 6), np.random.default_rng(0).random((2000, 1024), dtype="f4")
gbdnn.save(net, sys.argv[1])

def call(engine):
    Y = gbdnn.infer(net, X, engine=engine, nthreads=3)
    assert Y.isequal(gbdnn.infer(gbdnn.load(sys.argv[1], lazy=True), X, engine=engine, nthreads=2))
    gbdnn.compile(net, nthreads=2)(X[:64])
    small = gbdnn.training.erdos_renyi([1024, 512, 10], density=0.1)
    gbdnn.train(small, X, np.arange(2000) % 10, epochs=1, nthreads=2)

jobs = [gevent.spawn(call, engine) for engine in ("fused", "full", "sparse")]
for job in gevent.joinall(jobs):
    job.get()
"""


@pytest.mark.parametrize("order", [(PATCH, "import gbdnn"), ("import gbdnn", PATCH)])
def test_calls_of_greenlets(order, tmp_path):
    done = python("\n".join(order) + CALLS, tmp_path / "net")
    assert done.returncode == 0, done.stderr
