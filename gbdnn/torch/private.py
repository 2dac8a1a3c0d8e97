"""Queries of PyTorch's state that have no public form, or none as fast as a small layer needs.

- `records` asks for all that records, transforms or replaces operations: dispatch modes, function
  modes, ``torch.func``, ``torch.jit.trace`` and forward-mode derivatives.
- `is_hooked` and `is_watched` ask for hooks, which PyTorch does not list.
- `is_batched` asks for tensors of ``torch.vmap``.
- `TensorMap` is PyTorch's dictionary of tensors by identity, which does not keep them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch._C import _functorch, _get_tracing_state, _len_torch_dispatch_stack
from torch._C import _len_torch_function_stack as _len_function_modes
from torch.autograd import forward_ad
from torch.nn.modules import module as modules
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext
from torch.utils.weak import WeakIdKeyDictionary as TensorMap

if TYPE_CHECKING:
    import torch
    from torch import nn

__all__ = ["TensorMap", "is_batched", "is_hooked", "is_watched", "records"]

_HOOKS = "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"
_HOOKS_OF_ALL = tuple(getattr(modules, "_global" + name) for name in _HOOKS)


def records() -> bool:
    """Whether an operation does more than compute, apart from autograd and autocast."""
    if _len_torch_dispatch_stack() or _get_tracing_state() is not None or _has_function_mode():
        return True
    return _functorch.peek_interpreter_stack() is not None or forward_ad._current_level >= 0


def is_batched(x: torch.Tensor) -> bool:
    """Whether a tensor stands for several, as in ``torch.vmap``."""
    return _functorch.is_batchedtensor(x) or _functorch.is_legacy_batchedtensor(x)


def _has_function_mode() -> bool:
    """Whether a TorchFunctionMode is active, except that of ``torch.set_default_device``."""
    return _len_function_modes() > 0 and any(
        type(mode) is not DeviceContext for mode in _get_current_function_mode_stack()
    )


def is_watched() -> bool:
    """Whether hooks are registered for all modules."""
    return any(_HOOKS_OF_ALL)


def is_hooked(module: nn.Module) -> bool:
    """Whether a module has hooks, or a forward of its own."""
    members = vars(module)
    return "forward" in members or any(members.get(name) for name in _HOOKS)
