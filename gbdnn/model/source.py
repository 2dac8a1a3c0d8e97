"""From where another process reads a network: what travels in place of its layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from gbdnn.model.network import Network

__all__ = ["NetworkSource"]


@dataclass(frozen=True, slots=True)
class NetworkSource:
    """A few hundred bytes that stand for a lazy network, equal for equal networks.

    Attributes
    ----------
    reopen : callable
        Returns the network that this one is, or is a part of.
    layers : range
        Which of its layers.
    dtype : str, optional
        What they are cast to.
    """

    reopen: Callable[[], Network]
    layers: range
    dtype: str | None = None

    def network(self) -> Network:
        """Return the network, lazy as it was."""
        net, layers = self.reopen(), self.layers
        if layers != range(len(net)):
            stop = None if layers.stop < 0 else layers.stop
            net = net[layers.start : stop : layers.step]
        return net if self.dtype is None else net.astype(self.dtype)
