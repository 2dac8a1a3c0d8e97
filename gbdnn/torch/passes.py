"""Consecutive sparse layers as one operation of autograd, by the compiled training passes.

The values of a layer are in the order of its CSR matrix of shape (out_features, in_features), which
is gbdnn's order of edge numbers, so values and gradients pass by address. Activations stay in
blocks from the first layer to the last one, and are kept for the backward pass:

    forward    by inputs:  X -> block, Y = limits(Y W + b) for each layer, last block -> rows
    backward   by edges:   W^T from W
               by inputs:  dZ -> block, D = D' W^T where the activation passes, block -> rows of dX
               by edges:   dW<W.S> = Y^T D, db = sum of D

What is derived from a pattern is kept as long as its `col_indices`, and derived again after PyTorch
has counted a change of the indices. All else is read at each call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gbdnn.errors import ArgumentError, ShapeError
from gbdnn.kernels.compiled.loading import required
from gbdnn.kernels.compiled.record import CONSTANTS, MEMBERS, Record, word
from gbdnn.kernels.steps import SHARE_LINES
from gbdnn.kernels.trainable import Pattern
from gbdnn.model.layer_info import LayerInfo
from gbdnn.runtime.threads import on_threads
from gbdnn.torch import private

if TYPE_CHECKING:
    from collections.abc import Sequence

    Tensors = Sequence[torch.Tensor]
    Optionals = Sequence[torch.Tensor | None]

__all__ = ["computed"]

_FORWARD = CONSTANTS["FORWARD"] | CONSTANTS["OUTPUT"]
_BACKWARD = CONSTANTS["REFRESH"] | CONSTANTS["OUTPUT_GRADIENT"] | CONSTANTS["BACKWARD"]
_WORK = 1 << 20  # multiply-adds for which a further thread pays


class _Edges(Pattern):
    """The edges of a layer, and the plans of calls that begin with it."""

    def __init__(self, crow: torch.Tensor, col: torch.Tensor, rows: int, dtype: torch.dtype):
        starts, columns, n = crow.numpy(), col.numpy(), len(crow) - 1
        numbers = np.repeat(np.arange(n) * rows, np.diff(starts).clip(0)) + columns[: starts[-1]]
        is_valid = starts[0] == 0 and starts[-1] == len(columns) == len(numbers)
        if not (is_valid and (np.diff(starts) >= 0).all() and (np.diff(numbers) > 0).all()):
            raise ArgumentError("crow_indices and col_indices are not those of a CSR matrix")
        if len(columns) and not 0 <= columns.min() <= columns.max() < rows:
            raise ArgumentError(f"col_indices must be from 0 to {rows - 1}")
        super().__init__(LayerInfo((rows, n), len(numbers), 1.0, np.dtype(str(dtype)[6:])), numbers)
        order = self.order()
        self.taken = None if order is None else torch.from_numpy(order)
        self.inverse = None if self.taken is None else self.taken.argsort()
        self.plans: dict[Any, _Plan] = {}


_edges: Any = private.TensorMap()


def _edges_of(crow: torch.Tensor, col: torch.Tensor, rows: int, dtype: torch.dtype) -> _Edges:
    """Return the pattern of index tensors, derived again after a change in place."""
    key, found = (crow._version, col._version, rows, dtype), _edges.get(col)
    if found is None or found[0] is not crow or found[1] != key:
        found = _edges[col] = crow, key, _Edges(crow, col, rows, dtype)
    return found[2]


class _Plan:
    """Patterns and records of a batch; each call copies the records and adds addresses."""

    def __init__(self, layers: list[_Edges], relu: Sequence[bool], batch: int, threads: int):
        dtype = layers[0].info.dtype
        lanes, lines = 64 // dtype.itemsize, -(-batch * dtype.itemsize // 64)
        sizes = [layers[0].nrows, *(layer.ncols for layer in layers)]
        self.layers, self.sizes, self.relu = layers, sizes, [*relu]
        self.stride, self.shares = (min(lines, SHARE_LINES) | 1) * lanes, -(-lines // SHARE_LINES)
        self.threads, self._steps = threads, required(dtype.name)["steps"]
        limits = np.array([[-np.inf, np.inf], [0, np.inf]], dtype)
        records = [
            [x.forward_record() for x in layers],
            [x.backward_record(limits) for x in layers],
        ]
        records.append([x.edge_record(x.cuts(threads)) for x in layers])
        joined = [Record.joined(each) for each in records]
        low = word(limits) + np.array(relu, np.int64) * limits.strides[0]
        joined[0].array["limits"], joined[1].array["limits"][1:] = low, low[:-1]
        joined[1].array["masked"] = [0, *relu[:-1]]
        joined[0].array["bias_step"] = 0
        joined.append(Record(
            "steps", layers=len(layers), batch=batch, count=batch, share_lines=SHARE_LINES,
            stride=self.stride, threads=threads, indices=np.arange(batch),
            constants=np.zeros(5, dtype), limits=limits,
        ))  # fmt: skip
        self._kept = joined  # and the arrays that they refer to
        self.forward, self.backward, self.edges, (self._job,) = map(_words, joined)
        # Places of blocks in buffers: of the inputs of layers, of the last outputs, of all.
        self.inputs, self.last, self.all = map(self._offsets, (sizes[:-1], sizes[-1:], sizes))

    def _offsets(self, sizes: list[int]) -> np.ndarray:
        """Return the offsets of blocks in bytes: for each share, one for each size."""
        shares = np.arange(self.shares)[:, np.newaxis] * sum(sizes)
        itemsize = self.layers[0].info.dtype.itemsize
        return (shares + np.cumsum([0, *sizes[:-1]])) * self.stride * itemsize

    def run(self, passes: int, rows: torch.Tensor, out: torch.Tensor, **arrays: np.ndarray) -> None:
        """Run passes that read and write rows."""
        job, state = self._job.copy(), np.zeros(17, np.int64)
        known = {"X": rows.data_ptr(), "row_stride": rows.stride(0), "passes": passes}
        known |= {"column_stride": rows.stride(1), "out": out.data_ptr(), "out_stride": out.size(1)}
        known |= {"barrier": state, "stopped": state[16:], **arrays}
        job[[_AT[name] for name in known]] = [*map(word, known.values())]
        on_threads(
            self.threads, lambda thread: self._steps(job, thread), stop=lambda: None,
            all_needed=self.threads > 1,
        )  # fmt: skip


def _words(record: Record) -> np.ndarray:
    """Return structures as rows of 64-bit words, which NumPy copies faster."""
    return record.array.view(np.int64).reshape(len(record.array), -1)


_AT, _LAYER, _EDGES = (
    {name: at for at, name in enumerate(MEMBERS[kind].names or ())}
    for kind in ("steps", "layer", "edges")
)


def _planned(
    x: torch.Tensor, rows: int, crow: Tensors, col: Tensors, relu: Sequence[bool]
) -> _Plan:
    """Return the plan of the inputs `x`."""
    sizes = [rows, *(len(each) - 1 for each in crow)]
    layers = [_edges_of(r, c, n, x.dtype) for r, c, n in zip(crow, col, sizes, strict=False)]
    work = len(x) * sum(layer.nedges for layer in layers)
    threads = min(torch.get_num_threads(), 1 + work // _WORK)
    plans, key = layers[0].plans, (*map(id, layers), *relu, len(x), threads)
    if (plan := plans.get(key)) is None:
        if len(plans) > 8:  # batch sizes
            plans.clear()
        plan = plans[key] = _Plan(layers, relu, len(x), threads)
    return plan


def _addresses(tensors: Sequence[torch.Tensor]) -> list[int]:
    return [x.data_ptr() for x in tensors]


def _ordered(layers: list[_Edges], values: Tensors) -> list[torch.Tensor]:
    """Return values in the order of computation, contiguous."""
    pairs = [*zip(layers, values, strict=True)]
    for e, v in pairs:
        if v.shape != (e.nedges,):
            raise ShapeError(f"values have shape {(*v.shape,)}, but there are {e.nedges} edges")
    return [v.contiguous() if e.taken is None else v.index_select(0, e.taken) for e, v in pairs]


def _forward(
    x: torch.Tensor, values: Tensors, biases: Optionals, crow: Tensors, col: Tensors,
    relu: Sequence[bool],
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Return the outputs, and the blocks of the inputs of all layers."""
    plan = _planned(x, x.shape[1], crow, col, relu)
    out, sizes = x.new_empty(len(x), plan.sizes[-1]), plan.sizes
    memory = x.new_empty(plan.shares, sum(sizes[:-1]), plan.stride)
    last = x.new_empty(plan.shares, sizes[-1], plan.stride)
    if not x.numel() and len(x):  # no features
        x = x.new_zeros(len(x), 1)
    weights, none = _ordered(plan.layers, values), x.new_zeros(1)
    biases = [none if b is None else b.contiguous() for b in biases]
    records = plan.forward.copy()
    records[:, _LAYER["weights"]], records[:, _LAYER["bias"]] = map(_addresses, (weights, biases))
    records[:, _LAYER["bias_step"]] = [b is not none for b in biases]
    Y = np.hstack([memory.data_ptr() + plan.inputs, last.data_ptr() + plan.last])
    if len(x):
        plan.run(_FORWARD, x, out, forward=records, edges=plan.edges, Y_blocks=Y, D_blocks=Y)
    return out, memory


