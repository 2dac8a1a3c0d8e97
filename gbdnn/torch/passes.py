"""Consecutive sparse layers as one operation of autograd, by the compiled training passes.

The values of a layer are in the order of its CSR matrix of shape (out_features, in_features), which
is gbdnn's order of edge numbers, so values and gradients pass by address. Activations stay in
blocks from the first layer to the last one, and are kept for the backward pass:

    forward    by inputs:  X -> block, Y = limits(Y W + b) for each layer, last block -> rows
    backward   by edges:   W^T from W
               by inputs:  dZ -> block, D = D' W^T where the activation passes, block -> rows of dX
               by edges:   dW<W.S> = Y^T D, db = sum of D

What is derived from a pattern is kept as long as its `col_indices`, and derived again if any index
is not what it was: each call compares all of them, since PyTorch does not count changes through
``.data``, NumPy, other processes and ``torch.distributed``. All else is read at each call.
"""

from __future__ import annotations

import math
import weakref
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from gbdnn.errors import ArgumentError, ArgumentTypeError, ShapeError
from gbdnn.kernels.compiled.loading import required
from gbdnn.kernels.compiled.record import Record, constant
from gbdnn.kernels.steps import GROUP_LINES
from gbdnn.kernels.together import together
from gbdnn.kernels.trainable import Pattern
from gbdnn.model.layer_info import LayerInfo
from gbdnn.torch import private

if TYPE_CHECKING:
    from collections.abc import Sequence

    Tensors = Sequence[torch.Tensor]
    Optionals = Sequence[torch.Tensor | None]

__all__ = ["computed", "edges_of"]

_FORWARD = constant("FORWARD") | constant("OUTPUT")
_BACKWARD = constant("REFRESH") | constant("OUTPUT_GRADIENT") | constant("BACKWARD")
_WORK = 1 << 20  # multiply-adds for which a further thread pays
_PANELS = 256  # inputs for which panels pay the copies of weights and gradients in their order
_KEPT = 2  # arrays of earlier calls: the inputs of layers, and what a backward pass writes


class _Use(NamedTuple):
    """A backward pass of a layer, which the gradient of all its possible weights needs."""

    plan: _Plan
    layer: int
    inputs: torch.Tensor
    scratch: torch.Tensor


class _Edges(Pattern):
    """The edges of a layer, and the plans of calls that begin with it."""

    def __init__(
        self, crow: torch.Tensor, col: torch.Tensor, rows: int, dtype: torch.dtype,
        uses: list[_Use], in_panels: bool,
    ) -> None:  # fmt: skip
        starts, columns, n = crow.numpy(), col.numpy(), len(crow) - 1
        if len(columns) and not 0 <= columns.min() <= columns.max() < rows:
            raise ArgumentError(f"col_indices must be from 0 to {rows - 1}")
        is_valid = (
            starts[0] == 0 and starts[-1] == len(columns) and (starts[1:] >= starts[:-1]).all()
        )
        numbers = np.repeat(np.arange(n) * rows, np.diff(starts)) + columns if is_valid else columns
        if not (is_valid and (np.diff(numbers) > 0).all()):
            raise ArgumentError("crow_indices and col_indices are not those of a CSR matrix")
        info = LayerInfo((rows, n), len(numbers), 1.0, np.dtype(str(dtype)[6:]))
        super().__init__(info, numbers, in_panels=in_panels)
        order = self.order()  # None: that of the values
        self.positions = None if order is None else torch.from_numpy(order)
        self.inverse = None if self.positions is None else self.positions.argsort()
        self._indices = starts.copy(), columns.copy()
        self.plans: dict[Any, _Plan] = {}
        self.kept: list[Any] = []  # arrays of earlier calls, and a weak reference to the user
        self.uses = uses  # since the last call

    def has_indices(self, *indices: torch.Tensor) -> bool:
        """Whether these are the edges of `crow` and `col`."""
        pairs = zip(self._indices, indices, strict=True)
        return all(np.array_equal(x, y.numpy()) for x, y in pairs)

    def dense_gradient(self) -> np.ndarray | None:
        """Return the gradient of all possible weights since the last call, if there was any."""
        gradients = [use.plan.dense_gradient(*use[1:]) for use in self.uses]
        return sum(gradients[1:], gradients[0]).numpy() if gradients else None


