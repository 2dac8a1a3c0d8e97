"""How a run's memory is divided, and what a run needs in all, told before it starts.

What the C library keeps of freed memory, and what threads take, comes first: up to 12 MiB, less
where all activations are less. The rest is divided:

===================  =====================  =================
share                network in memory      lazy network
===================  =====================  =================
blocks               1/2                    1/4
queued rows          1/2                    1/4
layers               (the caller's)         1/2, in 2 windows
===================  =====================  =================
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gbdnn.arrays.checks import as_number, whole_number
from gbdnn.errors import ArgumentError, require_kind
from gbdnn.model.network import Network

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gbdnn.model.layer_info import LayerInfo

__all__ = [
    "MEMORY",
    "Budget",
    "MemoryNeeded",
    "layer_bytes",
    "least_memory",
    "memory_needed",
    "memory_of_layers",
    "return_freed",
]

MEMORY = 512 << 20
"""Bytes that `infer` may use by default beyond weights, features and result."""

_KEPT = 12  # MiB, at most,
_OF_ALL = 4  # and the part of the bytes of all inputs' activations at a layer
_ALL = 3  # times these bytes: the sparse form's temporaries, blocks and queued rows
_WEIGHTS = 3  # times: as they are, reordered, and by rows


@dataclass(frozen=True, slots=True)
class Budget:
    """The bytes of a run: in all, for blocks or sparse activations, queued rows, and layers."""

    total: int
    working: int
    queued: int
    layers: int

    @classmethod
    def divided(cls, memory: int, *, in_memory: bool, kept: int = 0) -> Budget:
        """Divide `memory`, for a network in memory or a lazy one.

        Of it, `kept` bytes are not given to anything.
        """
        rest = max(0, memory - kept)
        if in_memory:
            return cls(memory, rest // 2, rest // 2, 0)
        return cls(memory, rest // 4, rest // 4, rest // 2)

    @classmethod
    def of_run(cls, memory: int, net: Network, inputs: int, copied: int = 0) -> Budget:
        """Divide `memory` for a run of so many inputs, of which `copied` bytes are copies.

        Raises
        ------
        ArgumentError
            It is less than what is kept, and as much again and a half for all else.
        """
        kept, least = _kept(net.infos, inputs), least_memory(net.infos, inputs) + copied
        if memory < least:
            advice = f", {copied} of it for features whose rows cannot be read in place"
            raise ArgumentError(
                f"memory={memory} is too small: {inputs} inputs through layers of up to"
                f" {_widest(net.infos)} neurons take memory={least} at least"
                + (advice if copied else "")
            )
        return cls.divided(memory, in_memory=net.in_memory, kept=kept + copied)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryNeeded:
    """Bytes that a run takes at most, but for the interpreter and its libraries (some 120 MiB).

    The first run on a machine compiles the fused form, which takes up to 64 MiB more.

    Attributes
    ----------
    weights : int
        The network's layers, as they are and as the forms want them; 0 for a lazy network, whose
        layers share ``working``.
    features : int
        The inputs.
    working : int
        Blocks of activations and queued rows: what ``memory=`` allows, or what all inputs take at
        once in any form, if that is less.
    answer : int
        The activations after the last layer.

    Examples
    --------
    >>> import gbdnn
    >>> needed = gbdnn.memory_needed(gbdnn.radixnet(1024, 120), 60_000)
    >>> parts = needed.weights + needed.features + needed.working + needed.answer
    >>> needed.total == parts
    True
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
        challenge's networks 3 to 4 %. With 1, and the features' `density`, the prediction is an
        upper bound for any network, where machine code does not have to be compiled.
    memory : int, default 512 MiB
        As for `infer`.

    Returns
    -------
    MemoryNeeded
        Bytes, as its attributes ``weights`` (0 for a lazy network), ``features``, ``working``,
        ``answer`` and ``total``, but for the interpreter and its libraries (some 120 MiB).

    Raises
    ------
    ArgumentError
        A number has no meaning: fewer than 0 inputs, a share beyond 0 to 1.
    ArgumentTypeError
        `net` is not a Network, or a number is not one.

    Examples
    --------
    >>> import gbdnn
    >>> needed = gbdnn.memory_needed(gbdnn.radixnet(1024, 120), 60_000)
    >>> needed.working == 512 * 2**20, needed.total < 2**30
    (True, True)
    """
    require_kind(net, Network, "net is a Network")
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
    inputs = whole_number(inputs, "inputs", least=0)
    memory = whole_number(memory, "memory", least=0)
    density, living = _share(density, "density"), _share(living, "living")
    weights = _WEIGHTS * sum(map(layer_bytes, infos)) // 2 if in_memory else 0
    nrows, ncols = (infos[0].nrows, infos[-1].ncols) if infos else (0, 0)
    entry = 8 + (infos[0].dtype.itemsize if infos else 4)
    return MemoryNeeded(
        weights=weights,
        features=int(inputs * (8 + nrows * density * entry)),
        working=min(memory, _at_once(infos, inputs, in_memory)),
        answer=int(inputs * (8 + ncols * living * entry)),
    )


def _share(x: float, what: str) -> float:
    share = as_number(x, what)
    if not 0 <= share <= 1:
        raise ArgumentError(f"{what} is a share from 0 to 1, not {x}")
    return share


def _at_once(infos: Sequence[LayerInfo], inputs: int, in_memory: bool) -> int:
    """Return the bytes of a run that computes all inputs at once, in whatever form, at most."""
    if not infos:
        return 0
    layers = 0 if in_memory else 2 * sum(map(layer_bytes, infos))
    return _ALL * inputs * _row_bytes(infos) + layers + _kept(infos, inputs) + (1 << 20)


def least_memory(infos: Sequence[LayerInfo], inputs: int) -> int:
    """Return the least `memory` of a run of so many inputs."""
    return _kept(infos, inputs) * 8 // 3


def _row_bytes(infos: Sequence[LayerInfo]) -> int:
    """Return the bytes of an input with an activation at every neuron."""
    return 8 + _widest(infos) * (8 + infos[0].dtype.itemsize)


def _kept(infos: Sequence[LayerInfo], inputs: int) -> int:
    """Return the bytes that a run of so many inputs takes beside its blocks, rows and layers."""
    return min(_KEPT, (inputs * _row_bytes(infos) // _OF_ALL) >> 20) << 20


def _widest(infos: Sequence[LayerInfo]) -> int:
    return max(max(info.shape) for info in infos)


def layer_bytes(info: LayerInfo) -> int:
    """Return the bytes of a layer in memory, as it was read and as its block form wants it."""
    pointers = 8 * (info.ncols + 1)
    return int(2 * (info.edges * (8 + info.dtype.itemsize) + pointers) + 8 * info.nrows)


def return_freed() -> None:
    """Give freed memory back to the system, where the C library can (glibc).

    It keeps what each thread frees for that thread. Without this, the layers that one thread has
    freed stay while another one reads the next ones: on a busy machine some MiB for each thread.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