def _backward(
    d: torch.Tensor, memory: torch.Tensor, values: Tensors, crow: Tensors, col: Tensors,
    relu: Sequence[bool], rows: int, needs_dx: bool,
) -> tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:  # fmt: skip
    """Return the gradients of the inputs, if needed, and of values and biases."""
    plan = _planned(d, rows, crow, col, relu)
    sizes, weights = plan.sizes, _ordered(plan.layers, values)
    scratch = d.new_empty(plan.shares, sum(sizes), plan.stride)
    dx = d.new_empty(len(d), rows if needs_dx else 0)
    make = torch.empty_like if len(d) else torch.zeros_like
    dw, transposed = [make(w) for w in weights], [torch.empty_like(w) for w in weights]
    db = [make(d.new_empty(n)) for n in sizes[1:]]
    back, edges = plan.backward.copy(), plan.edges.copy()
    back[:, _LAYER["weights"]] = edges[:, _EDGES["transposed"]] = _addresses(transposed)
    edges[:, _EDGES["weights"]], edges[:, _EDGES["gradient"]] = map(_addresses, (weights, dw))
    edges[:, _EDGES["bias_gradient"]] = _addresses(db)
    passes = _BACKWARD | (CONSTANTS["INPUT_GRADIENT"] if needs_dx else 0)
    if len(d):
        D = scratch.data_ptr() + plan.all
        # Y has rows of the same length, whose last block is not read.
        Y = np.hstack([memory.data_ptr() + plan.inputs, D[:, -1:]])
        plan.run(passes, d, dx, backward=back, edges=edges, Y_blocks=Y, D_blocks=D)
    pairs = zip(plan.layers, dw, strict=True)
    dw = [g if e.inverse is None else g.index_select(0, e.inverse) for e, g in pairs]
    return dx, dw, db


