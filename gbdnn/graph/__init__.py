"""Graph convolutions: layers that aggregate the features of a node's neighbours.

Y' = min(max(A Y W + Y V + b, 0), clip)
"""

from gbdnn.graph.convolution import Convolution
from gbdnn.graph.geometric import from_geometric
from gbdnn.graph.inference import infer
from gbdnn.graph.propagation import normalized, propagate, spmm

__all__ = ["Convolution", "from_geometric", "infer", "normalized", "propagate", "spmm"]
__dir__ = __all__.copy  # dir() lists the public names only
