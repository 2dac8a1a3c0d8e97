/* Take blocks of inputs through some layers and pool the survivors, without a return to the caller
between blocks.

    for each block:   Y = rows, or given;  layers;  append the inputs alive to the pool

A full pool, and a block with many survivors, is finished. */

#include <string.h>

#include "kernels.h"

static void finish(struct window *job, struct block x) { job->done[job->finished++] = x; }

/* Append a block's inputs to the pool, the last ones first; a block that does not fit becomes the
   next pool. */
static void pour(struct window *job, struct block x)
{
    struct block *pool = job->pool;
    if (pool->Y && x.count > 0) {
        const int64_t some = least(job->width - pool->count, x.count), from = x.count - some;
        for (int64_t i = 0; i < job->ncols; i++)
            memcpy(pool->Y + i * job->stride + pool->count, x.Y + i * job->stride + from,
                   some * sizeof(real));
        memcpy(pool->ids + pool->count, x.ids + from, some * sizeof(int64_t));
        pool->count += some;
        x.count = from;
        if (pool->count == job->width) {
            finish(job, *pool);
            pool->Y = 0;
        }
    }
    if (x.count > 0)
        *pool = x;
    else
        job->spare[job->spares++] = x;
}

static void advance(struct window *job, struct block x)
{
    struct block *Z = job->Z;
    int64_t *output = job->scratch + 4 * job->stride;
    chain(job->plan, job->first, job->last, x.Y, Z->Y, job->stride, x.count, x.ids, job->scratch, 0);
    x.count = output[0];
    job->faulty = output[2];
    if (output[1]) {
        real *left = Z->Y;
        Z->Y = x.Y;
        x.Y = left;
    }
    if (x.count > job->few)
        finish(job, x);
    else
        pour(job, x);
}

/* Take a block, which then belongs to the window, through the layers. */
void pass_block(struct window *job, const struct block *given) { advance(job, *given); }

/* Read rows, `step` per block, and take them through the layers as long as there are spare blocks.
   Return the number of rows that are left. */
int64_t pass_rows(struct window *job)
{
    while (job->next < job->rows && job->spares > 0 && job->faulty < 0) {
        struct block x = job->spare[--job->spares];
        x.count = least(job->step, job->rows - job->next);
        if (job->X)
            from_dense(job->X + job->next * job->row_stride, job->row_stride, job->column_stride, 0,
                       x.count, job->positions, x.Y, job->stride, job->nrows);
        else
            fill(job->indptr, job->columns, job->values, job->value_step, job->next, x.count,
                 job->positions, x.Y, job->stride, job->nrows);
        memcpy(x.ids, job->ids + job->next, x.count * sizeof(int64_t));
        job->next += x.count;
        advance(job, x);
    }
    return job->rows - job->next;
}
