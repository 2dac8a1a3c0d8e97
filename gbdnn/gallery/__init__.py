"""Networks and inputs that are made: RadiX-Nets, and features from images."""

from gbdnn.gallery.images import digits, features_from_images
from gbdnn.gallery.radixnet import radix_layers, radixnet

__all__ = ["digits", "features_from_images", "radix_layers", "radixnet"]


def __dir__() -> list[str]:
    """Show what is public, and that alone."""
    return sorted([*__all__, "images"])
