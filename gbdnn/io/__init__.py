"""Features, labels and categories in files, and networks from and to other libraries.

`gbdnn.load` and `gbdnn.save` read and write networks.
"""

from gbdnn.io.conversion import convert
from gbdnn.io.data import (
    read_categories,
    read_features,
    read_labels,
    write_categories,
    write_features,
    write_labels,
)
from gbdnn.io.frameworks.scipy import to_scipy
from gbdnn.io.frameworks.torch import from_torch, to_torch
from gbdnn.io.store.features import open_features

__all__ = [
    "convert",
    "from_torch",
    "open_features",
    "read_categories",
    "read_features",
    "read_labels",
    "to_scipy",
    "to_torch",
    "write_categories",
    "write_features",
    "write_labels",
]
__dir__ = __all__.copy  # dir() lists the public names only
