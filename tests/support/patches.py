"""Other choices of the engine: functions that change them by a monkeypatch of pytest."""

from gbdnn.arrays import answer, sparse_rows
from gbdnn.engine import graphblas_run
from gbdnn.kernels import costs, fused_run, fused_shares, parts
from gbdnn.runtime import machine as machine_module


def regrouped(patch):
    """Inputs are regrouped between windows, even in shallow networks with dense features."""
    patch.setattr("gbdnn.engine.plan.fits_shallow", lambda *_: False)


def narrow(patch):
    """Blocks of few inputs, which are regrouped after every layer; the dead are dropped at once."""
    regrouped(patch)
    patch.setattr("gbdnn.engine.run.is_stop", lambda *_, **__: True)
    patch.setattr(costs, "panel_width", lambda *_: 16)
    patch.setattr(costs, "block_rows", lambda *_: 40)
    patch.setattr(costs, "fused_width", lambda *_: 16)
    patch.setattr(costs, "MOVE_ROW", 0.0)
    patch.setattr(costs, "MOVE_FULL", 0.0)


def reordered(patch):
    patch.setattr(costs, "reordering_pays", lambda _: True)


def eager(patch):
    """The sparse kernel looks cheap in the middle of a block's way, and dear at its start."""
    patch.setattr(costs, "sparse_layer", lambda inputs, entries, *_: 1e3 * (entries > inputs * 9))


def uncompiled(patch):
    """There are no compiled kernels for the processor."""
    patch.setattr(machine_module, "_current", machine_module.machine()._replace(level=""))


def divided(patch):
    """Threads share little work, always with help; compiled code returns often; small buffers."""
    for name in ("HAND_OVER", "SHARE", "PART"):
        patch.setattr(costs, name, 1e-9)
    patch.setattr(costs, "THREAD", 1.0)
    patch.setattr(costs, "PART_ROWS", 10)
    patch.setattr(costs, "panel_rows", lambda _edges, nrows, _ncols: min(50, nrows))
    patch.setattr(fused_run, "SLICE", 1000)
    patch.setattr(parts, "_SLICE", 0)
    watch = fused_run.CompiledRun.watch
    patch.setattr(fused_run.CompiledRun, "watch", lambda run, counts: watch(run, counts, 64))
    for module, name, value in (
        (graphblas_run, "_LEAST_HELD", 1), (answer, "_LEAST", 20_000),
        (sparse_rows, "_SHARED", 1), (sparse_rows, "_COPIERS", 2),
        (fused_shares, "_ALONE", 0), (fused_shares, "perf_counter", lambda: 0.0),
    ):  # fmt: skip
        patch.setattr(module, name, value)


def pieces(patch):
    """What is done in parts if it is large is done in parts of few rows, nodes or edges."""
    for name, value in {
        "answers._AT_ONCE": 7, "arrays.answer._AT_ONCE": 5, "arrays.answer._LARGE": 5000,
        "arrays.answer._SCANNED": 7,
        "arrays.matrices._LARGE": 1, "arrays.sources._AT_ONCE": 5, "arrays.sources._COPIED": 8,
        "arrays.sources._MANY_ROWS": 2, "arrays.sources._SAMPLE": 3, "engine.loader._LAYOUTS": 1,
        "engine.plan._PLANS": 1, "engine.shallow._CAST": 5000, "engine.sizes._WAITING": 1 << 14,
        "graph.features._AT_ONCE": 3, "graph.inference._AT_ONCE": 7,
        "graph.inference._NARROWEST": 3, "graph.inference._WIDEST": 17, "io.data._AT_ONCE": 7,
        "io.store.features.PART": 500, "io.store.fingerprints._AT_ONCE": 7,
        "io.store.parts.PART": 500, "io.store.shards.SHARD_BYTES": 5000,
        "kernels.dense_product.UNIT": 1, "kernels.ranges._MOST": 1,
        "kernels.trainable._PART": 7, "training.data._BLOCK": 5, "training.data.PART": 500,
        "training.patterns._RANGE": 50,
    }.items():  # fmt: skip
        patch.setattr(f"gbdnn.{name}", value)
