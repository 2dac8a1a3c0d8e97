"""PyTorch modules that gbdnn computes.

`SparseLinear` and `SparseSequential` train sparse layers in any PyTorch loop. `accelerate` makes a
copy of a pruned model for inference, in which gbdnn computes the sparse linear layers. `infer`
computes a network of gbdnn with PyTorch's sparse products, also on a GPU.
"""

from gbdnn.io.frameworks.torch_tensors import import_torch

import_torch()  # a MissingPackageError if it is not installed

from gbdnn.torch.accelerated import accelerate  # noqa: E402
from gbdnn.torch.inference import infer  # noqa: E402
from gbdnn.torch.sparse_layers import SparseLinear, SparseSequential  # noqa: E402

__all__ = [
    "SparseLinear",
    "SparseSequential",
    "accelerate",
    "infer",
]
__dir__ = __all__.copy  # dir() lists the public names only
