"""Networks: layers, their properties without the weights, and how they are read."""

from gbdnn.model.layer_info import LayerInfo

__all__ = ["LayerInfo"]
__dir__ = __all__.copy  # dir() lists the public names only
