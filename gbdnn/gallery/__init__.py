"""Generated networks and features: RadiX-Nets, and features from images."""

from gbdnn.gallery.images import digits, features_from_images
from gbdnn.gallery.networks import radix_layers, radixnet

__all__ = ["digits", "features_from_images", "radix_layers", "radixnet"]
__dir__ = __all__.copy  # dir() lists the public names only
