"""Four small cases, each in a process of its own, for whatever gbdnn ``PYTHONPATH`` leads to.

They call what the pages show, so that earlier commits can run them too.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import dense_problems
import numpy as np
from processes import serve
from turns import timed

if TYPE_CHECKING:
    from collections.abc import Callable

_BATCH, _STEPS = 128, 20


def fused() -> Callable[[], Any]:
    """A challenge's network, every input computed, in the fused form."""
    import gbdnn
    from gbdnn import challenge

    problem = challenge.generated(1024, 60, inputs=6000)
    net, X = problem.network, problem.features
    return lambda: gbdnn.infer(net, X, engine="fused", compress=False, nthreads=1)


def single() -> Callable[[], Any]:
    """One input, again and again, by `gbdnn.compile`."""
    import gbdnn

    problem = dense_problems.random_problem("784-512x2-10@5", 1, seed=0)
    run = gbdnn.compile(problem.network(), nthreads=1)
    return lambda: [run(problem.features) for _ in range(3000)]


def dense() -> Callable[[], Any]:
    """Dense features of a pruned network."""
    import gbdnn

    problem = dense_problems.random_problem("1024x4@10", 4000, seed=0)
    net, X = problem.network(), problem.features
    return lambda: gbdnn.infer(net, X, engine="fused", nthreads=1)


def training() -> Callable[[], Any]:
    """Steps of training on a fixed pattern, always from the same weights."""
    import gbdnn
    from gbdnn import training

    problem = dense_problems.random_problem("784-512x2-10@10", _BATCH * _STEPS, seed=0)
    net, X = problem.network(), problem.features
    y = np.random.default_rng(0).integers(0, 10, len(X))
    optimizer = training.SGD(0.01, 0.9)
    return lambda: gbdnn.train(
        net, X, y, epochs=1, batch_size=_BATCH, optimizer=optimizer, nthreads=1
    )


CASES = {
    "fused": "challenge's network, fused",
    "single": "one input, compiled",
    "dense": "dense features, pruned network",
    "training": "steps of training",
}


def prepare(case: str) -> Callable[..., dict[str, Any]]:
    """Return a case, to be called with each request; its facts name the gbdnn that runs."""
    run = timed(globals()[case]())

    def request() -> dict[str, Any]:
        return run()

    import gbdnn

    request.facts = {"gbdnn": gbdnn.__file__}  # type: ignore[attr-defined]
    return request


if __name__ == "__main__":
    serve(lambda: prepare(sys.argv[1]))
