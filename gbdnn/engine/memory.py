"""How a run's memory is divided, and what a run needs in all, told before it starts.

===================  =====================  =================
share of `memory`    network in memory      lazy network
===================  =====================  =================
blocks               1/2                    1/4
queued rows          1/2                    1/4
layers               (the caller's)         1/2, in 2 windows
===================  =====================  =================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gbdnn.errors import ArgumentError
from gbdnn.kernels import costs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gbdnn.model.layer_info import LayerInfo
    from gbdnn.model.network import Network

__all__ = [
    "MEMORY",
    "Budget",
    "MemoryNeeded",
    "layer_bytes",
    "memory_needed",
    "memory_of_layers",
]

MEMORY = 512 << 20
"""Bytes that `infer` may use by default beyond weights, features and result."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The bytes of a run: in all, for blocks or sparse activations, queued rows, and layers."""

    total: int
    working: int
    queued: int
    layers: int

    @classmethod
    def divided(cls, memory: int, *, in_memory: bool) -> Budget:
        """Divide `memory`, for a network in memory or a lazy one."""
        if in_memory:
            return cls(memory, memory // 2, memory // 2, 0)
        return cls(memory, memory // 4, memory // 4, memory // 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryNeeded:
    """Bytes that a run takes at most, but for the interpreter and its libraries (some 120 MiB).

    Attributes
    ----------
    weights : int
        The network's layers, as they are and as the full form wants them; 0 for a lazy network,
        whose layers share ``working``.
    features : int
        The inputs.
    working : int
        Blocks of activations and queued rows: what ``memory=`` allows.
    answer : int
        The activations after the last layer, as they come and put together.
    """

    weights: int
    features: int
    working: int
    answer: int

    @property
    def total(self) -> int:
        """Bytes in all."""
        return self.weights + self.features + self.working + self.answer


def memory_needed(
    net: Network,
    inputs: int,
    *,
    density: float = 0.1,
    living: float = 0.05,
    memory: int = MEMORY,
) -> MemoryNeeded:
    """Return the memory that `infer` needs for so many inputs.

    Parameters
    ----------
    net : Network
        In memory or lazy; no layer is read.
    inputs : int
        Number of inputs.
    density : float, default 0.1
        Share of the features that is not 0; the challenge's have some 10 %.
    living : float, default 0.05
        Share of the inputs that live after the last layer, with every activation in it; in the
        challenge's networks 3 to 4 %. With 1 the prediction is an upper bound for any network.
    memory : int, default 512 MiB
        As for `infer`.

    Returns
    -------
    MemoryNeeded

    Raises
    ------
    ArgumentError
        A number has no meaning: fewer than 0 inputs, a share beyond 0 to 1.

    Examples
    --------
    >>> import gbdnn
    >>> needed = gbdnn.memory_needed(gbdnn.radixnet(1024, 120), 60_000)
    >>> needed.working == 512 * 2**20, needed.total < 2**30
    (True, True)
    """
    return memory_of_layers(
        net.infos,
        inputs,
        in_memory=net.in_memory,
        density=density,
        living=living,
        memory=memory,
    )


def memory_of_layers(
    infos: Sequence[LayerInfo],
    inputs: int,
    *,
    in_memory: bool,
    density: float,
    living: float,
    memory: int,
) -> MemoryNeeded:
    """Return `memory_needed` for layers of which the infos alone are known."""
    if inputs < 0:
        raise ArgumentError(f"inputs is at least 0, not {inputs}")
    for name, share in (("density", density), ("living", living)):
        if not 0 <= share <= 1:
            raise ArgumentError(f"{name} is a share from 0 to 1, not {share}")
    weights = 0
    if in_memory:
        # Once as they are, and once more where neurons are reordered.
        copies = 2 if costs.reordering_pays(inputs) else 1
        weights = sum(map(layer_bytes, infos)) * copies // 2
    nrows, ncols = (infos[0].nrows, infos[-1].ncols) if infos else (0, 0)
    entry = 8 + (infos[0].dtype.itemsize if infos else 4)
    return MemoryNeeded(
        weights=weights,
        features=int(inputs * (8 + nrows * density * entry)),
        working=memory,
        answer=int(2 * inputs * (8 + ncols * living * entry)),
    )


def layer_bytes(info: LayerInfo) -> int:
    """Return the bytes of a layer in memory, as it was read and as its block form wants it."""
    pointers = 8 * (info.ncols + 1)
    return int(2 * (info.edges * (8 + info.dtype.itemsize) + pointers) + 8 * info.nrows)
