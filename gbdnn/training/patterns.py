"""Initial networks: random patterns, and random weights for any pattern.

D. Mocanu et al., Nature Communications 9, 2018; U. Evci et al., "Rigging the Lottery", ICML 2020
(patterns); K. He et al., "Delving Deep into Rectifiers", ICCV 2015 (weights).
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from gbdnn.arrays.checks import as_dtype, as_list, as_seed, as_word, require_room, whole_number
from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.errors import ArgumentError, TooLargeError, naming
from gbdnn.model.layer import Layer
from gbdnn.model.network import Network, as_network
from gbdnn.training.optimizers import between

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gbdnn.model.layer import Activation

__all__ = ["erdos_renyi", "generator", "initialized", "layer_densities", "with_ends"]

_RANGE = 1 << 24
"""Numbers below which edges are drawn at once."""

Distribution = Literal["erk", "uniform"]


def erdos_renyi(
    sizes: Sequence[int],
    density: float,
    *,
    distribution: Distribution = "erk",
    seed: int | np.random.Generator = 0,
    dtype: Any = "FP32",
) -> Network:
    """Return a network with random edges and initial weights.

    Parameters
    ----------
    sizes : sequence of int
        Numbers of neurons: inputs, hidden layers, outputs.
    density : float
        Edges divided by possible edges of the whole network, more than 0 and at most 1.
    distribution : {"erk", "uniform"}, default "erk"
        Density of the layers: ``"erk"`` (Erdős–Rényi) is proportional to ``(n + m) / (n m)`` for an
        n x m layer, so that small layers are denser than large ones; ``"uniform"`` is the same for
        all layers.
    seed : int or numpy.random.Generator, default 0
    dtype : {"FP32", "FP64"} or NumPy dtype, default "FP32"

    Returns
    -------
    Network
        Layers with a ReLU (except the last), weights as in `initialized`, and biases 0.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        Fewer than two sizes, or a density out of range.
    TooLargeError
        A layer does not fit into memory, or has 2^63 or more possible edges.

    Examples
    --------
    >>> import gbdnn
    >>> gbdnn.training.erdos_renyi([784, 300, 100, 10], density=0.05)
    Network: 3 layers, 784 inputs to 10 outputs, 13310 edges, FP32
      layer  shape      edges
      0      784 x 300   9051  bias 0 (all), relu
      1      300 x 100   3340  bias 0 (all), relu
      2      100 x 10     919  bias 0 (all), identity
    """
    seed = as_seed(seed)
    items = as_list(sizes, "sizes must be a list of integers")
    neurons = [whole_number(n, "sizes", least=1) for n in items]
    if len(neurons) < 2:
        raise ArgumentError(
            f"sizes must have at least two numbers (inputs and outputs), not {neurons}"
        )
    as_word(distribution, "distribution", get_args(Distribution))
    between("density", density, 0, 1, above=True)
    shapes = list(pairwise(neurons))
    for n, m in shapes:
        _require_size(n, m)
    densities = (
        layer_densities(shapes, density) if distribution == "erk" else [density] * len(shapes)
    )
    dtype = as_dtype(dtype)
    counts = [round(part * n * m) for (n, m), part in zip(shapes, densities, strict=True)]
    require_room(8 * sum(counts), f"{sum(counts)} edges", share=1)
    layers = []
    for k, ((n, m), count) in enumerate(zip(shapes, counts, strict=True)):
        random = generator(seed, "edges", k)
        edges = random_edges(n * m, count, random)
        layers.append(_layer(edges, (n, m), dtype, is_last=k == len(shapes) - 1))
    return initialized(layers, seed=seed)


def initialized(
    network: Network | Iterable[Layer], *, seed: int | np.random.Generator = 0
) -> Network:
    """Return a network with the same edges and new random weights.

    Parameters
    ----------
    network : Network or list of Layer
        Edges, activations, clips and dtype are kept; weights and biases are ignored.
    seed : int or numpy.random.Generator, default 0

    Returns
    -------
    Network
        Weights from a normal distribution with variance ``2 / edges into the neuron`` (He et al.);
        biases 0, under the rule ``"all"``.

    Examples
    --------
    >>> import gbdnn
    >>> net = gbdnn.training.initialized(gbdnn.gallery.radixnet(1024, 2), seed=1)
    >>> net.infos[0].bias_rule, net.edges
    ('all', 65536)
    """
    seed = as_seed(seed)
    with naming("network"):
        network = as_network(network)
    layers = []
    for k, layer in enumerate(network):
        random = generator(seed, "weights", k)
        columns = SparseRows.from_matrix(layer.W.T.new())
        degrees = columns.degrees
        scale = np.sqrt(2 / np.maximum(degrees, 1))
        values = random.standard_normal(columns.nvals) * np.repeat(scale, degrees)
        drawn = SparseRows(columns.indptr, columns.columns, values.astype(layer.dtype), layer.nrows)
        W = drawn.matrix(transposed=True)
        layers.append(Layer(W, activation=layer.activation, clip=layer.clip, copy=False))
    return Network(layers)


def with_ends(
    network: Network | Iterable[Layer],
    inputs: int,
    outputs: int,
    *,
    degree: int = 32,
    seed: int | np.random.Generator = 0,
) -> Network:
    """Add a random first layer and a dense last layer to hidden layers.

    Parameters
    ----------
    network : Network or list of Layer
        Hidden layers, for example a RadiX-Net, whose neurons all have the same number of edges.
        Edges, activations, clips and dtype are kept; weights and biases are ignored.
    inputs, outputs : int
        Number of inputs and outputs of the result.
    degree : int, default 32
        Random edges into each neuron of the first layer, at most `inputs`.
    seed : int or numpy.random.Generator, default 0

    Returns
    -------
    Network
        With two more layers; weights as in `initialized`.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        The network has no layers, or a number is less than 1.
    TooLargeError
        As `erdos_renyi`.

    Examples
    --------
    >>> import gbdnn
    >>> gbdnn.training.with_ends(gbdnn.gallery.radixnet(1024, 1), 784, 10)
    Network: 3 layers, 784 inputs to 10 outputs, 75776 edges, FP32
      layer  shape        edges
      0      784 x 1024   32768  bias 0 (all), relu
      1      1024 x 1024  32768  bias 0 (all), relu, clip 32
      2      1024 x 10    10240  bias 0 (all), identity
    """
    with naming("network"):
        hidden = as_network(network)
    if not len(hidden):
        raise ArgumentError("with_ends: the network has no layers; pass at least one hidden layer")
    inputs = whole_number(inputs, "inputs", least=1)
    outputs = whole_number(outputs, "outputs", least=1)
    degree = min(whole_number(degree, "degree", least=1), inputs)
    (first, last), dtype = hidden.shape, hidden.infos[0].dtype
    _require_size(inputs, first)
    _require_size(last, outputs)
    require_room(8 * (first * degree + last * outputs), "the edges of the first and last layer")
    seed = as_seed(seed)
    random = generator(seed, "ends")
    layers = [
        _layer(edges_into(inputs, first, degree, random), (inputs, first), dtype, is_last=False),
        *hidden,
        _layer(np.arange(last * outputs), (last, outputs), dtype, is_last=True),
    ]
    return initialized(layers, seed=seed)


def _layer(edges: np.ndarray, shape: tuple[int, int], dtype: np.dtype, *, is_last: bool) -> Layer:
    """Return a layer with these edge numbers (ascending) and weights 1."""
    nrows, ncols = shape
    indptr = np.zeros(ncols + 1, np.uint64)
    np.cumsum(np.bincount(edges // nrows, minlength=ncols), out=indptr[1:])
    ones = np.ones(len(edges), dtype)
    columns = SparseRows(indptr, (edges % nrows).astype(np.uint64), ones, nrows)
    activation: Activation = "identity" if is_last else "relu"
    return Layer(columns.matrix(transposed=True), activation=activation, copy=False)


def _require_size(nrows: int, ncols: int) -> None:
    """Raise TooLargeError if edge numbers exceed int64 or columns exceed memory."""
    if nrows * ncols >= 2**63:
        raise TooLargeError(f"a layer of {nrows} x {ncols} has 2^63 or more possible edges")
    require_room(8 * ncols, f"the columns of a layer of {nrows} x {ncols}")


def layer_densities(shapes: Sequence[tuple[int, int]], density: float) -> list[float]:
    """Return Erdős–Rényi densities of layers of these shapes, with total `density`.

    The density of an n x m layer is proportional to ``(n + m) / (n m)``. Layers for which this
    exceeds 1 have all edges; the others share the rest.
    """
    wanted = density * sum(n * m for n, m in shapes)
    full: set[int] = set()
    while True:
        left = wanted - sum(n * m for k, (n, m) in enumerate(shapes) if k in full)
        neurons = sum(n + m for k, (n, m) in enumerate(shapes) if k not in full)
        scale = left / neurons if neurons else 0.0
        parts = [1.0 if k in full else scale * (n + m) / (n * m) for k, (n, m) in enumerate(shapes)]
        over = {k for k, part in enumerate(parts) if part > 1}
        if not over:
            return parts
        full |= over


def generator(seed: int, purpose: str, *numbers: int) -> np.random.Generator:
    """Return a generator that depends only on the arguments.

    Its stream differs from those of other purposes and of ``default_rng(seed)``, so that edges,
    weights and the order of inputs are independent of each other and of data made from `seed`.
    """
    key = (int.from_bytes(b"gbdnn"), int.from_bytes(purpose.encode()), *numbers)
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def edges_into(nrows: int, ncols: int, degree: int, random: np.random.Generator) -> np.ndarray:
    """Return `degree` random edge numbers, ascending, into each neuron of a layer."""
    columns = [np.zeros(0, np.int64)]
    columns += [column * nrows + random_edges(nrows, degree, random) for column in range(ncols)]
    return np.concatenate(columns)


def random_edges(possible: int, count: int, random: np.random.Generator) -> np.ndarray:
    """Return `count` distinct random numbers below `possible`, ascending.

    Many of them are drawn range by range, because `choice` takes 8 bytes per possible number.
    """
    require_room(8 * count, f"{count} edges")
    pieces, step = [np.zeros(0, np.int64)], _RANGE if count > possible // 50 else max(1, possible)
    for start in range(0, possible, step):
        size, left = min(step, possible - start), max(0, possible - start - step)
        some = random.binomial(size, count / (size + left)) if left else count
        some = int(np.clip(some, count - left, min(size, count)))
        pieces.append(start + np.sort(random.choice(size, some, replace=False, shuffle=False)))
        count -= some
    return np.concatenate(pieces, dtype=np.int64)
