"""The forms of a layer: what each has to offer, so that a further one is one more module.

A *row form* takes all its inputs through a layer as one sparse matrix. A *block form* computes on
blocks: dense activations of some inputs, neurons x inputs. Blocks are the same for all block forms,
so that each layer of a network may have its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np

    from gbdnn.model.layer import Layer
    from gbdnn.model.layer_info import LayerInfo

__all__ = ["BlockForm", "Form"]


class Form(Protocol):
    """A way to compute ``Y' = min(max(Y W + b, 0), clip)``."""

    name: str
    """As `LayerStats` and the ``engine`` of `infer` call it."""

    def is_exact(self, info: LayerInfo, /) -> bool:
        """Whether the form gives this layer's answer."""
        ...

    def cost(self, info: LayerInfo, inputs: int, entries: float, /) -> float:
        """Return the ns of one thread for so many inputs with so many entries in all."""
        ...


class BlockForm(Form, Protocol):
    """A form that computes on blocks."""

    def prepare(self, layer: Layer, rows: np.ndarray | None, columns: np.ndarray | None, /) -> Any:
        """Return the weights as the form wants them, neurons in the order given (None: as is)."""
        ...

    def advance(self, Y: Any, Z: Any, layer: Layer, weights: Any, *, check: Any = None) -> None:
        """Make `Z` the activations after the layer of the inputs in `Y`.

        ``check`` is called with the array of ``Y W + b`` before the activation, if it is given.
        """
        ...