class _Patterns(NamedTuple):
    """What is derived from a tensor of column indices."""

    form: tuple[int, torch.dtype]
    edges: dict[bool, _Edges]  # by whether they are in panels; all of the same indices
    uses: list[_Use]


_known: Any = private.TensorMap()  # the patterns of each `col_indices`


def edges_of(
    crow: torch.Tensor, col: torch.Tensor, rows: int, dtype: torch.dtype,
    in_panels: bool | None = None,
) -> _Edges:  # fmt: skip
    """Return the pattern of index tensors, derived again after any change."""
    known, form = _known.get(col), (rows, dtype)
    first = next(iter(known.edges.values()), None) if known and known.form == form else None
    if first is None or not first.has_indices(crow, col):
        known = _known[col] = _Patterns(form, {}, [])
    in_panels = next(iter(known.edges), False) if in_panels is None else in_panels
    if in_panels not in known.edges:
        known.edges[in_panels] = _Edges(crow, col, rows, dtype, known.uses, in_panels)
    return known.edges[in_panels]


def _reused(kept: list[Any], dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Return an array of an earlier call that nobody uses any more, or a new one.

    If it were freed after each call, the system would often map it anew. Other threads may take
    arrays from the list, too.
    """
    size, free = math.prod(shape), None
    for _ in range(len(kept)):
        try:
            array, user = kept.pop(0)
        except IndexError:
            break
        if user() is None and len(array) >= size:
            free = array
            break
        kept.append((array, user))
    array = torch.empty(size, dtype=dtype).numpy() if free is None else free  # aligned
    part = array[:size]
    kept[_KEPT - 1 :] = [(array, weakref.ref(part))]
    return torch.from_numpy(part).view(shape)


class _Plan:
    """What calls with a number of inputs have in common.

    The inputs are divided into groups. Blocks have a row for each neuron and a column for each
    input of the group; those of a group follow each other in memory:

        inputs    of all layers                            (groups, neurons of inputs, stride)
        scratch   gradients of these                       (groups, neurons of inputs, stride)
                  gradients of the outputs                 (groups, outputs, stride)
                  the transposed weights of all layers     (edges)
    """

    def __init__(self, layers: list[_Edges], relu: list[bool], batch: int, threads: int) -> None:
        dtype = layers[0].info.dtype
        size, lines = dtype.itemsize, -(-batch * dtype.itemsize // 64)
        self.sizes, self.batch = [layers[0].nrows, *(e.ncols for e in layers)], batch
        self.orders = [(e.nedges, e.positions, e.inverse) for e in layers]
        self.stride, self.groups = (
            (min(lines, GROUP_LINES) | 1) * 64 // size,
            -(-lines // GROUP_LINES),
        )
        self.threads, self._compiled, self._kept = threads, required(dtype), layers[0].kept
        limits = np.array([[-np.inf, np.nan], [0, np.nan]], dtype)  # infinity has a gradient
        of_layers = [limits[int(is_relu)] for is_relu in relu]
        self._forward = Record.joined([e.forward_record() for e in layers])
        self._backward = Record.joined([e.backward_record(limits) for e in layers])
        self._edges = Record.joined([e.edge_record(e.cuts(threads)) for e in layers])
        self._forward.set_each(limits=of_layers)
        self._backward.set_each(limits=[limits[0], *of_layers[:-1]], masked=[0, *relu[:-1]])
        self._zeros = np.zeros(5, dtype)
        self._job = Record(
            "steps", dtype, layers=len(layers), batch=batch, count=batch, group_lines=GROUP_LINES,
            stride=self.stride, threads=threads, indices=np.arange(batch), constants=self._zeros,
            limits=limits, starts=np.cumsum([0, *self.sizes[:-1]]),
        )  # fmt: skip
        # Numbers in the scratch before the gradients of outputs, and each layer's weights.
        self._inner, self._gradients = (
            self.groups * sum(sizes) * self.stride for sizes in (self.sizes[:-1], self.sizes)
        )
        edges = accumulate((e.nedges for e in layers), initial=self._gradients)
        *self._transposed_at, self._scratch = edges

    def _run(self, passes: int, rows: torch.Tensor, out: torch.Tensor, **others: Any) -> None:
        """Run passes that read and write rows."""
        state = np.zeros(17, np.int64)  # the barrier, and whether the run was stopped
        job = self._job.copy(
            passes=passes, X=rows.data_ptr(), row_stride=rows.stride(0),
            column_stride=rows.stride(1), out=out.data_ptr(), out_stride=out.shape[1],
            barrier=state[:16], stopped=state[16:], **others,
        )  # fmt: skip
        together(self.threads, self._compiled.steps, job, all_needed=True)

    def dense_gradient(self, k: int, inputs: torch.Tensor, scratch: torch.Tensor) -> torch.Tensor:
        """Return the gradient of all possible weights of layer k from the blocks of a pass."""
        starts, numbers = [*accumulate(self.sizes, initial=0)], np.arange(self.batch)
        group = GROUP_LINES * 64 // scratch.itemsize
        places = torch.from_numpy(numbers // group * self.stride + numbers % group)
        parts = scratch[: self._inner], scratch[self._inner : self._gradients]
        sizes = starts[-2], self.sizes[-1]
        gradients = torch.cat(
            [x.view(self.groups, n, self.stride) for x, n in zip(parts, sizes, strict=True)], 1
        )
        Y, D = (
            x[:, starts[at] : starts[at + 1]].movedim(1, 0).flatten(1).index_select(1, places)
            for x, at in ((inputs, k), (gradients, k + 1))
        )
        return D @ Y.T

    def _ordered(self, values: Tensors) -> list[torch.Tensor]:
        """Return values in the order of computation, contiguous."""
        orders = (positions for _, positions, _ in self.orders)
        pairs = zip(values, orders, strict=True)
        return [v.contiguous() if x is None else v.detach()[x] for v, x in pairs]

    def forward(
        self, x: torch.Tensor, values: Tensors, biases: Optionals, has_graph: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the outputs, and the blocks of the inputs of all layers."""
        sizes, groups, stride = self.sizes, self.groups, self.stride
        for (n, *_), m, v, b in zip(self.orders, sizes[1:], values, biases, strict=True):
            if v.shape != (n,):
                raise ShapeError(f"values have shape {(*v.shape,)}, but there are {n} edges")
            if b is not None and b.shape != (m,):
                raise ShapeError(f"the bias has shape {(*b.shape,)}, but there are {m} outputs")
        out, last = x.new_empty(self.batch, sizes[-1]), x.new_empty(groups, sizes[-1], stride)
        kept = self._kept if has_graph else []
        inputs = _reused(kept, x.dtype, groups, sum(sizes[:-1]), stride)
        if not sizes[0]:  # no features
            x = x.new_zeros(self.batch, 1)
        weights, bias = self._ordered(values), [b if b is None else b.contiguous() for b in biases]
        if self.batch:
            layers = self._forward.copy().set_each(
                weights=_addresses(weights), bias_step=[b is not None for b in bias],
                bias=[self._zeros if b is None else b.data_ptr() for b in bias],
            )  # fmt: skip
            Y, Z = _addresses([inputs, last])
            self._run(_FORWARD, x, out, Y=Y, Z=Z, forward=layers, edges=self._edges)
        return out, inputs

    def backward(
        self, d: torch.Tensor, inputs: torch.Tensor, values: Tensors, needs_dx: bool
    ) -> tuple[Any, ...]:
        """Return the gradients of inputs, if needed, of values and biases, and the scratch."""
        scratch = _reused(self._kept, d.dtype, self._scratch)
        dx = d.new_empty(self.batch, self.sizes[0] if needs_dx else 0)
        make = d.new_empty if self.batch else d.new_zeros
        dw, db = [make(n) for n, *_ in self.orders], [make(n) for n in self.sizes[1:]]
        if self.batch:
            weights, D, size = self._ordered(values), scratch.data_ptr(), scratch.itemsize
            transposed = [D + at * size for at in self._transposed_at]
            self._run(
                _BACKWARD | (constant("INPUT_GRADIENT") if needs_dx else 0), d, dx,
                Y=inputs.data_ptr(), D=D, Z=D + self._inner * size,
                backward=self._backward.copy().set_each(weights=transposed),
                edges=self._edges.copy().set_each(
                    weights=_addresses(weights), transposed=transposed,
                    gradient=_addresses(dw), bias_gradient=_addresses(db),
                ),
            )  # fmt: skip
            pairs = zip(dw, self.orders, strict=True)
            dw = [g if inverse is None else g[inverse] for g, (*_, inverse) in pairs]
        return dx, dw, db, scratch


def _addresses(tensors: Tensors) -> list[int]:
    return [x.data_ptr() for x in tensors]


def _planned(
    x: torch.Tensor, rows: int, crow: Tensors, col: Tensors, relu: list[bool]
) -> tuple[list[_Edges], _Plan]:
    """Return the patterns of layers and the plan of the inputs `x`."""
    sizes = [rows, *(pointers.shape[0] - 1 for pointers in crow)]
    lists, in_panels = zip(crow, col, sizes, strict=False), len(x) >= _PANELS
    layers = [edges_of(r, c, n, x.dtype, in_panels) for r, c, n in lists]
    for layer in layers:
        layer.uses.clear()
    work = len(x) * sum(layer.nedges for layer in layers)
    threads = min(torch.get_num_threads(), 1 + work // _WORK)
    plans, key = layers[0].plans, (*layers[1:], *relu, len(x), threads)
    if (plan := plans.get(key)) is None:
        if len(plans) > 8:  # batch sizes
            plans.clear()
        plan = plans[key] = _Plan(layers, relu, len(x), threads)
    return layers, plan


# -- operators of compiled graphs

_LISTS = "Tensor[] crow, Tensor[] col, bool[] relu"


@torch.library.custom_op(
    "gbdnn::layers", mutates_args=(),
    schema=f"(Tensor x, Tensor[] values, Tensor?[] biases, {_LISTS}) -> (Tensor, Tensor)",
)  # fmt: skip
def _operator(x, values, biases, crow, col, relu):  # type: ignore[no-untyped-def]
    return _planned(x, x.shape[1], crow, col, relu)[1].forward(x, values, biases)


@_operator.register_fake
def _(x, values, biases, crow, col, relu):  # type: ignore[no-untyped-def]
    lanes = 64 // x.dtype.itemsize
    lines = (x.shape[0] + lanes - 1) // lanes
    stride = (torch.sym_min(lines, GROUP_LINES) // 2 * 2 + 1) * lanes
    neurons = x.shape[1] + sum(len(pointers) - 1 for pointers in crow[:-1])
    inputs = x.new_empty((lines + GROUP_LINES - 1) // GROUP_LINES, neurons, stride)
    return x.new_empty(x.shape[0], len(crow[-1]) - 1), inputs


@torch.library.custom_op(
    "gbdnn::layers_backward", mutates_args=(),
    schema=f"(Tensor d, Tensor inputs, Tensor[] values, {_LISTS}, int rows, bool needs_dx)"
    " -> (Tensor, Tensor[], Tensor[])",
)  # fmt: skip
def _back_operator(d, inputs, values, crow, col, relu, rows, needs_dx):  # type: ignore[no-untyped-def]
    return _planned(d, rows, crow, col, relu)[1].backward(d, inputs, values, needs_dx)[:3]


@_back_operator.register_fake
def _(d, inputs, values, crow, col, relu, rows, needs_dx):  # type: ignore[no-untyped-def]
    db = [d.new_empty(len(pointers) - 1) for pointers in crow]
    return d.new_empty(d.shape[0], rows if needs_dx else 0), [*map(torch.empty_like, values)], db


class _Function(torch.autograd.Function):
    """Layers as one operation of autograd; `parameters` are values and biases."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, lists: Any, has_graph: bool, *parameters: Any
    ) -> torch.Tensor:
        n = len(parameters) // 2
        values, biases, last = [*parameters[:n]], [*parameters[n:]], lists[-1][-1]
        if torch.compiler.is_compiling():
            out, inputs = _operator(x, values, biases, *lists)
        else:
            ctx.layers, ctx.plan = _planned(x, x.shape[1], *lists)
            out, inputs = ctx.plan.forward(x, values, biases, has_graph)
        ctx.lists, ctx.rows, ctx.biases = lists, x.shape[1], [b is not None for b in biases]
        ctx.save_for_backward(inputs, *values, *[out] * last)
        return out

    @staticmethod
    def backward(ctx: Any, d: torch.Tensor) -> Any:
        # PyTorch's `once_differentiable` notices no derivative by the weights of a gradient.
        is_eager = not torch.compiler.is_compiling()
        if is_eager and (torch.is_grad_enabled() or private.is_batched(d)):
            raise ArgumentError(
                "SparseLinear supports neither create_graph=True nor is_grads_batched=True; use"
                " to_dense() for them"
            )
        n, needs_dx, (inputs, *rest) = len(ctx.biases), ctx.needs_input_grad[0], ctx.saved_tensors
        is_relu = len(rest) > n
        d = torch.ops.aten.threshold_backward(d, rest[-1], 0) if is_relu else d.resolve_neg()
        if is_eager:
            d = d if d.data_ptr() or not d.numel() else d.clone()  # zeros without memory
            for edges in ctx.layers:  # an earlier pass of this graph
                edges.uses[:] = [x for x in edges.uses if x.inputs.data_ptr() != inputs.data_ptr()]
            dx, dw, db, scratch = ctx.plan.backward(d, inputs, rest[:n], needs_dx)
            for k, edges in enumerate(ctx.layers):
                edges.uses.append(_Use(ctx.plan, k, inputs, scratch))
        else:
            dx, dw, db = _back_operator(d, inputs, rest[:n], *ctx.lists, ctx.rows, needs_dx)
        db = [g if is_there else None for g, is_there in zip(db, ctx.biases, strict=True)]
        return dx if needs_dx else None, None, None, *dw, *db


def computed(x: torch.Tensor, layers: Sequence[Any], relu: list[bool]) -> torch.Tensor:
    """Return the activations of consecutive SparseLinear modules, with ReLU where `relu` says."""
    if not torch.compiler.is_compiling() and private.records():
        raise ArgumentError(
            "SparseLinear supports neither torch.func nor torch.jit.trace nor modes that intercept"
            " operations; use to_dense() for them"
        )
    if not isinstance(x, torch.Tensor):
        raise ArgumentTypeError(f"the input must be a tensor, not {type(x).__qualname__}")
    lists = [f.crow_indices for f in layers], [f.col_indices for f in layers], relu
    parameters = [f.values.resolve_neg() for f in layers]
    parameters += [f.bias if f.bias is None else f.bias.resolve_neg() for f in layers]
    dtype, wanted = parameters[0].dtype, layers[0].in_features
    for y in (x, *parameters, *lists[0], *lists[1]):
        if y is not None and not (y.is_cpu and y.layout is torch.strided):
            raise ArgumentError(
                "SparseLinear computes with strided tensors on the CPU, not with"
                f" {y.layout} on {y.device}"
            )
    if dtype not in (torch.float32, torch.float64):
        raise ArgumentError(f"SparseLinear computes in float32 and float64, not in {dtype}")
    shape = x.shape
    if not shape or shape[-1] != wanted:
        raise ShapeError(f"the input has shape {(*shape,)}, expected (..., {wanted})")
    for f, g in pairwise(layers):
        if f.out_features != g.in_features:
            counts = f"{f.out_features} outputs, the next one has {g.in_features} inputs"
            raise ShapeError(f"a layer has {counts}")
    flat = x if len(shape) == 2 else x.reshape(shape[:-1].numel(), wanted)
    flat = (flat.to(dtype) if torch.is_autocast_enabled("cpu") else flat).resolve_neg()
    for y in (flat, *parameters):
        if y is not None and y.dtype is not dtype:
            raise ArgumentError(f"the input or a parameter has dtype {y.dtype}, expected {dtype}")
    out = _Function.apply(flat, lists, torch.is_grad_enabled(), *parameters)
    return out if len(shape) == 2 else out.view(*shape[:-1], out.shape[1])
