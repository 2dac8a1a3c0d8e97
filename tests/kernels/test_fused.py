"""What only the fused kernel has: tiles, and pairs of neurons."""

import numpy as np
import pytest
import scipy.sparse as sp
from built import SHAPES, kernels
from conftest import network
from drawn import rough

import gbdnn
from gbdnn import errors
from gbdnn.kernels import costs, fused_chain, fused_shares

# In a single window, a block at a time, and from sparse rows.
WAYS = [({}, np.asarray), ({"callback": id}, np.asarray), ({}, sp.csr_array)]


def answer(way, net, X):
    options, kind = way
    Y = gbdnn.infer(net, kind(X), engine="fused", deduplicate=False, **options)
    return Y.to_dense(fill_value=0)


@pytest.mark.parametrize("seed", range(12))
def test_tiles_of_other_processors_give_the_same_bits(seed, monkeypatch):
    """Those for AVX-512 and those for AVX2, on whatever runs this."""
    layers, X = rough(np.random.default_rng(seed))
    dtype, answers = ["FP32", "FP64"][seed % 2], []
    for pair_lines in SHAPES:
        made = kernels(dtype.replace("FP", "float"), pair_lines)
        for module in (fused_chain, fused_shares):
            monkeypatch.setattr(module, "required", lambda _, made=made: made)
        net = network(layers, dtype)
        answers += [answer(way, net, some) for way in WAYS for some in (X, X[:33], X[:1])]
    for k, found in enumerate(answers):
        np.testing.assert_array_equal(found, answers[0][: len(found)], err_msg=str(k))


@pytest.mark.parametrize("rows", [64, 10**9])
def test_a_sum_that_leaves_the_range_in_an_early_panel_is_told(rows, monkeypatch):
    monkeypatch.setattr(costs, "panel_rows", lambda _edges, nrows, _ncols: min(rows, nrows))
    W = np.zeros((600, 20), "f4")
    W[:3, 4], W[500:, 4] = 3e38, -3e38
    with pytest.raises(errors.NonFiniteError, match="layer 0"):
        gbdnn.infer([W], np.ones((30, 600), "f4"), engine="fused")
