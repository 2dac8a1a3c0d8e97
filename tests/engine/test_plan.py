"""The plan of a run: what `gbdnn.plan` says is what `infer` does."""

from functools import partial

import graphblas as gb
import numpy as np
import pytest
import scipy.sparse as sp
from calls import raises
from conftest import network
from networks import converging, pruned
from oracles import case

import gbdnn
from gbdnn import errors
from gbdnn.arrays.sources import DenseRows
from gbdnn.engine.progress import RunProgress, watched
from gbdnn.kernels import costs
from gbdnn.kernels.fused_run import CompiledRun
from gbdnn.kernels.fused_shares import FusedShares, FusedSingle
from gbdnn.runtime.machine import machine

SIZES = (24, 30, 18, 20, 25, 31, 17, 22, 28, 20)
CASE = case(4, rule="entries", sizes=SIZES, inputs=90, density=0.4, exact=False)


def planned(net, X, **options):
    """The plan that a run records, which must be that of `gbdnn.plan` before it."""
    before = gbdnn.plan(net, X, **options)
    with watched(RunProgress()) as progress:
        gbdnn.infer(net, X, **options)
    assert progress.plan == before
    return before


def test_the_same_kernels_as_in_the_records():
    net, X = converging()
    for engine in ("full", "fused", "sparse"):
        records = []
        plan = planned(net, X, engine=engine, callback=records.append)
        assert {record.kernel for record in records} == {group.kernel for group in plan.groups}
    assert {group.why for group in gbdnn.plan(net, X, callback=id).groups} == {"least time"}


def test_what_runs_is_what_is_planned(monkeypatch, on):
    """In 300 random calls: threads, threads that share neurons, and inputs per block."""
    ran, random = {}, np.random.default_rng(5)

    def note(owner, name, of):
        real = getattr(owner, name)

        def noted(*args, **options):
            ran.update(of(*args))
            return real(*args, **options)

        monkeypatch.setattr(owner, name, noted)

    note(CompiledRun, "advance", lambda run, *_: {"workers": run.threads, "width": run.width})
    note(FusedSingle, "run", lambda _, x, out, count, work: {"threads_each": count})
    note(FusedShares, "run", lambda _, rows, count, *more: {"threads_each": count})
    note(DenseRows, "dense_rows", lambda _, start, stop: {"width": stop - start})
    on("Zen 5, 8 cores")
    shapes = (24, 30, 18), (40, 40, 40, 40, 9), (200, 150)
    nets = [network(pruned(shape, (0.5,))) for shape in shapes]
    found = set()
    for _ in range(300):
        # NetworkFacts are kept; the rules below are asked by each call.
        monkeypatch.setattr(costs, "SHARE", 10.0 ** random.integers(0, 5))
        monkeypatch.setattr(costs, "HAND_OVER", 10.0 ** random.integers(2, 8))
        net, nthreads = nets[random.integers(3)], int(random.integers(1, 4))
        inputs = int(random.choice([1, 2, 3, 16, 17, 32, 33, 64, 200, 700]))
        X = random.random((inputs, net.shape[0])).astype("f4")
        net._prepared._made.clear()
        sizes = gbdnn.plan(net, X, nthreads=nthreads).sizes
        call = partial(gbdnn.infer, net, nthreads=nthreads)
        if random.random() < 0.5:
            call = gbdnn.compile(net, nthreads=nthreads)  # which runs all paths
        ran.clear()
        call(X)
        assert ran.get("workers", 1) == sizes.workers
        assert ran.get("threads_each", 1) == sizes.threads_each
        assert inputs <= 2 or ran["width"] == sizes.width
        found.add((inputs <= 2, sizes.workers > 1, sizes.threads_each > 1))
    assert len(found) == 5  # all but shared neurons in several blocks, and singles in blocks


def test_layers_that_only_the_sparse_kernel_computes_are_a_group():
    W = np.eye(8)
    layers = [gbdnn.Layer(W), gbdnn.Layer(W, 0.5, bias_rule="entries"), gbdnn.Layer(W)]
    plan = planned(layers, np.eye(8)[:3], engine="full")
    kernels = [(group.first, group.stop, group.kernel, group.why) for group in plan.groups]
    forced = [(k, k + 1, "full", "forced") for k in (0, 2)]
    assert kernels == [forced[0], (1, 2, "sparse", "positive bias on entries"), forced[1]]


