"""RadiX-Net: sparse networks with the same number of paths from every input to every output.

A mixed-radix system ``(r_0, r_1, ...)`` numbers ``r_0 r_1 ...`` nodes. Its layer l connects node i
to ``i - n r_0 ... r_(l-1)`` for n = 0 .. r_l - 1 (modulo the number of nodes), so that exactly one
path through all its layers leads from any node to any other. Systems are concatenated, and every
layer is widened by a Kronecker product with ones.

R. Robinett, J. Kepner, "RadiX-Net: Structured Sparse Matrices for Deep Neural Networks",
arXiv:1905.00416.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gbdnn.arrays.checks import (
    as_array,
    as_dtype,
    as_flag,
    as_seed,
    finite,
    require_room,
    whole_number,
)
from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.errors import ArgumentError, ArgumentTypeError
from gbdnn.model.layer import Layer
from gbdnn.model.layer_info import LayerInfo
from gbdnn.model.network import Network
from gbdnn.runtime.first_use import complete, shown
from gbdnn.runtime.forks import new_lock

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import graphblas as gb


class ChallengeConstants(NamedTuple):
    """Constants of the challenge's networks of one size."""

    bias: float
    radices: tuple[int, ...]
    clip: float = 32.0
    weight: float = 1 / 16
    width: int = 16
    degree: int = 32
    """Number of edges into and out of every neuron."""


CHALLENGE: dict[int, ChallengeConstants] = {
    1024: ChallengeConstants(-0.30, (2,) * 6),
    4096: ChallengeConstants(-0.35, (2,) * 8),
    16384: ChallengeConstants(-0.40, (2,) * 10),
    65536: ChallengeConstants(-0.45, (2,) * 12),
}


def radixnet(
    neurons: int,
    layers: int,
    *,
    seed: int | np.random.Generator = 0,
    dtype: Any = "FP32",
    lazy: bool = False,
) -> Network:
    """Generate a network of the Graph Challenge.

    The first m layers (m = 6, 8, 10, 12 for the four sizes) are the base network: radices of 2,
    each layer widened by 16, so that every neuron has 32 incoming and 32 outgoing edges. Each
    further group of m layers is the base network with its rows permuted at random.

    Parameters
    ----------
    neurons : {1024, 4096, 16384, 65536}
        Neurons per layer. The bias is -0.30, -0.35, -0.40 or -0.45.
    layers : int
        Number of layers, at least 1; the challenge has 120, 480 and 1920.
    seed : int or numpy.random.Generator, default 0
        Seed of the permutations, which are the same on every machine and in every version. A deeper
        network with the same seed starts with the same layers.
    dtype : {"FP32", "FP64"} or NumPy dtype, default "FP32"
        Type of weights, bias and clip.
    lazy : bool, default False
        Generate each layer when it is read, and keep none, for networks larger than memory.

    Returns
    -------
    Network
        Layers with weights 1/16, bias rule ``"entries"``, ReLU and clip 32.

    Raises
    ------
    ArgumentError
        The challenge has no such size, `layers` is less than 1, or the seed exceeds 32 bits.
    TooLargeError
        The layers, or with `lazy` their list, do not fit into memory.

    Notes
    -----
    The first m layers equal the official ones; the other groups have different permutations.

    Examples
    --------
    >>> import gbdnn
    >>> gbdnn.gallery.radixnet(1024, 120)
    Network: 120 layers, 1024 inputs to 1024 outputs, 3932160 edges, FP32
      layer  shape        edges
      0-119  1024 x 1024  32768  bias -0.3 (entries), relu, clip 32
    """
    neurons = whole_number(neurons, "neurons", least=1)
    if neurons not in CHALLENGE:
        sizes = ", ".join(map(str, CHALLENGE))
        raise ArgumentError(
            f"neurons must be one of {sizes}, not {neurons}; use gbdnn.gallery.radix_layers for"
            " other RadiX-Nets"
        )
    layers = whole_number(layers, "layers", least=1)
    constants = CHALLENGE[neurons]
    info = LayerInfo(
        (neurons, neurons),
        edges=neurons * constants.degree,
        gain=constants.degree * constants.weight,
        dtype=dtype,
        lowest_bias=constants.bias,
        highest_bias=constants.bias,
        bias_rule="entries",
        clip=constants.clip,
    )
    as_flag(lazy, "lazy")
    if not lazy:
        require_room(8 * layers * info.edges, f"{layers} layers", "pass lazy=True", share=1)
    require_room(8 * layers, f"{layers} layers: their list")
    net = Network.lazy([info] * layers, _Generator(neurons, seed, info.dtype))
    return net if lazy else net.loaded()


