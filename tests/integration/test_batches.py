"""Features batch by batch, and the memory a run needs."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from calls import raises
from conftest import network
from oracles import case

import gbdnn
from gbdnn import errors

CASE = case(3, inputs=70)


def test_mistakes_at_once(tmp_path):
    gbdnn.io.write_features([np.eye(2)], tmp_path)
    W, net, stored = np.eye(2), network(CASE.layers), gbdnn.io.open_features(tmp_path)
    raises(TypeError, r"pass X\.batches\(inputs\)", gbdnn.infer_batches, [W], stored)
    raises(errors.ShapeError, "layer 1", gbdnn.infer_batches, [W, np.eye(3)], [])
    raises(TypeError, "batches must be an iterable", gbdnn.infer_batches, [W], 5)
    raises(TypeError, "cannot be combined with a Network", gbdnn.infer_batches, net, [], bias=1.0)


@pytest.mark.parametrize("dtype", ["FP32", "FP64"])
def test_without_layers_features_are_cast(dtype, tmp_path):
    """Whoever computes, at once or batch by batch."""
    given = np.eye(3, dtype="f8" if dtype == "FP32" else "f4")
    with ThreadPoolExecutor(1) as pool:
        for over in ({}, {"executor": pool}):
            answers = [
                gbdnn.infer([], given, dtype=dtype, **over),
                *gbdnn.infer_batches([], [given], dtype=dtype, **over),
            ]
            assert [Y.dtype for Y in answers] == [dtype] * 2
            assert [Y.dtype for Y in gbdnn.infer_batches([], [given], **over)] != [dtype]
            wrong = gbdnn.infer_batches([], [given * np.nan], dtype=dtype, **over)
            raises(errors.ArgumentError, r"batch 0: .*nan", next, wrong)