def test_blocks_with_many_entries_stay_blocks():
    """Few edges multiply little, but all entries would be converted to rows."""
    net = gbdnn.Network([np.diag(np.arange(1000) % 10 == 0)] * 2)
    plan = gbdnn.plan(net, sp.eye_array(1000, format="csr"))
    assert 0 < plan.limit(1, 1000, is_sparse=False) < 100


def test_networks_on_disk():
    held = network(CASE.layers)
    net = gbdnn.Network.lazy([layer.info for layer in held], held.__getitem__)
    plan = planned(net, CASE.X, memory="200kB", nthreads=1)
    assert len(plan.sizes.starts) > 1
    assert f"{len(plan.sizes.starts)} groups of layers" in repr(plan)


def test_the_table():
    plan = gbdnn.plan(network(CASE.layers), CASE.X, engine="full", nthreads=1)
    lines = repr(plan).splitlines()
    assert lines[0] == "Plan: 90 inputs, 9 layers, engine 'full'"
    assert lines[1].split("  ")[1:3] == ["layers", "kernel"]
    assert lines[2].split()[:2] == ["0-8", "full"]
    assert [line.split("  ")[1] for line in lines[3:]] == [
        "blocks", "equal inputs merged", "memory", "expected",
    ]  # fmt: skip
    assert "&#x27;full&#x27;" in plan._repr_html_()
    assert plan.seconds > 0
    assert plan.facts.entries == np.count_nonzero(CASE.X)
    line = gbdnn.plan(network(CASE.layers), CASE.X[:16], engine="fused", nthreads=1)
    assert line.groups[0].ms["fused"] == pytest.approx(1e-6 * line.facts.net.line)


def test_networks_and_training_runs_are_tables_in_notebooks():
    net = network(CASE.layers)
    assert net._repr_html_().count("<tr>") == 10
    start = gbdnn.training.erdos_renyi([4, 2], density=1)
    run = gbdnn.train(start, np.eye(4), [0, 1, 0, 1], epochs=2)
    assert run._repr_html_().count("<tr>") == 3


def test_nothing_to_plan():
    raises(errors.ArgumentTypeError, "no layers", gbdnn.plan, [], np.eye(3))
    with pytest.raises(errors.ArgumentTypeError, match=r"plan\(\) got an unexpected .*'executor'"):
        gbdnn.plan([np.eye(3)], np.eye(3), executor=None)
    with pytest.raises(errors.ArgumentTypeError, match="layer 0 is a graph convolution; call"):
        gbdnn.plan([gbdnn.graph.Convolution(np.eye(3))], np.eye(3))
    raises(errors.ShapeError, "pass features with 3 columns", gbdnn.plan, [np.eye(3)], np.eye(4))


def test_plans_of_a_few_inputs_are_kept_by_all_that_they_depend_on():
    net, X = network(CASE.layers), CASE.X[:5].astype("f4")
    plan = gbdnn.plan(net, X, nthreads=1)
    assert gbdnn.plan(net, X.astype("f8").astype("f4"), nthreads=1) is plan
    others = [
        *(gbdnn.plan(net, X[:n], nthreads=1) for n in (1, 2, 3)),
        *(gbdnn.plan(net, X, nthreads=1, **{name: x}) for name, x in (
            ("engine", "fused"), ("memory", "1MiB"), ("deduplicate", True), ("callback", id),
        )),
        gbdnn.plan(net, X, nthreads=3),
    ]  # fmt: skip
    assert all(other != plan for other in others)
    for threads in (1, 3, 8):
        with gb.ss.Context(engage=False, nthreads=threads):
            assert gbdnn.plan(net, X).facts.threads == min(threads, machine().cores)


@pytest.mark.parametrize(("density", "kernel"), [(0.001, "sparse"), (0.003, "fused")])
def test_the_sparse_kernel_computes_features_of_up_to_about_two_thousandths(density, kernel, on):
    """With 32 edges per neuron, as the page of resources says."""
    on("Zen 4, 2 cores")
    random = np.random.default_rng(0)
    X = sp.random_array((2000, 1024), density=density, format="csr", dtype="f4", rng=random)
    plan = gbdnn.plan(gbdnn.gallery.radixnet(1024, 2), X)
    assert plan.groups[0].kernel == kernel
