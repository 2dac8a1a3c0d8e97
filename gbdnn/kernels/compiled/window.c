/* Take blocks of inputs through some layers and pool the survivors, without a return to the caller
between blocks.

    for each block:   Y = rows, or given;  layers;  append the inputs alive to the pool

Threads take pieces until none is left. A full pool, and a block with many survivors, is finished. */

#include <string.h>

#include "kernels.h"

static void finish(struct lot *lot, struct block x) { lot->done[lot->finished++] = x; }

/* Append a block's inputs to the pool, the last ones first; a block that does not fit becomes the
   next pool. */
static void pour(const struct window *job, struct lot *lot, struct block x)
{
    struct block *pool = lot->pool;
    if (pool->Y && x.count > 0) {
        const int64_t some = least(job->width - pool->count, x.count), from = x.count - some;
        for (int64_t i = 0; i < job->ncols; i++)
            memcpy(pool->Y + i * job->stride + pool->count, x.Y + i * job->stride + from,
                   some * sizeof(real));
        memcpy(pool->ids + pool->count, x.ids + from, some * sizeof(int64_t));
        pool->count += some;
        x.count = from;
        if (pool->count == job->width) {
            finish(lot, *pool);
            pool->Y = 0;
        }
    }
    if (x.count > 0)
        *pool = x;
    else
        lot->own[lot->owned++] = x;
}

static void advance(const struct window *job, struct lot *lot, struct block x)
{
    struct block *Z = lot->Z;
    int64_t *output = lot->scratch + 4 * job->stride;
    chain(job->plan, job->first, job->last, x.Y, Z->Y, job->stride, x.count, x.ids, lot->scratch, 0);
    x.count = output[0];
    lot->faulty = output[2];
    if (output[1]) {
        real *left = Z->Y;
        Z->Y = x.Y;
        x.Y = left;
    }
    if (x.count > job->few)
        finish(lot, x);
    else
        pour(job, lot, x);
}

static void read_rows(const struct window *job, int64_t first, struct block *x)
{
    x->count = least(job->step, job->rows - first);
    if (job->X)
        from_dense(job->X + first * job->row_stride, job->row_stride, job->column_stride, 0, x->count,
                   job->positions, x->Y, job->stride, job->nrows);
    else
        fill(job->indptr, job->columns, job->values, job->value_step, first, x->count, job->positions,
             x->Y, job->stride, job->nrows);
    memcpy(x->ids, job->ids + first, x->count * sizeof(int64_t));
}

/* Take the next piece; return whether there is one, and a block for it. */
static bool take(const struct window *job, struct lot *lot, struct block *x)
{
    if (!job->given && lot->owned == 0) {
        const int64_t spare = atomic_add(job->next + 1, 1);
        if (spare >= job->spares)
            return false;
        lot->own[lot->owned++] = job->spare[spare];
    }
    const int64_t piece = atomic_add(job->next, 1);
    if (piece >= job->pieces)
        return false;
    if (job->given) {
        *x = job->given[piece];
    } else {
        *x = lot->own[--lot->owned];
        read_rows(job, piece * job->step, x);
    }
    return true;
}

static void work(void *given, int64_t thread)
{
    const struct window *job = given;
    struct lot *lot = job->lots + thread;
    struct block x;
    while (lot->faulty < 0 && take(job, lot, &x))
        advance(job, lot, x);
}

/* Take pieces through the layers. Return 0 if OpenMP's threads cannot; see `work_together`. */
int64_t pass(struct window *job, const struct threads *threads)
{
    return work_together(threads, work, job);
}
