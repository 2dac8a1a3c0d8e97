"""Training steps: forward and backward pass of a minibatch, gradients, and weight updates.

All threads of a run call ``steps`` concurrently. A step has the following phases, with a barrier
after each:

    by inputs   Z = Y W + b;  Y' = min(max(Z, 0), clip)          each thread some lines of inputs,
                D = D' W^T where 0 < Y < clip                     forward and backward
    by edges    dW<W.S> = Y^T D,  db = sum of D                   each thread some columns of each W
    by edges    W -= update of the optimizer
    by edges    W^T = W, edge by edge in the order of W^T

Each input has its own lane, and the thread that owns an edge adds the inputs in order, so results
do not depend on the number of threads. If a loss or gradient is not finite or too large, all
threads stop before the update and leave the weights of the previous step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit, types

from gbdnn.kernels.compiled import record as at
from gbdnn.kernels.compiled.barrier import barrier, read, write
from gbdnn.kernels.compiled.dense_rows import make_from_dense
from gbdnn.kernels.compiled.dots import make_four, make_row_sum, make_some, make_twelve
from gbdnn.kernels.compiled.layer import make_layer
from gbdnn.kernels.compiled.tiles import Strip
from gbdnn.kernels.compiled.vectors import (
    COMPILED,
    INLINED,
    Record,
    address_of,
    bits_of,
    offset,
    pointer_to,
    record_at,
    row,
)

if TYPE_CHECKING:
    from gbdnn.kernels.compiled.vectors import Kinds

__all__ = ["make_steps"]


def make_steps(kind: Kinds, pair_lines: int):
    """Return ``steps(address, thread)`` for one dtype.

    `address` is that of a record `STEPS`; the result is the number of steps done.
    """
    real, lanes, int64 = kind.real, kind.lanes, types.int64
    job_record, layer_record = Record(at.STEPS, kind), Record(at.LAYER, kind)
    edge_record, bits = Record(at.EDGES, kind), kind.bits
    layer_pass = make_layer(kind, pair_lines)
    block, from_dense = _make_block(kind), njit(**COMPILED)(make_from_dense(kind, pair_lines))
    loss_and_gradient = _make_loss(kind)
    gradient, update = _make_gradient(kind, pair_lines), _make_update(kind)
    add_squares, norm = _make_norm(kind)

    @njit(**COMPILED)
    def by_inputs(job, step, inputs, thread):
        """Compute the forward and backward pass for this thread's part of a minibatch."""
        layers, share_lines, stride = job.layers, job.share_lines, job.stride
        lines, neurons = -(-inputs // lanes), record_at(job.edges, edge_record, 0).nrows
        line = lines * thread // job.threads
        last = lines * (thread + 1) // job.threads
        none = pointer_to(0, bits)
        while line < last:
            share = line // share_lines
            start = line - share * share_lines
            some = min(last - line, share_lines - start)
            count = min(inputs - line * lanes, some * lanes)
            skip = start * lanes
            first = step * job.batch + line * lanes
            if job.passes & at.FORWARD:
                from_dense(
                    job.X, job.row_stride, job.column_stride,
                    address_of(offset(job.indices, first)), count, 0,
                    block(job, job.Y_blocks, share, 0, skip), stride, neurons,
                )  # fmt: skip
            for k in range(layers if job.passes & at.FORWARD else 0):
                record = record_at(job.forward, layer_record, k)
                y = block(job, job.Y_blocks, share, k, skip)
                z = block(job, job.Y_blocks, share, k + 1, skip)
                layer_pass(record, Strip(y, z, stride, none, none, z), count)
            if job.passes & at.LOSS_GRADIENT:
                z = block(job, job.Y_blocks, share, layers, skip)
                loss_and_gradient(job, first, count, inputs, z)
            for k in range(layers - 1 if job.passes & at.BACKWARD else 0, 0, -1):
                record = record_at(job.backward, layer_record, k)
                y = block(job, job.Y_blocks, share, k, skip)
                d = block(job, job.D_blocks, share, k + 1, skip)
                below = block(job, job.D_blocks, share, k, skip)
                layer_pass(record, Strip(d, below, stride, none, none, y), count)
            line += some

    def steps(address, thread):
        job = record_at(address, job_record, 0)
        threads, stopped, most = job.threads, job.stopped, job.constants[4]
        done = int64(0)
        while done * job.batch < job.count:
            inputs = min(job.batch, job.count - done * job.batch)
            by_inputs(job, done, inputs, thread)
            if not job.passes & at.BACKWARD:
                break
            barrier(job.barrier, threads)
            for k in range(job.layers):
                layer = record_at(job.edges, edge_record, k)
                if not gradient(job, layer, k, thread, -(-inputs // lanes)):
                    write(stopped, int64(1))
                if most > 0:
                    add_squares(layer, thread)
            barrier(job.barrier, threads)
            if read(stopped) or not job.passes & at.UPDATE:
                break
            total = norm(job) if most > 0 else 0.0
            factor = real(most / total) if total > most else real(1)
            for k in range(job.layers):
                layer = record_at(job.edges, edge_record, k)
                update(job, layer, thread, offset(job.rates, 3 * done), factor)
            barrier(job.barrier, threads)
            for k in range(1, job.layers):
                _refresh(record_at(job.edges, edge_record, k), thread, threads)
            barrier(job.barrier, threads)
            done += 1
        return done

    return steps


def _make_block(kind: Kinds):
    """Return a function that returns a share's block of activations or gradients."""
    real = kind.real

    @njit(**COMPILED)
    def block(job, blocks, share, layer, skip):
        """Return a pointer to input `skip` of the block before `layer`."""
        return offset(pointer_to(blocks[share * (job.layers + 1) + layer], real), skip)

    return block


def _make_loss(kind: Kinds):
    """Return a function that computes losses and replaces the outputs by their gradient."""
    real, lanes, int64 = kind.real, kind.lanes, types.int64
    edge_record, least = Record(at.EDGES, kind), _least(kind)

    @njit(**COMPILED)
    def cross_entropy(Z, stride, classes, label, scale, low, high):
        """Return loss and correctness of one input; Z becomes (softmax(Z) - onehot) * scale."""
        highest, best = Z[0], 0
        for c in range(1, classes):
            if Z[c * stride] > highest:
                highest, best = Z[c * stride], c
        total = 0.0
        for c in range(classes):
            total += np.exp(Z[c * stride] - highest)
        loss = np.log(total) - types.float64(Z[label * stride] - highest)
        r = real(1 / total)
        for c in range(classes):
            z = Z[c * stride]
            d = np.exp(z - highest) * r
            if c == label:
                d -= real(1)
            d *= scale
            Z[c * stride] = d if abs(d) > least and low < z < high else real(0)
        return loss, best == label

    @njit(**COMPILED)
    def squared_error(Z, stride, outputs, target, scale, low, high):
        """Return the mean squared error of one input; Z becomes its gradient."""
        total = 0.0
        for c in range(outputs):
            z = Z[c * stride]
            d = z - target[c]
            total += types.float64(d) * types.float64(d)
            d *= real(2) * scale / real(outputs)
            Z[c * stride] = d if abs(d) > least and low < z < high else real(0)
        return total / outputs

    @njit(**COMPILED)
    def loss_and_gradient(job, first, count, inputs, Z):
        """Compute `count` of the `inputs` of a minibatch, from `first` of the call on."""
        stride, outputs = job.stride, record_at(job.edges, edge_record, job.layers - 1).ncols
        losses, indices = offset(job.losses, first), offset(job.indices, first)
        low, high = job.limits[0], job.limits[1]
        for q in range(count):
            z, place = offset(Z, q), indices[q]
            scale = real(1) / real(inputs) * job.sample_weights[place]
            if job.loss == at.CROSS_ENTROPY:
                label = pointer_to(job.targets, int64)[place]
                losses[q], hit = cross_entropy(z, stride, outputs, label, scale, low, high)
                job.hits[first + q] = hit
            else:
                target = offset(pointer_to(job.targets, real), place * outputs)
                losses[q] = squared_error(z, stride, outputs, target, scale, low, high)
            if not abs(losses[q]) < np.inf:
                write(job.stopped, int64(1))
        for c in range(outputs):
            for q in range(count, -(-count // lanes) * lanes):
                Z[c * stride + q] = real(0)

    return loss_and_gradient


def _make_gradient(kind: Kinds, pair_lines: int):
    """Return a function that computes the gradient of some columns of a layer's weights."""
    bits, lanes = kind.bits, kind.lanes
    group = 64  # rows that fit the L1 cache
    # Sums held in registers: of four edges, or of twelve in a dense layer.
    width = lanes if pair_lines == 4 else lanes // 2
    four, dense_four = make_four(kind, lanes), make_four(kind, width)
    two, single = (make_some(kind, lanes, edges) for edges in (2, 1))
    dense_single = make_some(kind, width, 1)
    twelve, row_sum = make_twelve(kind, width), make_row_sum(kind)
    any_but_sign = bits((1 << (31 if lanes == 16 else 63)) - 1)
    block = _make_block(kind)
    # The bits of nonnegative floats sort as their values.
    largest = np.float32(1e30) if lanes == 16 else np.float64(1e290)
    most = int(largest.view(f"u{largest.itemsize}"))

    @njit(**COMPILED)
    def sparse_columns(layer, panel, Y, D, stride, inputs, thread, add):
        indptr = offset(layer.indptr, panel * layer.ncols)
        rows, places, g = layer.rows, layer.places, layer.gradient
        for j in range(layer.cuts[thread], layer.cuts[thread + 1]):
            d, e, end = row(D, places[j], stride), indptr[j], indptr[j + 1]
            while end - e >= 4:
                four(Y, d, stride, inputs, offset(rows, e), offset(g, e), add)
                e += 4
            if end - e >= 2:
                two(Y, d, stride, inputs, offset(rows, e), offset(g, e), add)
                e += 2
            if e < end:
                single(Y, d, stride, inputs, offset(rows, e), offset(g, e), add)

    @njit(**COMPILED)
    def dense_columns(layer, Y, D, stride, inputs, thread, add):
        """Process rows in groups that stay in the L1 cache for all columns."""
        nrows, rows, places, g = layer.nrows, layer.rows, layer.places, layer.gradient
        first, last = layer.cuts[thread], layer.cuts[thread + 1]
        quads, threes = nrows // 4 * 4, first + (last - first) // 3 * 3
        for i0 in range(0, quads, group):
            i1 = min(i0 + group, quads)
            for j in range(first, threes, 3):
                for i in range(i0, i1, 4):
                    y, e = offset(Y, i * stride), j * nrows + i
                    twelve(y, D, stride, inputs, offset(places, j), offset(g, e), nrows, add)
            for j in range(threes, last):
                for i in range(i0, i1, 4):
                    d, e = row(D, places[j], stride), j * nrows + i
                    dense_four(Y, d, stride, inputs, offset(rows, e), offset(g, e), add)
        for j in range(first, last):
            d = row(D, places[j], stride)
            for i in range(quads, nrows):
                e = j * nrows + i
                dense_single(Y, d, stride, inputs, offset(rows, e), offset(g, e), add)

    @njit(**COMPILED)
    def within_reason(values, count):
        found = bits(0)
        for e in range(count):
            found = max(found, values[e] & any_but_sign)
        return found <= bits(most)

    @njit(**COMPILED)
    def gradient(job, layer, k, thread, lines):
        """Compute a thread's columns of layer k; return whether none is too large or NaN."""
        stride, share_lines = job.stride, job.share_lines
        places, gb = layer.places, layer.bias_gradient
        first, last = layer.cuts[thread], layer.cuts[thread + 1]
        for share in range(-(-lines // share_lines)):
            inputs, add = min(lines - share * share_lines, share_lines) * lanes, share > 0
            Y = block(job, job.Y_blocks, share, k, 0)
            D = block(job, job.D_blocks, share, k + 1, 0)
            for j in range(first, last):
                total = row_sum(row(D, places[j], stride), inputs)
                gb[j] = gb[j] + total if add else total
            if layer.dense:
                dense_columns(layer, Y, D, stride, inputs, thread, add)
            else:
                for panel in range(layer.panels):
                    sparse_columns(layer, panel, Y, D, stride, inputs, thread, add)
        found = within_reason(bits_of(offset(gb, first)), last - first)
        for panel in range(layer.panels):
            e, end = _edges(layer, panel, thread)
            found = found and within_reason(bits_of(offset(layer.gradient, e)), end - e)
        return found

    return gradient


@njit(**INLINED)
def _edges(layer, panel, thread):
    """Return the range of edges of a panel that belong to a thread."""
    indptr = offset(layer.indptr, panel * layer.ncols)
    return indptr[layer.cuts[thread]], indptr[layer.cuts[thread + 1]]


def _make_norm(kind: Kinds):
    """Return functions that sum squared gradients by column, and compute their norm.

    Every thread adds the columns in the same order, so results do not depend on their number.
    """
    float64, edge_record = types.float64, Record(at.EDGES, kind)

    @njit(**COMPILED)
    def add_squares(layer, thread):
        indptr, g, gb = layer.indptr, layer.gradient, layer.bias_gradient
        for j in range(layer.cuts[thread], layer.cuts[thread + 1]):
            total = float64(gb[j]) * float64(gb[j])
            for panel in range(layer.panels):
                k = panel * layer.ncols + j
                for e in range(indptr[k], indptr[k + 1]):
                    total += float64(g[e]) * float64(g[e])
            layer.squares[j] = total

    @njit(**COMPILED)
    def norm(job):
        total = 0.0
        for k in range(job.layers):
            layer = record_at(job.edges, edge_record, k)
            for j in range(layer.ncols):
                total += layer.squares[j]
        return np.sqrt(total)

    return add_squares, norm


def _least(kind: Kinds):
    """Return the smallest magnitude that is kept: subnormal numbers are ten times slower."""
    return kind.real(1e-30 if kind.lanes == 16 else 1e-290)


def _make_update(kind: Kinds):
    """Return a function that updates some columns of a layer's weights, and their biases."""
    real, least = kind.real, _least(kind)  # a running mean of zeros would become subnormal

    @njit(**COMPILED)
    def sgd(w, g, v, count, rates, constants, decay, nesterov, factor):
        """With d = factor g + decay w: v = momentum v + d;  w -= lr v, or lr (d + momentum v)."""
        lr, momentum = rates[0], constants[0]
        for e in range(count):
            d = factor * g[e] + decay * w[e]
            u = momentum * v[e] + d
            u = u if abs(u) > least else real(0)
            v[e] = u
            w[e] -= lr * (d + momentum * u if nesterov else u)

    @njit(**COMPILED)
    def adam(w, g, m, v, count, rates, constants, decay, factor):
        """m, v: running means of d = factor g and of d^2.

        w -= lr (c1 m / (c2 sqrt(v) + eps) + decay w)
        """
        one, lr, c1, c2 = real(1), rates[0], rates[1], rates[2]
        first, second, eps = constants[0], constants[1], constants[2]
        for e in range(count):
            d = factor * g[e]
            a = first * m[e] + (one - first) * d
            b = second * v[e] + (one - second) * d * d
            a = a if abs(a) > least else real(0)
            b = b if b > least else real(0)
            m[e], v[e] = a, b
            x = w[e]
            w[e] = x - lr * decay * x - lr * c1 * a / (c2 * np.sqrt(b) + eps)

    @njit(**COMPILED)
    def update(job, layer, thread, rates, factor):
        """Update columns; `rates` are lr and Adam's bias corrections for this step."""
        constants, nesterov = job.constants, job.optimizer == at.NESTEROV
        for part in range(layer.panels + 1):
            if part < layer.panels:
                first, last = _edges(layer, part, thread)
                w, g, m, v = layer.weights, layer.gradient, layer.first, layer.second
                decay = constants[3]
            else:
                first, last = layer.cuts[thread], layer.cuts[thread + 1]
                w, g, m, v = layer.bias, layer.bias_gradient, layer.bias_first, layer.bias_second
                decay = real(0)
            w, g, m, v = offset(w, first), offset(g, first), offset(m, first), offset(v, first)
            if job.optimizer == at.ADAM:
                adam(w, g, m, v, last - first, rates, constants, decay, factor)
            else:
                sgd(w, g, m, last - first, rates, constants, decay, nesterov, factor)

    return update


@njit(**COMPILED)
def _refresh(layer, thread, threads):
    """Copy a thread's part of W to W^T."""
    w, wt = layer.weights, layer.transposed
    if layer.dense:
        nrows, ncols = layer.nrows, layer.ncols
        first, last = nrows * thread // threads, nrows * (thread + 1) // threads
        for i0 in range(first, last, 16):
            i1 = min(i0 + 16, last)
            for j in range(ncols):
                for i in range(i0, i1):
                    wt[i * ncols + j] = w[j * nrows + i]
        return
    edges, edge = layer.edges, layer.transposed_edges
    for e in range(edges * thread // threads, edges * (thread + 1) // threads):
        wt[e] = w[edge[e]]
