"""Networks: layers, their properties without the weights, and how they are read."""

from gbdnn.model.layer_info import LayerInfo

__all__ = ["LayerInfo"]


def __dir__() -> list[str]:
    """List the public names only."""
    return list(__all__)
