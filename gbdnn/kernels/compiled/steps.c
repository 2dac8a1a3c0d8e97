/* Training steps: forward and backward pass of a minibatch, gradients, and weight updates.

All threads of a run call `steps` concurrently. A step has the following phases, with a barrier after
each:

    by inputs   Z = Y W + b;  Y' = min(max(Z, 0), clip)          each thread some lines of inputs,
                D = D' W^T where 0 < Y < clip                     forward and backward
    by edges    dW<W.S> = Y^T D,  db = sum of D                   each thread some columns of each W
    by edges    W -= update of the optimizer
    by edges    W^T = W, edge by edge in the order of W^T

Each input has its own lane, and the thread that owns an edge adds the inputs in order, so results do
not depend on the number of threads. If a loss or gradient is not finite or too large, all threads
stop before the update and leave the weights of the previous step. */

#include "kernels.h"

/* Inputs of a minibatch that a thread computes together: at most a share. */
struct part {
    int64_t first, count;  // of the call
    real *const *Y, *const *D;  // blocks before each layer, and after the last one
    int64_t skip;  // inputs of the blocks before the first one
};

static void forward(const struct steps *job, const struct part x)
{
    from_dense(job->X, job->row_stride, job->column_stride, job->indices + x.first, x.count, 0,
               x.Y[0] + x.skip, job->stride, job->edges[0].nrows);
    for (int64_t k = 0; k < job->layers; k++) {
        real *Z = x.Y[k + 1] + x.skip;
        compute_layer(job->forward + k, (struct strip){x.Y[k] + x.skip, Z, job->stride, 0, 0, Z},
                      x.count);
    }
}

static void backward(const struct steps *job, const struct part x)
{
    for (int64_t k = job->layers - 1; k > 0; k--) {
        const real *Y = x.Y[k] + x.skip, *D = x.D[k + 1] + x.skip;
        compute_layer(job->backward + k,
                      (struct strip){D, x.D[k] + x.skip, job->stride, 0, 0, Y}, x.count);
    }
}

/* Compute this thread's inputs of a minibatch. */
static void by_inputs(const struct steps *job, int64_t step, int64_t inputs, int64_t thread)
{
    const int64_t lines = (inputs + LANES - 1) / LANES, share_lines = job->share_lines;
    const int64_t last = lines * (thread + 1) / job->threads;
    int64_t line = lines * thread / job->threads;
    while (line < last) {
        const int64_t share = line / share_lines, start = line % share_lines;
        const int64_t some = least(last - line, share_lines - start);
        const int64_t blocks = share * (job->layers + 1);
        const struct part x = {
            step * job->batch + line * LANES, least(inputs - line * LANES, some * LANES),
            job->Y_blocks + blocks, job->D_blocks + blocks, start * LANES};
        if (job->passes & FORWARD)
            forward(job, x);
        if (job->passes & LOSS_GRADIENT)
            compute_losses(job, x.first, x.count, inputs, x.Y[job->layers] + x.skip);
        if (job->passes & BACKWARD)
            backward(job, x);
        line += some;
    }
}

/* Return the number of steps done. */
int64_t steps(const struct steps *job, int64_t thread)
{
    const int64_t layers = job->layers, threads = job->threads;
    const real largest = job->constants[4];
    int64_t done = 0;
    while (done * job->batch < job->count) {
        const int64_t inputs = least(job->batch, job->count - done * job->batch);
        by_inputs(job, done, inputs, thread);
        if (!(job->passes & BACKWARD))
            break;
        barrier(job->barrier, threads);
        for (int64_t k = 0; k < layers; k++) {
            if (!compute_gradient(job, k, thread, (inputs + LANES - 1) / LANES))
                atomic_write(job->stopped, 1);
            if (largest > 0)
                add_squares(job->edges + k, thread);
        }
        barrier(job->barrier, threads);
        if (atomic_read(job->stopped) || !(job->passes & UPDATE))
            break;
        const double total = largest > 0 ? norm(job) : 0;
        const real factor = total > largest ? largest / total : 1;
        for (int64_t k = 0; k < layers; k++)
            update(job, k, thread, job->rates + 3 * done, factor);
        barrier(job->barrier, threads);
        for (int64_t k = 1; k < layers; k++)
            refresh(job->edges + k, thread, threads);
        barrier(job->barrier, threads);
        done++;
    }
    return done;
}
