"""Networks whose layers are read when they are asked for."""

import dataclasses
import gc
import pickle
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from calls import raises
from conftest import network
from oracles import case

import gbdnn
from gbdnn import Layer, LayerInfo, Network
from gbdnn.errors import ArgumentError, ArgumentTypeError, FormatError, ShapeError

CASE = case(4, bias="mixed vector", sizes=(24, 30, 18, 20))
NET = network(CASE.layers)


class Counting:
    """A source that counts, and keeps nothing: a new layer at each call."""

    def __init__(self, net):
        self.net, self.asked = net, []

    def __call__(self, k):
        self.asked.append(k)
        return pickle.loads(pickle.dumps(self.net[k]))  # noqa: S301


@pytest.fixture
def source():
    return Counting(NET)


@pytest.fixture
def lazy(source):
    return Network.lazy(NET, source)


def test_info_is_the_layer_without_its_weights():
    for layer in (*NET, Layer(np.eye(2), 0.5, clip=3), Layer(np.empty((2, 0)))):
        info = layer.info
        for name in (
            "shape", "nrows", "ncols", "edges", "gain", "dtype", "bias_rule", "activation", "clip",
            "lowest_bias", "highest_bias", "largest_bias", "revives",
        ):  # fmt: skip
            assert getattr(info, name) == getattr(layer, name)
        assert info.describe() == layer.describe()
        assert not isinstance(info, Layer)
        assert repr(info) == f"LayerInfo({repr(layer).removeprefix('Layer(')}"


@pytest.mark.parametrize("options", [{"gain": -1}, {"lowest_bias": 2.0, "highest_bias": 1.0}])
def test_info_is_checked(options):
    right = {"shape": (2, 3), "edges": 1, "gain": 1.0, "dtype": "FP32"}
    raises(ArgumentError, None, LayerInfo, **right | options)


def test_an_info_is_cast_without_the_weights():
    info = LayerInfo((2, 3), 1, 1.0, "FP64", -1.0, 0.1)
    assert info.revives
    assert info.describe() == "1 edges, FP64, bias -1 to 0.1 (all), relu"
    cast = info.astype("FP32")
    assert (cast.lowest_bias, cast.highest_bias) == (-1.0, float(np.float32(0.1)))
    assert cast.dtype == "f4"
    with pytest.raises(dataclasses.FrozenInstanceError):
        info.edges = 2


def test_what_is_known_needs_no_reading(lazy, source):
    assert not lazy.in_memory
    assert (lazy.shape, lazy.dtype, len(lazy)) == (NET.shape, NET.dtype, len(NET))
    assert lazy.edges == NET.edges
    expected = repr(NET).splitlines()
    expected[0] += ", read on demand"
    assert repr(lazy).splitlines() == expected
    assert lazy[1:].shape == (30, 20)
    assert lazy.astype("FP64").dtype == np.float64
    assert source.asked == []


def test_layers_are_read_each_time_and_not_kept(lazy, source):
    assert lazy[1].isequal(NET[1])
    assert lazy[-2].isequal(NET[1])
    assert source.asked == [1, 1]
    weights = weakref.ref(lazy[0].W)
    gc.collect()
    assert weights() is None
    with pytest.raises(IndexError):
        lazy[3]


def test_a_slice_is_lazy_too(lazy, source):
    part = lazy[1:][1:]
    assert not part.in_memory
    assert len(part) == 1
    assert part[0].isequal(NET[2])
    assert (source.asked, len(lazy[3:])) == ([2], 0)


def test_isequal_and_loaded(lazy):
    assert lazy.isequal(NET)
    assert lazy == NET
    assert hash(lazy) == hash(NET)
    assert NET.isequal(lazy)
    assert not lazy.isequal(lazy[:2])
    loaded = lazy.loaded()
    assert loaded.in_memory
    assert loaded.isequal(NET)
    assert loaded[0] is loaded[0]
    assert loaded.loaded() is loaded


def test_loaded_tells_its_progress(lazy):
    told = []
    lazy.loaded(progress=lambda k, count: told.append((k, count)))
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_astype_casts_what_is_read(lazy):
    wide = lazy.astype("FP64")
    assert not wide.in_memory
    assert wide.isequal(NET.astype("FP64"))
    assert wide.infos[0].dtype == np.float64
    assert lazy.astype("FP32") is lazy
    assert wide[1:].astype("FP32").isequal(NET[1:])


def test_each_of_two_casts_is_done():
    """FP64 weights that were FP32 are rounded."""
    layer = Layer(np.array([[1 / 3]]), 0.1)
    lazy = Network.lazy([layer.info], lambda _: layer)
    twice = lazy.astype("FP32").astype("FP64")
    assert twice.isequal(Network([layer]).astype("FP32").astype("FP64"))
    assert not twice.isequal(lazy)


def test_a_cast_that_overflows_names_the_layer():
    big = Layer(np.array([[1e300]]))
    lazy = Network.lazy([big.info], lambda k: big).astype("FP32")
    with pytest.raises(ArgumentError, match=r"^layer 0: weights: 1e\+300 in row 0"):
        lazy[0]


def test_shapes_and_dtypes_are_checked_at_once(source):
    raises(ShapeError, "layer 1: weights are 18 x 20 but", Network.lazy, [NET[0], NET[2]], source)
    with pytest.raises(ArgumentError, match="layer 1 is float64 but layer 0 is float32"):
        Network.lazy([NET[0], NET[1].astype("FP64")], source)


@pytest.mark.parametrize(
    ("other", "error", "message"),
    [
        (Layer(np.eye(2)), ShapeError, r"layer 0: read returned shape \(2, 2\), not \(3, 3\)"),
        (Layer(np.ones((3, 3))), FormatError, "layer 0: read returned edges 9, not 3"),
        (Layer(np.eye(3, dtype="f4")), FormatError, "layer 0: .* dtype float32, not float64"),
        (Layer(np.eye(3), clip=1), FormatError, "layer 0: read returned clip 1.0, not None"),
        (Layer(np.eye(3) * 2), FormatError, "layer 0: read returned gain 2, not 1"),
        ("layer", ArgumentTypeError, "layer 0: read must return a Layer, not str"),
    ],
)
def test_a_layer_that_is_another_one(other, error, message):
    with pytest.raises(error, match=message):
        Network.lazy([Layer(np.eye(3)).info], lambda k: other)[0]


def test_lazy_radixnet_in_any_order():
    full = gbdnn.gallery.radixnet(1024, 40, seed=5)
    lazy = gbdnn.gallery.radixnet(1024, 40, seed=5, lazy=True)
    assert full.in_memory
    assert not lazy.in_memory
    for k in (39, 0, 13, 14, 39, 6, 5, 20):
        assert lazy[k].isequal(full[k])
    again = pickle.loads(pickle.dumps(lazy))  # noqa: S301
    assert again[30].isequal(full[30])
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(lambda k: again[k].isequal(full[k]), reversed(range(40))))


def test_reversed_layers_of_a_stored_network_are_sent(tmp_path):
    """They are sent as a range of the stored layers, which ends before the first one."""
    square = Network([Layer(np.eye(3) * k) for k in (1, 2, 3)])
    gbdnn.save(square, tmp_path / "net")
    assert gbdnn.load(tmp_path / "net", lazy=True)[::-1].source.network() == square[::-1]
