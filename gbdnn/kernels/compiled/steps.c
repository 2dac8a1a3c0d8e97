/* Training steps: forward and backward pass of a minibatch, gradients, and weight updates.

A step has the following phases, with a barrier after each:

    by inputs   Z = Y W + b;  Y' = min(max(Z, 0), clip)          each thread some lines of inputs,
                D = D' W^T where 0 < Y < clip                     forward and backward
    by edges    dW<W.S> = Y^T D,  db = sum of D                   each thread some columns of each W
    by edges    W -= update of the optimizer
    by edges    W^T = W, edge by edge in the order of W^T

Each input has its own lane, and the thread that owns an edge adds the inputs in order, so results
do not depend on the number of threads. If a loss or gradient is not finite or too large, all
threads stop before the update and leave the weights of the previous step. */

#include "kernels.h"

/* Inputs of a minibatch that a thread computes together: at most a group. */
struct part {
    int64_t first, count;  // of the call
    int64_t group, skip;  // its group, and inputs of the blocks before the first one
};

/* A part's activations, and their gradients, before layer k. */
static real *Y_of(const struct steps *job, const struct part x, int64_t k)
{
    return block_of(job, job->Y, x.group, k) + x.skip;
}

static real *D_of(const struct steps *job, const struct part x, int64_t k)
{
    return block_of(job, job->D, x.group, k) + x.skip;
}

/* Y = X^T: rows of X to a block. */
static void read_rows(const struct steps *job, const struct part x, real *Y, int64_t neurons)
{
    from_dense(job->X, job->row_stride, job->column_stride, job->indices + x.first, x.count, 0,
               Y, job->stride, neurons);
}

/* out = Y^T: a block to rows. */
static void write_rows(const struct steps *job, const struct part x, const real *Y, int64_t neurons)
{
    to_dense(Y, job->stride, neurons, job->indices + x.first, x.count, job->out,
             job->out_stride, 0);
}

static void forward(const struct steps *job, const struct part x)
{
    read_rows(job, x, Y_of(job, x, 0), job->edges[0].nrows);
    for (int64_t k = 0; k < job->layers; k++) {
        real *Z = Y_of(job, x, k + 1);
        const struct strip block = {Y_of(job, x, k), Z, job->stride, 0, 0, Z};
        compute_layer(job->forward + k, block, x.count);
        /* What pads the last cache line counts in gradients: 0 times a 0 of D, not infinity. */
        for (int64_t j = 0; x.count % LANES && j < job->edges[k].ncols; j++)
            for (int64_t q = x.count; q < whole_lines(x.count); q++)
                Z[j * job->stride + q] = 0;
    }
    if (job->passes & OUTPUT)
        write_rows(job, x, Y_of(job, x, job->layers), job->edges[job->layers - 1].ncols);
}

/* The first layer whose input's gradient is computed. */
static int64_t lowest(const struct steps *job) { return job->passes & INPUT_GRADIENT ? 0 : 1; }

static void backward(const struct steps *job, const struct part x)
{
    const int64_t layers = job->layers;
    if (job->passes & OUTPUT_GRADIENT)
        read_rows(job, x, D_of(job, x, layers), job->edges[layers - 1].ncols);
    for (int64_t k = layers - 1; k >= lowest(job); k--) {
        const real *D = D_of(job, x, k + 1), *Y = Y_of(job, x, k);
        const struct strip block = {D, D_of(job, x, k), job->stride, 0, 0, Y};
        compute_layer(job->backward + k, block, x.count);
    }
    if (job->passes & INPUT_GRADIENT)
        write_rows(job, x, D_of(job, x, 0), job->edges[0].nrows);
}

/* Compute this thread's inputs of a minibatch. */
static void by_inputs(const struct steps *job, int64_t step, int64_t inputs, int64_t thread)
{
    const int64_t lines = (inputs + LANES - 1) / LANES, group_lines = job->group_lines;
    const int64_t last = lines * (thread + 1) / job->threads;
    int64_t line = lines * thread / job->threads;
    while (line < last) {
        const int64_t group = line / group_lines, start = line % group_lines;
        const int64_t some = least(last - line, group_lines - start);
        const struct part x = {
            step * job->batch + line * LANES, least(inputs - line * LANES, some * LANES), group,
            start * LANES};
        if (job->passes & FORWARD)
            forward(job, x);
        if (job->passes & LOSS_GRADIENT)
            compute_losses(job, x.first, x.count, inputs, Y_of(job, x, job->layers));
        if (job->passes & BACKWARD)
            backward(job, x);
        line += some;
    }
}

static void refresh_all(const struct steps *job, int64_t thread)
{
    for (int64_t k = lowest(job); k < job->layers; k++)
        refresh(job->edges + k, thread, job->threads);
    barrier(job->barrier, job->threads);
}

static void work(void *given, int64_t thread)
{
    struct steps *job = given;
    const int64_t layers = job->layers, threads = job->threads;
    const real largest = job->constants[4];
    if (job->passes & REFRESH)
        refresh_all(job, thread);
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
        refresh_all(job, thread);
        done++;
    }
    if (thread == 0)
        job->done = done;
}

/* Do steps on `job->threads` threads. Return 0 if OpenMP's cannot; see `work_together`. */
int64_t steps(struct steps *job, const struct threads *threads)
{
    return work_together(threads, work, job);
}