def radix_layers(
    systems: Sequence[Sequence[int]],
    widths: Sequence[int] | None = None,
    *,
    weight: float = 1.0,
    dtype: Any = "FP32",
) -> list[gb.Matrix]:
    """Return the weights of a RadiX-Net given by mixed-radix systems and widths.

    Parameters
    ----------
    systems : sequence of sequences of int
        Mixed-radix systems, each a sequence of radices >= 2. All have the same product N; the
        product of the last one may be a divisor of N.
    widths : sequence of int, optional
        Widths >= 1 of all levels of neurons, one more than the total number of radices. Level k has
        ``N * widths[k]`` neurons. Default: all 1.
    weight : float, default 1.0
        Value of every edge.
    dtype : {"FP32", "FP64"} or NumPy dtype, default "FP32"
        Type of the values.

    Returns
    -------
    list of graphblas.Matrix
        One per radix, of shape ``(N * widths[k], N * widths[k + 1])``, column-wise, iso-valued.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        Radices, products, widths or the weight are invalid.
    TooLargeError
        The edges do not fit into memory.

    Notes
    -----
    Layer k is ``kron(ones((widths[k], widths[k + 1])), P)`` with P the sum of the cyclic shifts
    of the radix [1]_. Every input has equally many paths to every output.

    References
    ----------
    .. [1] R. Robinett, J. Kepner, arXiv:1905.00416, equations 1 to 5.

    Examples
    --------
    >>> import gbdnn
    >>> [W.shape for W in gbdnn.gallery.radix_layers([(2, 3), (6,)], widths=[1, 2, 2, 1])]
    [(6, 12), (12, 12), (12, 6)]
    """
    complete([systems, widths])
    try:
        systems = [tuple(whole_number(r, "a radix", least=2) for r in system) for system in systems]
        widths = widths if widths is None else [whole_number(w, "width", least=1) for w in widths]
    except TypeError as err:
        raise ArgumentTypeError(
            f"systems must be a list of lists of radices, widths a list or None: {err}"
        ) from err
    levels = sum(map(len, systems)) + 1
    if not systems or not all(systems):
        raise ArgumentError("systems must contain at least one system, each with a radix")
    N = prod(systems[0])
    for m, system in enumerate(systems):
        last = m == len(systems) - 1
        if prod(system) != N and not (last and N % prod(system) == 0):
            raise ArgumentError(
                f"system {m}, {system}, has the product {prod(system)}; it must be {N}"
                + (" or a divisor of it" if last else "")
            )
    widths = [1] * levels if widths is None else widths
    if len(widths) != levels:
        raise ArgumentError(f"widths has {len(widths)} values; {levels} levels need {levels}")
    value = as_array(weight, "weight")
    if value.ndim:
        raise ArgumentTypeError(f"weight must be a number, not {shown(weight)}")
    (value,) = finite(value.reshape(1), as_dtype(dtype), "weight")
    radices = [radix for system in systems for radix in system]
    edges = sum(N * a * b * r for a, b, r in zip(widths, widths[1:], radices, strict=False))
    require_room(8 * edges, f"{edges} edges: indices alone", share=1)
    return [pattern.matrix(value) for pattern in _patterns(systems, widths)]


class _Generator:
    """Reader of a challenge network: layer k is base layer k mod m with permuted rows."""

    def __init__(self, neurons: int, seed: int | np.random.Generator, dtype: np.dtype) -> None:
        seed = whole_number(as_seed(seed), "seed", most=2**32 - 1)
        self._arguments = neurons, seed, dtype
        radices, width = CHALLENGE[neurons].radices, CHALLENGE[neurons].width
        self._base = list(_patterns([radices], [width] * (len(radices) + 1)))
        # RandomState's streams are stable (NumPy enhancement proposal 19).
        self._random = np.random.RandomState(seed)
        # Group g's permutation is drawn from state g - 1; the first group is not permuted.
        self._states = [self._random.get_state()]
        self._lock = new_lock()

    def __call__(self, k: int, /) -> Layer:
        neurons, _, dtype = self._arguments
        constants = CHALLENGE[neurons]
        group, position = divmod(k, len(self._base))
        pattern = self._base[position].permuted(self._permutation(group))
        W = pattern.matrix(dtype.type(constants.weight))
        return Layer(W, constants.bias, bias_rule="entries", clip=constants.clip, copy=False)

    def _permutation(self, group: int) -> np.ndarray:
        neurons = self._arguments[0]
        if not group:
            return np.arange(neurons)
        with self._lock:
            while len(self._states) < group:
                self._random.set_state(self._states[-1])
                self._random.permutation(neurons)
                self._states.append(self._random.get_state())
            self._random.set_state(self._states[group - 1])
            return self._random.permutation(neurons)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Generator, self._arguments


class _Pattern(NamedTuple):
    """Pattern of a layer: ``rows[j]`` are the ascending rows of the entries in column j."""

    nrows: int
    rows: np.ndarray

    def permuted(self, order: np.ndarray) -> _Pattern:
        """Return the pattern with row i moved to ``order[i]``."""
        return _Pattern(self.nrows, np.sort(order[self.rows], axis=1))

    def matrix(self, value: np.floating) -> gb.Matrix:
        """Return an iso-valued column-wise matrix of the pattern."""
        ncols, degree = self.rows.shape
        indptr = np.arange(0, ncols * degree + 1, degree, dtype=np.uint64)
        columns = SparseRows(
            indptr, self.rows.astype(np.uint64).reshape(-1), np.array([value]), self.nrows
        )
        return columns.matrix(transposed=True)


def _patterns(systems: Sequence[Sequence[int]], widths: Sequence[int]) -> Iterator[_Pattern]:
    """Yield the widened patterns of the systems' layers."""
    N = prod(systems[0])
    j = np.arange(N)
    level = 0
    for system in systems:
        place = 1
        for radix in system:
            # edges lead from i to i - n place, so column j has the rows j + n place
            sources = np.sort((j[:, None] + place * np.arange(radix)) % N, axis=1)
            place *= radix
            above, below = widths[level : level + 2]
            copies = sources[:, None, :] + N * np.arange(above)[:, None]
            yield _Pattern(N * above, np.tile(copies.reshape(N, -1), (below, 1)))
            level += 1
