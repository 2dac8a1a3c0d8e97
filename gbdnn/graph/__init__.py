"""Graph convolutions: products of a graph's matrix, features of its nodes, and layers.

Y' = min(max(A Y W + Y V + b, 0), clip)
"""

from gbdnn.graph.convolution import Convolution
from gbdnn.graph.inference import infer
from gbdnn.graph.propagation import normalized, propagate

__all__ = ["Convolution", "infer", "normalized", "propagate"]


def __dir__() -> list[str]:
    """Show what is public, and that alone."""
    return list(__all__)
