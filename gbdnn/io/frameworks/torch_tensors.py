"""Conversion of PyTorch tensors to arrays, and of a Linear's parameters to a layer."""

from __future__ import annotations

import copy
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.errors import ArgumentError, GbdnnError
from gbdnn.io.frameworks.chain import Chain, unsupported
from gbdnn.runtime.first_use import gb
from gbdnn.runtime.optional import require

if TYPE_CHECKING:
    from collections.abc import Mapping

_COMPRESSED = {
    "torch.sparse_csr": ("crow_indices", "col_indices"),
    "torch.sparse_bsr": ("crow_indices", "col_indices"),
    "torch.sparse_csc": ("ccol_indices", "row_indices"),
    "torch.sparse_bsc": ("ccol_indices", "row_indices"),
}
"""The names of pointers and indices for each layout."""


def parameter(module: Any, key: str) -> Any:
    """Return a parameter of a PyTorch module as its next forward in evaluation mode would use it.

    A pruned module computes it only then: in between, the attribute is that of the last forward.
    """
    if key in module._parameters:
        return module._parameters[key]
    for hook in module._forward_pre_hooks.values():
        if getattr(hook, "_tensor_name", "") == key:  # of torch.nn.utils.prune
            return hook.apply_mask(module)
    if key in getattr(module, "parametrizations", ()):
        made = module.parametrizations[key]  # some, as spectral_norm, change in training
        return (copy.deepcopy(made).eval() if made.training else made)()
    return getattr(module, key)


def add_linear(chain: Chain, tensors: Mapping[str, Any], name: str) -> None:
    """Start a layer with the parameters of a Linear, pruned or not."""
    for key, tensor in tensors.items():
        if fault := sparse_fault(tensor):
            raise ArgumentError(f"{name}: {key}: invalid sparse tensor: {fault}")
    try:
        weight, bias = (_pruned(tensors, key, name) for key in ("weight", "bias"))
        if weight is None:
            raise ArgumentError(f"{name}: the weight is missing")
        W = as_weights(weight, name)
        b = None if bias is None else as_array(bias)
    except GbdnnError:
        raise
    except (RuntimeError, TypeError, ValueError) as err:  # a tensor on "meta", lazy, quantized
        raise ArgumentError(f"{name}: the tensor has no accessible values: {err}") from err
    chain.linear(W, b, name)


def sparse_fault(tensor: Any) -> str:
    """Return the fault in the indices of a sparse tensor, or an empty string.

    PyTorch does not check them when it creates or reads a tensor, but its conversions trust them.
    """
    layout = str(getattr(tensor, "layout", "torch.strided"))
    if layout == "torch.strided" or not hasattr(tensor, "detach"):
        return ""
    torch, entries, size = sys.modules["torch"], tensor.detach(), tuple(tensor.shape)
    try:
        if layout == "torch.sparse_coo":
            torch.sparse_coo_tensor(
                entries._indices(), entries._values(), size, check_invariants=True
            )
        elif layout in _COMPRESSED:
            along, across = _COMPRESSED[layout]
            torch.sparse_compressed_tensor(
                getattr(entries, along)(), getattr(entries, across)(), entries.values(), size,
                layout=tensor.layout, check_invariants=True,
            )  # fmt: skip
    except (RuntimeError, ValueError, TypeError) as err:
        return str(err).partition("\n")[0]
    return ""


def _pruned(tensors: Mapping[str, Any], key: str, name: str) -> Any:
    """Return a parameter with its mask applied (``weight_orig * weight_mask``), or None."""
    origin, mask = tensors.get(f"{key}_orig"), tensors.get(f"{key}_mask")
    if (origin is None) != (mask is None):
        raise ArgumentError(f"{name}: one of {key}_orig and {key}_mask is missing")
    # `weight` may be outdated: a pruned module updates it in each forward.
    return tensors.get(key) if origin is None else origin * mask


def as_weights(weight: Any, name: str) -> Any:
    """Return a weight of shape (outputs, inputs) as a matrix of shape (inputs, outputs)."""
    if isinstance(weight, np.ndarray):
        return weight.T
    if weight.ndim != 2:
        raise unsupported(f"weight of {name}", f"its shape is {tuple(weight.shape)}")
    if str(weight.layout) == "torch.strided":
        return as_array(weight).T
    entries = weight.detach().cpu()
    if str(weight.layout) != "torch.sparse_coo":
        entries = entries.to_sparse(layout=sys.modules["torch"].sparse_coo)
    entries = entries.coalesce()  # sums duplicates, as PyTorch does
    outputs, inputs = as_array(entries.indices()).astype(np.uint64)
    values = as_array(entries.values())
    return gb.Matrix.from_coo(
        inputs, outputs, values, nrows=weight.shape[1], ncols=len(weight), dup_op=gb.binary.plus
    )


def as_array(tensor: Any) -> np.ndarray:
    """Return a tensor as an array; 16-bit floats as float32, which is exact."""
    if isinstance(tensor, np.ndarray):
        return tensor
    tensor = tensor.detach().cpu()
    if tensor.dtype.is_floating_point and tensor.element_size() < 4:
        tensor = tensor.float()
    return tensor.numpy()


def import_torch() -> Any:
    """Return PyTorch, or raise MissingPackageError."""
    return require("torch", "torch", "PyTorch is required")
