"""Queries of PyTorch's state that have no public form, or none as fast as a small layer needs.

- `records` asks for all that records, transforms or replaces operations: dispatch modes, function
  modes, ``torch.func``, ``torch.jit.trace`` and forward-mode derivatives.
- `is_hooked` and `is_watched` ask for hooks, which PyTorch does not list.
- `is_batched` asks for tensors of ``torch.vmap``.
- `TensorMap` is PyTorch's dictionary of tensors by identity, which does not keep them.
- `TEAM` has functions of libgomp, with which compiled code runs on PyTorch's threads. Other threads
  would wait for a core, since PyTorch's spin for a while after each of its operations.
"""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING

from torch._C import _functorch, _get_tracing_state, _len_torch_dispatch_stack
from torch._C import _len_torch_function_stack as _len_function_modes
from torch.autograd import forward_ad
from torch.nn.modules import module as modules
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary as TensorMap

if TYPE_CHECKING:
    import torch
    from torch import nn

__all__ = [
    "TEAM", "TensorMap", "has_function_mode", "is_batched", "is_hooked", "is_watched", "records",
    "tree_leaves",
]  # fmt: skip

_HOOKS = "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"
_HOOKS_OF_ALL = tuple(getattr(modules, "_global" + name) for name in _HOOKS)


def _team() -> list[int]:
    """Return libgomp's functions that `steps_on_team` takes, if libgomp is loaded."""
    names = "GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads", "omp_get_max_threads"
    try:
        openmp = ctypes.CDLL("libgomp.so.1", os.RTLD_NOLOAD)
        found = [getattr(openmp, name) for name in names]
    except (AttributeError, OSError):  # on macOS, or another OpenMP
        return []
    return [ctypes.cast(each, ctypes.c_void_p).value or 0 for each in found]


TEAM = _team()
os.register_at_fork(after_in_child=TEAM.clear)  # the threads are not copied


def records() -> bool:
    """Whether an operation does more than compute, apart from autograd and autocast."""
    if _len_torch_dispatch_stack() or _get_tracing_state() is not None or has_function_mode():
        return True
    return _functorch.peek_interpreter_stack() is not None or forward_ad._current_level >= 0


def is_batched(x: torch.Tensor) -> bool:
    """Whether a tensor stands for several, as in ``torch.vmap``."""
    return _functorch.is_batchedtensor(x) or _functorch.is_legacy_batchedtensor(x)


def has_function_mode() -> bool:
    """Whether a TorchFunctionMode is active, except that of ``torch.set_default_device``."""
    return _len_function_modes() > 0 and any(
        type(mode) is not DeviceContext for mode in _get_current_function_mode_stack()
    )


def is_watched() -> bool:
    """Whether hooks are registered for all modules."""
    return any(_HOOKS_OF_ALL)


def is_hooked(module: nn.Module) -> bool:
    """Whether a module has hooks, or a forward of its own."""
    found = vars(module)
    return "forward" in found or any(found.get(name) for name in _HOOKS)