# Compiled graphs call them as operators.
_LISTS = "Tensor[] crow, Tensor[] col, bool[] relu"
_operator = torch.library.custom_op(
    "gbdnn::layers", _forward, mutates_args=(),
    schema=f"(Tensor x, Tensor[] values, Tensor?[] biases, {_LISTS}) -> (Tensor, Tensor)",
)  # fmt: skip
_back_operator = torch.library.custom_op(
    "gbdnn::layers_backward", _backward, mutates_args=(),
    schema=f"(Tensor d, Tensor memory, Tensor[] values, {_LISTS}, int rows, bool needs_dx)"
    " -> (Tensor, Tensor[], Tensor[])",
)  # fmt: skip


@_operator.register_fake
def _(x, values, biases, crow, col, relu):  # type: ignore[no-untyped-def]
    lanes = 64 // x.dtype.itemsize
    lines = (x.shape[0] + lanes - 1) // lanes
    stride = (torch.sym_min(lines, SHARE_LINES) // 2 * 2 + 1) * lanes
    neurons = x.shape[1] + sum(len(each) - 1 for each in crow[:-1])
    memory = x.new_empty((lines + SHARE_LINES - 1) // SHARE_LINES, neurons, stride)
    return x.new_empty(x.shape[0], len(crow[-1]) - 1), memory


@_back_operator.register_fake
def _(d, memory, values, crow, col, relu, rows, needs_dx):  # type: ignore[no-untyped-def]
    db = [d.new_empty(len(each) - 1) for each in crow]
    return d.new_empty(d.shape[0], rows if needs_dx else 0), [*map(torch.empty_like, values)], db


class _Function(torch.autograd.Function):
    """Layers as one operation of autograd; `tensors` are values, biases, crow and col."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, relu: list[bool], *tensors: Any) -> torch.Tensor:
        n = len(relu)
        values, biases, *indices = ([*tensors[k * n : (k + 1) * n]] for k in range(4))
        compute = _operator if torch.compiler.is_compiling() else _forward
        out, memory = compute(x, values, biases, *indices, relu)
        ctx.relu, ctx.rows, ctx.biases = relu, x.shape[1], [b is not None for b in biases]
        ctx.indices = indices  # whose patterns are found by identity
        ctx.save_for_backward(memory, *values, *[out] * relu[-1])
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d: torch.Tensor) -> Any:
        n, needs_dx, (memory, *rest) = len(ctx.relu), ctx.needs_input_grad[0], ctx.saved_tensors
        d = torch.ops.aten.threshold_backward(d, rest[-1], 0) if ctx.relu[-1] else d.resolve_neg()
        compute = _back_operator if torch.compiler.is_compiling() else _backward
        dx, dw, db = compute(d, memory, rest[:n], *ctx.indices, ctx.relu, ctx.rows, needs_dx)
        db = [g if is_there else None for g, is_there in zip(db, ctx.biases, strict=True)]
        return dx if needs_dx else None, None, *dw, *db, *[None] * (2 * n)


def computed(x: torch.Tensor, layers: Sequence[Any], relu: list[bool]) -> torch.Tensor:
    """Return the activations of consecutive SparseLinear modules, with ReLU where `relu` says."""
    values = [f.values for f in layers]
    parameters = [*values, *(f.bias for f in layers)]
    tensors = [*parameters, *(f.crow_indices for f in layers), *(f.col_indices for f in layers)]
    dtype, wanted = values[0].dtype, layers[0].in_features
    if not torch.compiler.is_compiling() and private.records():
        raise ArgumentError(
            "SparseLinear supports neither torch.func nor torch.jit.trace nor modes that intercept"
            " operations; use to_dense() for them"
        )
    for y in (x, *tensors):
        if y is not None and not (y.is_cpu and y.layout == torch.strided):
            raise ArgumentError(
                "SparseLinear computes with strided tensors on the CPU, not with"
                f" {y.layout} on {y.device}"
            )
    if dtype not in (torch.float32, torch.float64):
        raise ArgumentError(f"SparseLinear computes in float32 and float64, not in {dtype}")
    if x.ndim < 1 or x.shape[-1] != wanted:
        raise ShapeError(f"the input has shape {(*x.shape,)}, expected (..., {wanted})")
    flat = x.reshape(x.shape[:-1].numel(), wanted).resolve_neg()
    flat = flat.to(dtype) if torch.is_autocast_enabled("cpu") else flat
    for y in (flat, *parameters):
        if y is not None and y.dtype != dtype:
            raise ArgumentError(f"the input or a parameter has dtype {y.dtype}, expected {dtype}")
    out = _Function.apply(flat, relu, *tensors)
    return out.view(*x.shape[:-1], layers[-1].out_features)
