"""Sparse linear layers that train in any PyTorch loop."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import nn

from gbdnn.arrays.checks import as_number, as_word
from gbdnn.arrays.matrices import as_rows
from gbdnn.errors import ArgumentError, ShapeError
from gbdnn.io.frameworks.torch_tensors import as_weights, parameter
from gbdnn.io.frameworks.torch_trace import LINEARS, is_linear, require_visible
from gbdnn.torch import private
from gbdnn.torch.passes import computed, edges_of
from gbdnn.training.patterns import edges_into
from gbdnn.training.rewiring import random_places, replaced_edges, steepest_places

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gbdnn.arrays.matrices import MatrixLike

__all__ = ["SparseLinear", "SparseSequential"]


class SparseLinear(nn.Module):
    """A linear layer with sparse weights: ``y = x W^T + b``.

    The stored weights are one trainable vector, so their gradient, the optimizer's moments and
    memory are as small. gbdnn computes both passes on the CPU, with ``torch.get_num_threads()``
    threads; results do not depend on their number. Outputs are NaN or infinite as in PyTorch.

    Parameters
    ----------
    in_features, out_features : int
    bias : bool, default True
    density : float, optional
        Fraction of weights stored: as many, at random places, for each output. Pass either
        `density` or `mask`.
    mask : tensor, Matrix, SciPy sparse or ndarray, shape (out_features, in_features), optional
        The places of the stored weights: where it is not 0.
    device, dtype : optional
        As for ``torch.nn.Linear``. gbdnn computes in float32 and float64, on the CPU.

    Attributes
    ----------
    values : torch.nn.Parameter, shape (nnz,)
        The stored weights, by output, then by input. ``load_state_dict`` adopts another number of
        them, with their indices.
    bias : torch.nn.Parameter, shape (out_features,)
        Or None.
    crow_indices, col_indices : tensor of int64, shape (out_features + 1,), of int32, shape (nnz,)
        Buffers: the CSR indices of the weight.

    Raises
    ------
    ArgumentError
        Neither or both of `density` and `mask` are given; `density` is not between 0 and 1. In a
        call: another device or dtype, a ``torch.func`` transformation, ``torch.jit.trace``, or
        invalid indices. In a backward pass: ``create_graph=True`` or
        ``is_grads_batched=True``.
    ShapeError
        The mask, an input or a parameter has another shape.

    See Also
    --------
    SparseSequential : Compute several layers as one operation, which takes less time.

    Examples
    --------
    >>> import torch, gbdnn.torch
    >>> _ = torch.manual_seed(0)
    >>> layer = gbdnn.torch.SparseLinear(1000, 500, density=0.05)
    >>> layer
    SparseLinear(in_features=1000, out_features=500, bias=True, nnz=25000)
    >>> layer(torch.rand(8, 1000)).sum().backward()
    >>> layer.values.grad.shape
    torch.Size([25000])
    """

    crow_indices: torch.Tensor
    col_indices: torch.Tensor

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        density: float | None = None,
        mask: torch.Tensor | MatrixLike | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        if (density is None) == (mask is None):
            raise ArgumentError("pass either density or mask")
        if mask is None:
            share = as_number(density, "density")
            if not 0 <= share <= 1:
                raise ArgumentError(f"density must be between 0 and 1, not {density}")
            degree = round(share * in_features) or min(1, in_features * math.ceil(share))
            edges = edges_into(in_features, out_features, degree, _random())
            columns, starts = edges % max(in_features, 1), np.arange(out_features + 1) * degree
        else:
            rows = as_weights(mask, "mask").T if isinstance(mask, torch.Tensor) else mask
            rows = as_rows(rows, what="mask")
            if (rows.nrows, rows.ncols) != (out_features, in_features):
                shape, wanted = (rows.nrows, rows.ncols), (out_features, in_features)
                raise ShapeError(f"the mask has shape {shape}, expected {wanted}")
            columns, starts = rows.columns, rows.indptr
        indices = {"crow_indices": starts.astype(np.int64), "col_indices": columns.astype(np.int32)}
        for name, array in indices.items():
            self.register_buffer(name, torch.as_tensor(array, device=device))
        options = {"device": device, "dtype": dtype}
        self.values = nn.Parameter(torch.empty(len(columns), **options))
        self.bias = nn.Parameter(torch.empty(out_features, **options)) if bias else None
        self.reset_parameters()

    @classmethod
    def from_dense(cls, linear: nn.Linear, density: float | None = None) -> SparseLinear:
        """Return a layer with the nonzero weights of a Linear, or its largest ones.

        Parameters
        ----------
        linear : torch.nn.Linear
            It is not modified.
        density : float, optional
            The fraction of weights to keep, those of the largest magnitude (default: all nonzeros).

        Returns
        -------
        SparseLinear

        Raises
        ------
        ArgumentError
            `density` is not between 0 and 1; the module has another forward than a Linear, forward
            hooks (those of ``torch.nn.utils.prune`` are applied), or no weights yet.
        """
        require_visible("linear", linear)
        if not is_linear(linear):
            raise ArgumentError(f"a {type(linear).__qualname__} is not a torch.nn.Linear")
        weight, bias = parameter(linear, "weight").detach(), parameter(linear, "bias")
        mask = weight != 0
        if density is not None:
            if not 0 <= as_number(density, "density") <= 1:
                raise ArgumentError(f"density must be between 0 and 1, not {density}")
            places = weight.abs().flatten().topk(round(density * weight.numel())).indices
            mask = mask.new_zeros(weight.numel()).index_fill_(0, places, True).view(mask.shape)
        m, n = weight.shape
        options = {"device": weight.device, "dtype": weight.dtype}
        made = cls(n, m, bias is not None, mask=mask, **options)
        with torch.no_grad():
            made.values.copy_(weight[mask])
            if made.bias is not None:
                made.bias.copy_(bias)
        return made.train(linear.training)

    def to_dense(self) -> nn.Linear:
        """Return a ``torch.nn.Linear`` with these weights, and 0 elsewhere."""
        options = {"device": self.values.device, "dtype": self.values.dtype}
        made = nn.Linear(self.in_features, self.out_features, self.bias is not None, **options)
        with torch.no_grad():
            values, bias = parameter(self, "values"), parameter(self, "bias")
            made.weight.zero_()[self._row_indices(), self.col_indices.long()] = values
            if bias is not None:
                made.bias.copy_(bias)
        return made.train(self.training)

    @property
    def weight(self) -> torch.Tensor:
        """The weight as a CSR tensor that shares `values`."""
        columns, shape = self.col_indices.long(), (self.out_features, self.in_features)
        values = parameter(self, "values")
        return torch.sparse_csr_tensor(
            self.crow_indices, columns, values, shape, check_invariants=False
        )

    def reset_parameters(self) -> None:
        """Draw new values and biases, uniform within one over the root of an output's edges."""
        bound = self.crow_indices.diff().clamp(min=1).to(self.values.dtype).rsqrt()
        with torch.no_grad():
            self.values.uniform_(-1, 1).mul_(bound[self._row_indices()])
            if self.bias is not None:
                self.bias.uniform_(-1, 1).mul_(bound)

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 -- PyTorch's name
        """Return ``input @ weight.T + bias`` for an input of shape ``(..., in_features)``."""
        return computed(input, [self], [False])

    @torch.no_grad()
    def rewire(
        self,
        fraction: float,
        score: Literal["random", "gradient"] = "random",
        optimizers: Iterable[torch.optim.Optimizer] = (),
        *,
        process_group: torch.distributed.ProcessGroup | None = None,
    ) -> None:
        """Replace the weights of the smallest magnitude by new edges, which start at 0.

        Parameters and buffers are changed in place. A layer keeps the activations of the last
        backward pass until its next call, for the gradient of all weights, and then their memory.

        Parameters
        ----------
        fraction : float
            Fraction of the edges to replace, between 0 and 1.
        score : {"random", "gradient"}, default "random"
            New edges are at random places, as in SET, or where gradients of all possible weights
            are largest, as in RigL: those of the last backward pass, or the sum of those since the
            last call of the layer.
        optimizers : iterable of torch.optim.Optimizer
            Their moments follow the edges; those of new edges are 0.
        process_group : torch.distributed.ProcessGroup, optional
            The processes that train copies of the layer, as in DistributedDataParallel, which all
            call `rewire`: gradients are summed, and the edges are those of the first process.
            Required if ``torch.distributed`` has several processes; a layer that is no copy has a
            group of its own process.

        Raises
        ------
        ArgumentError
            `fraction` is not between 0 and 1; `score` is another word, or is "gradient" and there
            was no backward pass since the last call of the layer; `values` are computed, as by
            ``torch.nn.utils.prune``; or `process_group` is missing.
        """
        as_word(score, "score", ("random", "gradient"))
        if not 0 <= as_number(fraction, "fraction") <= 1:
            raise ArgumentError(f"fraction must be between 0 and 1, not {fraction}")
        if "values" not in self._parameters:
            raise ArgumentError("values are computed; call torch.nn.utils.prune.remove first")
        distributed = torch.distributed
        if process_group is None and distributed.is_available() and distributed.is_initialized():
            raise ArgumentError(
                "rewire needs process_group=, such as torch.distributed.group.WORLD"
            )
        pattern = edges_of(self.crow_indices, self.col_indices, self.in_features, self.values.dtype)

        def grow(pattern: Any, count: int) -> np.ndarray:
            if score == "random":
                return random_places(pattern, count, _random())
            if (gradient := pattern.dense_gradient()) is None:
                raise ArgumentError(
                    'score="gradient" needs a backward pass since the last call of the layer'
                )
            if process_group is not None:
                distributed.all_reduce(torch.from_numpy(gradient), group=process_group)
            return steepest_places(pattern, count, gradient)

        kept_and_new = replaced_edges(pattern, self.values.numpy(force=True), fraction, grow)
        kept, places = map(torch.from_numpy, kept_and_new)
        if process_group is not None:
            for x in (kept, places):
                distributed.broadcast(x, group=process_group, group_src=0)
        kept, count = kept.nonzero().squeeze(1), len(places)
        new, order = torch.cat([torch.from_numpy(pattern.numbers)[kept], places]).sort()
        states = [x for o in optimizers for x in o.state.get(self.values, {}).values()]
        held = [x for x in states if isinstance(x, torch.Tensor) and x.shape == self.values.shape]
        held += [self.values] if self.values.grad is None else [self.values, self.values.grad]
        for x in held:
            x.copy_(torch.cat([x[kept], x.new_zeros(count)])[order])
        self.col_indices.copy_(new % self.in_features)
        degrees = (new // self.in_features).bincount(minlength=self.out_features)
        self.crow_indices[1:] = degrees.cumsum(0)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        """Load values with their indices, which may be those of another pattern, or nothing."""
        held = {**self._parameters, **self._buffers}
        names = [name for name in held if name.endswith("_indices") or name.startswith("values")]
        tensors = {x: state_dict[prefix + x] for x in names if prefix + x in state_dict}
        if tensors and not (tensors.keys() >= {*names} and self._fits(**tensors)):
            shapes = ", ".join(f"{name} {(*x.shape,)}" for name, x in tensors.items())
            args[-1].append(f"{prefix}values and indices do not fit {self}: {shapes}")
            return
        for name, x in tensors.items():
            if held[name].shape != x.shape:  # the same tensors, which optimizers hold
                held[name].data, held[name].grad = held[name].data.new_empty(x.shape), None
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _fits(self, crow_indices: torch.Tensor, col_indices: torch.Tensor, **values: Any) -> bool:
        shapes = {x.shape for x in (col_indices, *values.values())}
        if crow_indices.shape != self.crow_indices.shape or shapes != {(int(crow_indices[-1]),)}:
            return False
        return not len(col_indices) or int(col_indices.max()) < self.in_features

    def extra_repr(self) -> str:
        """Return the text in the parentheses of the representation."""
        shape = f"in_features={self.in_features}, out_features={self.out_features}"
        return f"{shape}, bias={self.bias is not None}, nnz={len(self.values)}"

    def _row_indices(self) -> torch.Tensor:
        rows = torch.arange(self.out_features, device=self.values.device)
        return rows.repeat_interleave(self.crow_indices.diff(), output_size=len(self.values))


LINEARS.add(SparseLinear.forward)


def _random() -> np.random.Generator:
    """Return a generator whose seed PyTorch's generator draws."""
    return np.random.default_rng(int(torch.randint(2**62, ())))


def _is(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Whether a module computes as `kind` does, and nothing else when it is called."""
    return type(module).forward is kind.forward and not private.is_hooked(module)


class SparseSequential(nn.Sequential):
    """A ``torch.nn.Sequential`` that computes runs of SparseLinear and ReLU as one operation each.

    Activations stay in the layout of gbdnn within a run. Modules with hooks are called by
    themselves, and all are while hooks for all modules are registered.

    Parameters
    ----------
    *modules : torch.nn.Module
        As for ``torch.nn.Sequential``.

    Raises
    ------
    ShapeError
        In a call: a layer has another number of inputs than the one before it has outputs.

    Examples
    --------
    >>> import torch, gbdnn.torch
    >>> from gbdnn.torch import SparseLinear, SparseSequential
    >>> _ = torch.manual_seed(0)
    >>> model = SparseSequential(
    ...     SparseLinear(64, 100, density=0.1), torch.nn.ReLU(), SparseLinear(100, 10, density=0.3)
    ... )
    >>> optimizer = torch.optim.Adam(model.parameters())
    >>> x, y = torch.rand(32, 64), torch.randint(10, (32,))
    >>> torch.nn.functional.cross_entropy(model(x), y).backward()
    >>> optimizer.step()
    """

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 -- PyTorch's name
        """Return the output of the last module."""
        parts, k = [*self._modules.values()], 0
        if private.is_watched() or not isinstance(input, torch.Tensor):  # torch.fx traces it
            return super().forward(input)
        while k < len(parts):
            layers: list[nn.Module] = []
            relu: list[bool] = []
            while k < len(parts) and _is(parts[k], SparseLinear):
                layers.append(parts[k])
                k += 1
                relu.append(k < len(parts) and _is(parts[k], nn.ReLU))
                k += relu[-1]
            if layers:
                input = computed(input, layers, relu)  # noqa: A001
            else:
                input = parts[k](input)  # noqa: A001
                k += 1
        return input
