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

import ctypes
import math
import weakref
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gbdnn.errors import ArgumentError, ArgumentTypeError, ShapeError
from gbdnn.kernels.compiled.loading import required
from gbdnn.kernels.compiled.record import CONSTANTS, MEMBERS, Record, word
from gbdnn.kernels.steps import SHARE_LINES
from gbdnn.kernels.together import together
from gbdnn.kernels.trainable import Pattern
from gbdnn.model.layer_info import LayerInfo
from gbdnn.torch import private

if TYPE_CHECKING:
    from collections.abc import Sequence

    Tensors = Sequence[torch.Tensor]
    Optionals = Sequence[torch.Tensor | None]

__all__ = ["computed", "edges_of"]

_FORWARD = CONSTANTS["FORWARD"] | CONSTANTS["OUTPUT"]
_BACKWARD = CONSTANTS["REFRESH"] | CONSTANTS["OUTPUT_GRADIENT"] | CONSTANTS["BACKWARD"]
_WORK = 1 << 20  # multiply-adds for which a further thread pays
_PANELS = 256  # inputs for which panels pay the copies of weights and gradients in their order


class _Edges(Pattern):
    """The edges of a layer, and the plans of calls that begin with it."""

    def __init__(
        self, crow: torch.Tensor, col: torch.Tensor, rows: int, dtype: torch.dtype,
        uses: list[Any], in_panels: bool,
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
        order = self.order()
        self.taken = None if order is None else torch.from_numpy(order)
        self.inverse = None if self.taken is None else self.taken.argsort()
        # The arrays of the kernels are copies of the indices, unless their order is another one.
        if order is None and (crow.dtype, col.dtype) == (torch.int64, torch.int32):
            arrays = self.indptr, self.rows.view(np.int32)
            self._indices = [*map(torch.from_numpy, arrays)]
        else:
            self._indices = [crow.clone(), col.clone()]
        self.plans: dict[Any, _Plan] = {}
        self.spare: list[torch.Tensor] = []  # a buffer for the next call
        self.memories: list[Any] = []  # that of the last graph, and what refers to its use
        # The places in backward passes since the last call, each with a plan and its buffers, which
        # its layers share, or without them when the buffers were used again.
        self.uses = uses

    def has_indices(self, *indices: torch.Tensor) -> bool:
        """Whether these are the edges of `crow` and `col`."""
        return all(map(_equal, self._indices, indices))

    def dense_gradient(self) -> np.ndarray | None:
        """Return the gradient of all possible weights since the last call, if it is known."""
        if not (self.uses and all(held for _, held in self.uses)):
            return None
        return sum(plan.dense_gradient(k, *held) for k, (plan, *held) in self.uses).numpy()


_known: Any = private.TensorMap()  # by `col_indices`: form, edges with and without panels, uses


def edges_of(
    crow: torch.Tensor, col: torch.Tensor, rows: int, dtype: torch.dtype,
    in_panels: bool | None = None,
) -> _Edges:  # fmt: skip
    """Return the pattern of index tensors, derived again after any change."""
    found, form = _known.get(col), (rows, dtype)
    known = found[1] if found and found[0] == form else {}
    first = next(iter(known.values()), None)  # all are of the same indices
    if first is None or not first.has_indices(crow, col):
        found = _known[col] = form, {}, []
    _, known, uses = found
    in_panels = next(iter(known), False) if in_panels is None else in_panels
    if in_panels not in known:
        known[in_panels] = _Edges(crow, col, rows, dtype, uses, in_panels)
    return known[in_panels]


def _equal(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether two tensors are equal; six times as fast as ``torch.equal``."""
    y = y.contiguous()
    is_alike = x.shape == y.shape and x.dtype is y.dtype
    return is_alike and not _memcmp(x.data_ptr(), y.data_ptr(), x.nbytes)


_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t


class _Call:
    """The structures of a pass as words of one array, which each call copies and completes.

    A word is a number, or an offset in bytes from this array, from the memory that a forward pass
    keeps, or from a buffer.
    """

    def __init__(self, kind: str, records: list[Record], Y: np.ndarray, D: np.ndarray) -> None:
        parts = [each.array.view(np.int64) for each in records]
        parts += [Y.ravel(), D.ravel(), np.zeros(17, np.int64)]
        starts = np.cumsum([0, *map(len, parts)])
        self._words, self._kept, count = np.concatenate(parts), records, len(records[1].array)
        self._origins = np.zeros(len(self._words), np.intp)
        inner = [_AT["steps"][name] for name in (kind, "edges", "Y_blocks", "D_blocks", "barrier")]
        self._words[inner] = starts[1:-1] * 8
        self._words[_AT["steps"]["stopped"]] = (starts[-1] - 1) * 8
        self._origins[[*inner, _AT["steps"]["stopped"]]] = 1
        self._origins[starts[3] : starts[4]].reshape(Y.shape)[:] = [*[2] * count, 3]
        self._origins[starts[4] : starts[5]] = 3
        given, moved = (
            [
                int(starts[1 if of == "layer" else 2]) + k * len(_AT[of]) + _AT[of][name]
                for of, name in names[kind]
                for k in range(count)
            ]
            for names in (_GIVEN, _MOVED)
        )
        self._origins[moved] = 3
        self._given = [_AT["steps"][name] for name in _ROWS] + given

    def run(
        self, compiled: Any, threads: int, passes: int, rows: torch.Tensor, out: torch.Tensor,
        memory: torch.Tensor, buffer: torch.Tensor, given: list[int],
    ) -> None:  # fmt: skip
        """Run passes that read and write rows."""
        words = self._words.copy()
        at = word(words)
        words += np.array([0, at, memory.data_ptr(), buffer.data_ptr()])[self._origins]
        ends = out.data_ptr(), out.shape[1]
        words[self._given] = [passes, rows.data_ptr(), *rows.stride(), *ends, *given]
        together(threads, compiled["steps"], at, all_needed=True)


class _Plan:
    """Records of a batch, which each call copies and completes by addresses."""

    def __init__(self, layers: list[_Edges], relu: list[bool], batch: int, threads: int) -> None:
        dtype = layers[0].info.dtype
        lanes, lines = 64 // dtype.itemsize, -(-batch * dtype.itemsize // 64)
        self.sizes = sizes = [layers[0].nrows, *(e.ncols for e in layers)]
        self.batch, self.orders = batch, [(e.nedges, e.taken, e.inverse) for e in layers]
        self.stride, self.shares = (min(lines, SHARE_LINES) | 1) * lanes, -(-lines // SHARE_LINES)
        self.threads, self._compiled = threads, required(dtype)
        limits = np.array([[-np.inf, np.nan], [0, np.nan]], dtype)  # infinity has a gradient
        low = word(limits) + np.array(relu, np.int64) * limits.strides[0]
        forward = Record.joined([e.forward_record() for e in layers])
        backward = Record.joined([e.backward_record(limits) for e in layers])
        edges = Record.joined([e.edge_record(e.cuts(threads)) for e in layers])
        zeros = np.zeros(5, dtype)
        self._none = word(zeros)  # the address of a bias that is not there
        job = Record(
            "steps", layers=len(layers), batch=batch, count=batch, share_lines=SHARE_LINES,
            stride=self.stride, threads=threads, indices=np.arange(batch), constants=zeros,
            limits=limits,
        )  # fmt: skip
        forward.array["limits"], backward.array["limits"][1:] = low, low[:-1]
        backward.array["masked"] = [0, *relu[:-1]]
        # The blocks of a share follow each other: those of the inputs of layers in the memory, the
        # last outputs, and in backward passes all. Then a buffer has W^T, and weights and gradients
        # in their order.
        row, places = self.stride * dtype.itemsize, np.arange(self.shares)[:, np.newaxis]
        ends = np.cumsum([0, *sizes])
        inputs, last = (places * ends[-2] + ends[:-2]) * row, places * sizes[-1] * row
        every = (places * ends[-1] + ends[:-1]) * row
        self._memories = layers[0].memories
        self._spare, self._edge_ends = layers[0].spare, np.cumsum([0, *(e.nedges for e in layers)])
        self._nedges = int(self._edge_ends[-1])
        self.blocks = int(self.shares * ends[-1] * self.stride)
        transposed = (self.blocks + self._edge_ends[:-1]) * dtype.itemsize
        backward.array["weights"] = edges.array["transposed"] = transposed
        self._moved = any(e.taken is not None for e in layers)
        self._forward = _Call("forward", [job, forward, edges], np.hstack([inputs, last]), last[:0])
        Y = np.hstack([inputs, every[:, -1:]])  # the last block is not read
        self._backward = _Call("backward", [job, backward, edges], Y, every)

    def _buffer(self, x: torch.Tensor, size: int) -> torch.Tensor:
        """Return the buffer of an earlier call, or a new one."""
        with suppress(IndexError):  # none, or another thread took it
            if len(found := self._spare.pop()) >= size:
                return found
        with torch.inference_mode(False):  # calls in other modes write to it
            return torch.empty(size, dtype=x.dtype)

    def _memory(self, x: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
        """Return the memory of an earlier call if its graph is gone, or a new one.

        If it were freed after each step, the system would often map it anew.
        """
        size = math.prod(shape)
        found = None
        with suppress(IndexError):  # none, or another thread took it
            memory, user = self._memories.pop()
            found = memory if user() is None and len(memory) >= size else None
        found = torch.empty(size, dtype=x.dtype) if found is None else found
        array = found[:size].numpy()
        self._memories[:] = [(found, weakref.ref(array))]
        return torch.from_numpy(array).view(shape)

    def dense_gradient(self, k: int, Y: torch.Tensor, scratch: torch.Tensor) -> torch.Tensor:
        """Return the gradient of all possible weights of layer k from the buffers of a pass."""
        starts, inputs = np.cumsum([0, *self.sizes]), np.arange(self.batch)
        share = SHARE_LINES * 64 // scratch.itemsize
        places = torch.from_numpy(inputs // share * self.stride + inputs % share)
        D = scratch[: self.blocks].view(self.shares, starts[-1], self.stride)
        Y, D = (
            x[:, starts[at] : starts[at + 1]].movedim(1, 0).flatten(1).index_select(1, places)
            for x, at in ((Y, k), (D, k + 1))
        )
        return D @ Y.T

    def _parts(self, buffer: torch.Tensor, at: int) -> list[torch.Tensor]:
        """Return a part for the edges of each layer."""
        return [buffer[at + i : at + j] for i, j in pairwise(self._edge_ends.tolist())]

    def _ordered(self, values: Tensors, buffer: torch.Tensor, at: int) -> list[torch.Tensor]:
        """Return values in the order of computation, contiguous."""
        if not self._moved:
            return [v.contiguous() for v in values]
        return [
            v.contiguous() if x is None else torch.index_select(v.detach(), 0, x, out=part)
            for (_, x, _), v, part in zip(self.orders, values, self._parts(buffer, at), strict=True)
        ]

    def forward(
        self, x: torch.Tensor, values: Tensors, biases: Optionals, has_graph: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the outputs, and the blocks of the inputs of all layers."""
        sizes, shares, stride = self.sizes, self.shares, self.stride
        for (n, *_), m, v, b in zip(self.orders, sizes[1:], values, biases, strict=True):
            if v.shape != (n,):
                raise ShapeError(f"values have shape {(*v.shape,)}, but there are {n} edges")
            if b is not None and b.shape != (m,):
                raise ShapeError(f"the bias has shape {(*b.shape,)}, but there are {m} outputs")
        out, last = x.new_empty(self.batch, sizes[-1]), x.new_empty(shares, sizes[-1], stride)
        shape = shares, sum(sizes[:-1]), stride
        memory = self._memory(x, shape) if has_graph else x.new_empty(shape)
        if not sizes[0]:  # no features
            x = x.new_zeros(self.batch, 1)
        buffer = self._buffer(x, self._nedges) if self._moved else x
        weights = self._ordered(values, buffer, 0)
        bias = [b if b is None else b.contiguous() for b in biases]
        given = _addresses(weights) + [self._none if b is None else b.data_ptr() for b in bias]
        given += [b is not None for b in bias]
        if self.batch:
            self._forward.run(self._compiled, self.threads, _FORWARD, x, out, memory, last, given)
        if self._moved:
            self._spare[:] = [buffer]
        return out, memory

    def backward(
        self, d: torch.Tensor, memory: torch.Tensor, values: Tensors, needs_dx: bool
    ) -> tuple[Any, ...]:
        """Return the gradients of inputs, if needed, of values and biases, and the blocks."""
        n, start = self._nedges, self.blocks
        scratch = self._buffer(d, start + n * (3 if self._moved else 1))
        weights = self._ordered(values, scratch, start + n)
        dx = d.new_empty(self.batch, self.sizes[0] if needs_dx else 0)
        make = d.new_empty if self.batch else d.new_zeros
        dw, db = [make(n) for n, *_ in self.orders], [make(n) for n in self.sizes[1:]]
        found = dw
        if self._moved:
            pairs = zip(self.orders, dw, self._parts(scratch, start + 2 * n), strict=True)
            found = [g if x is None else part for (_, x, _), g, part in pairs]
        if self.batch:
            passes = _BACKWARD | (CONSTANTS["INPUT_GRADIENT"] if needs_dx else 0)
            given = _addresses([*weights, *found, *db])
            self._backward.run(self._compiled, self.threads, passes, d, dx, memory, scratch, given)
        if self.batch and self._moved:
            for (_, _, x), g, part in zip(self.orders, dw, found, strict=True):
                if x is not None:
                    torch.index_select(part, 0, x, out=g)
        self._spare[:] = [scratch]
        return dx, dw, db, scratch


_AT = {
    kind: {name: at for at, name in enumerate(MEMBERS[kind].names or ())}
    for kind in ("steps", "layer", "edges")
}
# What each call assigns in the job, and in its layers and edges; and what is in the buffer.
_ROWS = "passes", "X", "row_stride", "column_stride", "out", "out_stride"
_GIVEN = {
    "forward": [("layer", "weights"), ("layer", "bias"), ("layer", "bias_step")],
    "backward": [("edges", "weights"), ("edges", "gradient"), ("edges", "bias_gradient")],
}
_MOVED = {"forward": [], "backward": [("layer", "weights"), ("edges", "transposed")]}


def _forget(layers: list[_Edges]) -> None:
    """Forget the backward passes of layers, as their buffers are used again."""
    for edges in layers:
        for _, held in edges.uses:
            held.clear()
        edges.uses.clear()


def _keep_others(layers: list[_Edges], memory: torch.Tensor) -> None:
    """Forget the earlier backward pass of a graph; keep the buffers of other graphs."""
    at = memory.data_ptr()
    for edges in layers:
        lost = [use for use in edges.uses if not use[1]]
        edges.uses[:] = lost[:1] + [x for x in edges.uses if x[1] and x[1][1].data_ptr() != at]
    if any(held for edges in layers for _, held in edges.uses):
        layers[0].spare.clear()


def _addresses(tensors: Tensors) -> list[int]:
    return [x.data_ptr() for x in tensors]


def _planned(
    x: torch.Tensor, rows: int, crow: Tensors, col: Tensors, relu: list[bool]
) -> tuple[list[_Edges], _Plan]:
    """Return the patterns of layers and the plan of the inputs `x`."""
    sizes = [rows, *(each.shape[0] - 1 for each in crow)]
    lists, in_panels = zip(crow, col, sizes, strict=False), len(x) >= _PANELS
    layers = [edges_of(r, c, n, x.dtype, in_panels) for r, c, n in lists]
    _forget(layers)
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
    stride = (torch.sym_min(lines, SHARE_LINES) // 2 * 2 + 1) * lanes
    neurons = x.shape[1] + sum(len(each) - 1 for each in crow[:-1])
    memory = x.new_empty((lines + SHARE_LINES - 1) // SHARE_LINES, neurons, stride)
    return x.new_empty(x.shape[0], len(crow[-1]) - 1), memory


@torch.library.custom_op(
    "gbdnn::layers_backward", mutates_args=(),
    schema=f"(Tensor d, Tensor memory, Tensor[] values, {_LISTS}, int rows, bool needs_dx)"
    " -> (Tensor, Tensor[], Tensor[])",
)  # fmt: skip
def _back_operator(d, memory, values, crow, col, relu, rows, needs_dx):  # type: ignore[no-untyped-def]
    return _planned(d, rows, crow, col, relu)[1].backward(d, memory, values, needs_dx)[:3]


@_back_operator.register_fake
def _(d, memory, values, crow, col, relu, rows, needs_dx):  # type: ignore[no-untyped-def]
    db = [d.new_empty(len(each) - 1) for each in crow]
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
            out, memory = _operator(x, values, biases, *lists)
        else:
            ctx.layers, ctx.plan = _planned(x, x.shape[1], *lists)
            has_graph = has_graph and any(ctx.needs_input_grad)
            out, memory = ctx.plan.forward(x, values, biases, has_graph)
        ctx.lists, ctx.rows, ctx.biases = lists, x.shape[1], [b is not None for b in biases]
        ctx.save_for_backward(memory, *values, *[out] * last)
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
        n, needs_dx, (memory, *rest) = len(ctx.biases), ctx.needs_input_grad[0], ctx.saved_tensors
        is_relu = len(rest) > n
        d = torch.ops.aten.threshold_backward(d, rest[-1], 0) if is_relu else d.resolve_neg()
        if is_eager:
            d = d if d.data_ptr() or not d.numel() else d.clone()  # zeros without memory
            _keep_others(ctx.layers, memory)
            dx, dw, db, scratch = ctx.plan.backward(d, memory, rest[:n], needs_dx)
            held = [ctx.plan, memory, scratch]
            for k, edges in enumerate(ctx.layers):
                edges.uses.append((k, held))
        else:
            dx, dw, db = _back_operator(d, memory, rest[:n], *ctx.lists, ctx.rows, needs_dx)
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
