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

from gbdnn.kernels.compiled import step_record as at
from gbdnn.kernels.compiled.barrier import barrier, read, write
from gbdnn.kernels.compiled.dense_rows import make_read, square_size
from gbdnn.kernels.compiled.dots import make_four, make_row_sum, make_some, make_twelve
from gbdnn.kernels.compiled.layer import make_layer
from gbdnn.kernels.compiled.record import LAYER
from gbdnn.kernels.compiled.tiles import Strip
from gbdnn.kernels.compiled.vectors import (
    COMPILED,
    bits_of,
    offset,
    pointer_to,
    record_at,
    row,
    splat,
    take,
)

if TYPE_CHECKING:
    from gbdnn.kernels.compiled.vectors import Kinds

__all__ = ["make_steps"]

NEDGE_FIELDS = len(at.EDGE_FIELDS)


def make_steps(kind: Kinds, pair_lines: int):
    """Return ``steps(job, thread)`` for one dtype, and its signature.

    `job` is a record of `step_record.JOB_FIELDS`; the result is the number of steps done.
    """
    real, lanes = kind.real, kind.lanes
    int64 = types.int64
    forward, backward = make_layer(kind, pair_lines), make_layer(kind, pair_lines, masked=True)
    block, gather = _make_block(kind), _make_gather(kind)
    loss_and_gradient = _make_loss(kind)
    gradient, update = _make_gradient(kind, pair_lines), _make_update(kind)
    add_squares, norm, scale = _make_norm(kind)
    refresh = _make_refresh(kind)

    @njit(**COMPILED)
    def by_inputs(job, step, inputs, thread):
        """Compute the forward and backward pass for this thread's part of a minibatch."""
        layers, share_lines, stride = job[at.LAYERS], job[at.SHARE_LINES], job[at.STRIDE]
        passes = job[at.PASSES]
        lines = -(-inputs // lanes)
        line = lines * thread // job[at.THREADS]
        last = lines * (thread + 1) // job[at.THREADS]
        null = pointer_to(0, kind.bits)
        while line < last:
            share = line // share_lines
            start = line - share * share_lines
            some = min(last - line, share_lines - start)
            count = min(inputs - line * lanes, some * lanes)
            skip = start * lanes
            first = step * job[at.BATCH] + line * lanes
            if passes & at.FORWARD:
                gather(job, first, count, offset(block(job, at.Y_BLOCKS, share, 0), skip))
            for k in range(layers if passes & at.FORWARD else 0):
                record = record_at(job[at.Y_RECORDS], LAYER, k)
                y = offset(block(job, at.Y_BLOCKS, share, k), skip)
                z = offset(block(job, at.Y_BLOCKS, share, k + 1), skip)
                forward(record, Strip(y, z, stride, null, null, z), count)
            if passes & at.LOSS_GRADIENT:
                loss_and_gradient(
                    job, first, count, inputs, offset(block(job, at.Y_BLOCKS, share, layers), skip)
                )
            for k in range(layers - 1 if passes & at.BACKWARD else 0, 0, -1):
                record = record_at(job[at.D_RECORDS], LAYER, k)
                y = offset(block(job, at.Y_BLOCKS, share, k), skip)
                d = offset(block(job, at.D_BLOCKS, share, k + 1), skip)
                below = offset(block(job, at.D_BLOCKS, share, k), skip)
                backward(record, Strip(d, below, stride, null, null, y), count)
            line += some

    @njit(**COMPILED)
    def cut(job, layer, thread):
        """Return the range of a layer's columns that belongs to this thread."""
        record = offset(pointer_to(job[at.EDGE_RECORDS], int64), layer * NEDGE_FIELDS)
        cuts = pointer_to(record[at.CUTS], int64)
        return record, cuts[thread], cuts[thread + 1]

    def steps(job_address, thread):
        job = pointer_to(job_address, int64)
        state, nthreads = pointer_to(job[at.BARRIER], int64), job[at.THREADS]
        stopped = pointer_to(job[at.STOPPED], int64)
        done = int64(0)
        rates = pointer_to(job[at.RATES], real)
        constants = pointer_to(job[at.CONSTANTS], real)
        while done * job[at.BATCH] < job[at.COUNT]:
            inputs = min(job[at.BATCH], job[at.COUNT] - done * job[at.BATCH])
            by_inputs(job, done, inputs, thread)
            if not job[at.PASSES] & at.BACKWARD:
                break
            barrier(state, nthreads)
            lines = -(-inputs // lanes)
            for k in range(job[at.LAYERS]):
                record, first, last = cut(job, k, thread)
                if not gradient(job, record, k, first, last, lines):
                    write(stopped, int64(1))
                if constants[4] > 0:
                    add_squares(record, first, last)
            barrier(state, nthreads)
            if read(stopped) or not job[at.PASSES] & at.UPDATE:
                break
            total = norm(job) if constants[4] > 0 else 0.0
            for k in range(job[at.LAYERS]):
                record, first, last = cut(job, k, thread)
                if total > constants[4]:
                    scale(record, first, last, real(constants[4] / total))
                update(record, first, last, job[at.OPTIMIZER], offset(rates, 3 * done), constants)
            barrier(state, nthreads)
            for k in range(1, job[at.LAYERS]):
                record, _, _ = cut(job, k, thread)
                refresh(record, thread, nthreads)
            barrier(state, nthreads)
            done += 1
        return done

    return steps, int64(int64, int64)


def _make_block(kind: Kinds):
    """Return a function that returns a share's block of activations or gradients."""
    real, int64 = kind.real, types.int64

    @njit(**COMPILED)
    def block(job, which, share, layer):
        blocks = pointer_to(job[which], int64)
        return pointer_to(blocks[share * (job[at.LAYERS] + 1) + layer], real)

    return block


def _make_gather(kind: Kinds):
    """Return a function that copies some inputs of a minibatch into a block."""
    real, lanes, size = kind.real, kind.lanes, square_size(kind)
    int64, read = types.int64, make_read(kind)

    @njit(**COMPILED)
    def gather(job, first, count, Y):
        """Y[c, r] = X[indices[first + r], c]; inputs that pad the last cache line become 0."""
        X_, indices = pointer_to(job[at.X], real), offset(pointer_to(job[at.INDICES], int64), first)
        row_stride, column_stride = job[at.X_ROW_STRIDE], job[at.X_COLUMN_STRIDE]
        neurons, stride = pointer_to(job[at.EDGE_RECORDS], int64)[at.NROWS], job[at.STRIDE]
        in_squares = column_stride == 1 and count >= size and neurons >= size
        for r0 in range(0, count if in_squares else 0, size):
            r = min(r0, count - size)
            sources = row(X_, take(offset(indices, r), size, 1), row_stride)
            read(sources, 0, offset(Y, r), stride, neurons, splat(real(0), size))
        for c in range(neurons):
            target = offset(Y, c * stride)
            for r in range(count if in_squares else 0, count):
                target[r] = X_[indices[r] * row_stride + c * column_stride]
            for r in range(count, -(-count // lanes) * lanes):
                target[r] = 0

    return gather


def _make_loss(kind: Kinds):
    """Return a function that computes losses and replaces the outputs by their gradient."""
    real, lanes = kind.real, kind.lanes
    # Products of smaller numbers would be subnormal, which is ten times slower.
    least = real(1e-30 if real == types.float32 else 1e-290)
    int64 = types.int64

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
        stride = job[at.STRIDE]
        losses = offset(pointer_to(job[at.LOSSES], types.float64), first)
        hits = offset(pointer_to(job[at.HITS], types.uint8), first)
        indices = offset(pointer_to(job[at.INDICES], int64), first)
        limits = pointer_to(job[at.LIMITS], real)
        last = offset(pointer_to(job[at.EDGE_RECORDS], int64), (job[at.LAYERS] - 1) * NEDGE_FIELDS)
        outputs = last[at.NCOLS]
        weights = pointer_to(job[at.SAMPLE_WEIGHTS], real)
        for q in range(count):
            z = offset(Z, q)
            scale = real(1) / real(inputs) * weights[indices[q]]
            if job[at.LOSS] == at.CROSS_ENTROPY:
                label = pointer_to(job[at.TARGETS], int64)[indices[q]]
                losses[q], hit = cross_entropy(
                    z, stride, outputs, label, scale, limits[0], limits[1]
                )
                hits[q] = hit
            else:
                target = offset(pointer_to(job[at.TARGETS], real), indices[q] * outputs)
                losses[q] = squared_error(z, stride, outputs, target, scale, limits[0], limits[1])
            if not abs(losses[q]) < np.inf:
                write(pointer_to(job[at.STOPPED], int64), int64(1))
        for c in range(outputs):
            for q in range(count, -(-count // lanes) * lanes):
                Z[c * stride + q] = real(0)

    return loss_and_gradient


def _make_gradient(kind: Kinds, pair_lines: int):
    """Return a function that computes the gradient of some columns of a layer's weights."""
    real, bits, lanes = kind.real, kind.bits, kind.lanes
    int64, uint32 = types.int64, types.uint32
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
    largest = np.float32(1e30) if real == types.float32 else np.float64(1e290)
    most = int(largest.view(f"u{largest.itemsize}"))

    @njit(**COMPILED)
    def sparse_columns(record, panel, Y, D, stride, lines, first, last, add):
        indptr = offset(pointer_to(record[at.INDPTR], int64), panel * record[at.NCOLS])
        rows = pointer_to(record[at.ROWS], uint32)
        places = pointer_to(record[at.PLACES], uint32)
        g = pointer_to(record[at.GRADIENT], real)
        for j in range(first, last):
            d, e, end = row(D, places[j], stride), indptr[j], indptr[j + 1]
            while end - e >= 4:
                four(Y, d, stride, lines * lanes, offset(rows, e), offset(g, e), add)
                e += 4
            if end - e >= 2:
                two(Y, d, stride, lines * lanes, offset(rows, e), offset(g, e), add)
                e += 2
            if e < end:
                single(Y, d, stride, lines * lanes, offset(rows, e), offset(g, e), add)

    @njit(**COMPILED)
    def dense_columns(record, Y, D, stride, lines, first, last, add):
        """Process rows in groups that stay in the L1 cache for all columns."""
        nrows, rows = record[at.NROWS], pointer_to(record[at.ROWS], uint32)
        places = pointer_to(record[at.PLACES], uint32)
        g, inputs = pointer_to(record[at.GRADIENT], real), lines * lanes
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
    def gradient(job, record, k, first, last, lines):
        """Compute columns `first` to `last` of layer k; return whether none is too large or NaN."""
        stride, share_lines = job[at.STRIDE], job[at.SHARE_LINES]
        g, gb = pointer_to(record[at.GRADIENT], real), pointer_to(record[at.BIAS_GRADIENT], real)
        places, indptr = (
            pointer_to(record[at.PLACES], uint32),
            pointer_to(record[at.INDPTR], int64),
        )
        for share in range(-(-lines // share_lines)):
            some = min(lines - share * share_lines, share_lines)
            Y, D = block(job, at.Y_BLOCKS, share, k), block(job, at.D_BLOCKS, share, k + 1)
            for j in range(first, last):
                total = row_sum(offset(D, places[j] * stride), some * lanes)
                gb[j] = total if share == 0 else gb[j] + total
            if record[at.DENSE]:
                dense_columns(record, Y, D, stride, some, first, last, share > 0)
            else:
                for panel in range(record[at.PANELS]):
                    add = share > 0
                    sparse_columns(record, panel, Y, D, stride, some, first, last, add)
        found = within_reason(bits_of(offset(gb, first)), last - first)
        for panel in range(record[at.PANELS]):
            start = indptr[panel * record[at.NCOLS] + first]
            count = indptr[panel * record[at.NCOLS] + last] - start
            found = found and within_reason(bits_of(offset(g, start)), count)
        return found

    return gradient


def _make_norm(kind: Kinds):
    """Return functions that sum squared gradients by column, compute their norm, and scale them.

    Every thread adds the columns in the same order, so results do not depend on their number.
    """
    real, int64, float64 = kind.real, types.int64, types.float64

    @njit(**COMPILED)
    def add_squares(record, first, last):
        indptr = pointer_to(record[at.INDPTR], int64)
        squares = pointer_to(record[at.SQUARES], float64)
        g, gb = pointer_to(record[at.GRADIENT], real), pointer_to(record[at.BIAS_GRADIENT], real)
        for j in range(first, last):
            total = float64(gb[j]) * float64(gb[j])
            for panel in range(record[at.PANELS]):
                k = panel * record[at.NCOLS] + j
                for e in range(indptr[k], indptr[k + 1]):
                    total += float64(g[e]) * float64(g[e])
            squares[j] = total

    @njit(**COMPILED)
    def norm(job):
        total = 0.0
        for k in range(job[at.LAYERS]):
            record = offset(pointer_to(job[at.EDGE_RECORDS], int64), k * NEDGE_FIELDS)
            squares = pointer_to(record[at.SQUARES], float64)
            for j in range(record[at.NCOLS]):
                total += squares[j]
        return np.sqrt(total)

    @njit(**COMPILED)
    def scale(record, first, last, factor):
        indptr = pointer_to(record[at.INDPTR], int64)
        g, gb = pointer_to(record[at.GRADIENT], real), pointer_to(record[at.BIAS_GRADIENT], real)
        for panel in range(record[at.PANELS]):
            k = panel * record[at.NCOLS]
            for e in range(indptr[k + first], indptr[k + last]):
                g[e] *= factor
        for j in range(first, last):
            gb[j] *= factor

    return add_squares, norm, scale


def _make_update(kind: Kinds):
    """Return a function that updates some columns of a layer's weights, and their biases."""
    real, int64 = kind.real, types.int64
    # A running mean of zeros would become subnormal and remain so.
    least = real(1e-30 if real == types.float32 else 1e-290)

    @njit(**COMPILED)
    def sgd(w, g, v, count, lr, momentum, decay, nesterov):
        """V = momentum v + g + decay w;  w -= lr v, or lr (g + decay w + momentum v)."""
        for e in range(count):
            d = g[e] + decay * w[e]
            u = momentum * v[e] + d
            u = u if abs(u) > least else real(0)
            v[e] = u
            w[e] -= lr * (d + momentum * u if nesterov else u)

    @njit(**COMPILED)
    def adam(w, g, m, v, count, rates, constants, decay):
        """m, v: running means of g and g^2;  w -= lr (c1 m / (c2 sqrt(v) + eps) + decay w)."""
        one, lr, c1, c2 = real(1), rates[0], rates[1], rates[2]
        first, second, eps = constants[0], constants[1], constants[2]
        for e in range(count):
            d = g[e]
            a = first * m[e] + (one - first) * d
            b = second * v[e] + (one - second) * d * d
            a = a if abs(a) > least else real(0)
            b = b if b > least else real(0)
            m[e], v[e] = a, b
            x = w[e]
            w[e] = x - lr * decay * x - lr * c1 * a / (c2 * np.sqrt(b) + eps)

    @njit(**COMPILED)
    def update(record, first, last, optimizer, rates, constants):
        """Update columns; `rates` are lr and Adam's bias corrections for this step."""
        indptr, columns = pointer_to(record[at.INDPTR], int64), last - first
        w, b = pointer_to(record[at.WEIGHTS], real), pointer_to(record[at.BIAS], real)
        g, gb = pointer_to(record[at.GRADIENT], real), pointer_to(record[at.BIAS_GRADIENT], real)
        m, mb = pointer_to(record[at.FIRST], real), pointer_to(record[at.BIAS_FIRST], real)
        v, vb = pointer_to(record[at.SECOND], real), pointer_to(record[at.BIAS_SECOND], real)
        b, gb, mb, vb = offset(b, first), offset(gb, first), offset(mb, first), offset(vb, first)
        lr, beta1, decay = rates[0], constants[0], constants[3]
        nesterov = optimizer == at.NESTEROV
        for panel in range(record[at.PANELS]):
            e = indptr[panel * record[at.NCOLS] + first]
            edges = indptr[panel * record[at.NCOLS] + last] - e
            x, d, p, q = offset(w, e), offset(g, e), offset(m, e), offset(v, e)
            if optimizer == at.ADAM:
                adam(x, d, p, q, edges, rates, constants, decay)
            else:
                sgd(x, d, p, edges, lr, beta1, decay, nesterov)
        if optimizer == at.ADAM:
            adam(b, gb, mb, vb, columns, rates, constants, real(0))
        else:
            sgd(b, gb, mb, columns, lr, beta1, real(0), nesterov)

    return update


def _make_refresh(kind: Kinds):
    """Return a function that copies a thread's part of W to W^T."""
    real, uint32 = kind.real, types.uint32

    @njit(**COMPILED)
    def refresh(record, thread, nthreads):
        w, wt = pointer_to(record[at.WEIGHTS], real), pointer_to(record[at.TRANSPOSED], real)
        if record[at.DENSE]:
            nrows, ncols = record[at.NROWS], record[at.NCOLS]
            first, last = nrows * thread // nthreads, nrows * (thread + 1) // nthreads
            for i0 in range(first, last, 16):
                i1 = min(i0 + 16, last)
                for j in range(ncols):
                    for i in range(i0, i1):
                        wt[i * ncols + j] = w[j * nrows + i]
            return
        edges, edge = record[at.EDGES], pointer_to(record[at.TRANSPOSED_EDGES], uint32)
        for e in range(edges * thread // nthreads, edges * (thread + 1) // nthreads):
            wt[e] = w[edge[e]]

    return refresh
