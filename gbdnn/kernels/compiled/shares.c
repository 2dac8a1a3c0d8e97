/* Compute a single input or a narrow block, dividing the neurons of each layer among threads.

    for each layer:   threads take shares of its neurons until none is left
                      Y' = min(max(Y W + b, low), high) for the neurons of each share
                      wait for the shares that other threads compute;  exchange the buffers

A few inputs cannot be divided: half as many take as long, because the time is spent on reading the
weights. A thread that comes late finds no share left, so no thread waits for another one to start.

After other work the weights are no longer in the caches. Then they are fetched before they are used,
many lines at the same time: a single input takes up to 1.7 times as long otherwise. */

#include "kernels.h"

enum { UNKNOWN = -1 };  // number of nonzero activations of a layer before a thread has counted them

/* Begin to read all edges of a share, several lines of memory at a time. */
static void fetch_edges(const struct layer *W)
{
    for (int64_t e = W->indptr[0]; e < W->indptr[W->ncols]; e += LANES) {
        __builtin_prefetch((const uint32_t *)W->rows + e);
        __builtin_prefetch(W->weights + e * W->weight_step);
    }
}

/* Compute a share of a layer. For a single input, `actives` is the number of nonzero activations,
   listed in `active`. Return whether a sum is not finite; a block's sums are not checked. */
INLINED bool compute_share(const struct job *job, const struct layer *W, const real *Y, real *Z,
                           uint32_t *active, int64_t *actives, const bool single)
{
    if (!single) {
        if (job->cold && !W->dense)
            fetch_edges(W);
        compute_layer(W, (struct strip){.Y = Y, .Z = Z, .stride = job->stride}, job->inputs);
        return false;
    }
    if (*actives == UNKNOWN)
        *actives = find_active(Y, W->nrows, active);
    return compute_single(W, active, *actives, Y, Z, job->cold);
}

/* Compute shares of each layer until none is left. */
INLINED void work(const struct job *job, int64_t thread, const bool single)
{
    real *Y = job->Y, *Z = job->Z;
    uint32_t *active = job->active + thread * job->neurons;
    for (int64_t k = 0; k < job->layers; k++) {
        const struct layer *W = job->table + k * job->shares;
        int64_t *begun = job->counters + PROGRESS + 2 * k, *completed = begun + 1;
        int64_t share, actives = UNKNOWN;
        while ((share = atomic_add(begun, 1)) < job->shares) {
            if (compute_share(job, W + share, Y, Z, active, &actives, single))
                atomic_write(job->counters + FAULTY, k + 1);
            atomic_add(completed, 1);
        }
        wait_for(completed, job->shares);
        if (atomic_read(job->counters + FAULTY))
            return;
        real *previous = Y;
        Y = Z;
        Z = previous;
    }
}

static void work_on_block(void *job, int64_t thread) { work(job, thread, false); }

static void work_on_single(void *job, int64_t thread) { work(job, thread, true); }

/* Compute a block, or a single input. Return 0 if OpenMP's threads cannot; see `work_together`. */
INLINED int64_t compute(struct job *job, const struct threads *threads, const bool single)
{
    const bool fault = single && any_infinite(job->Y, job->table->nrows);
    job->counters[FAULTY] = fault ? job->layers + 1 : 0;
    if (fault)
        return 1;
    for (int64_t k = 0; k < 2 * job->layers; k++)
        job->counters[PROGRESS + k] = 0;
    return work_together(threads, single ? work_on_single : work_on_block, job);
}

int64_t share_block(struct job *job, const struct threads *threads)
{
    return compute(job, threads, false);
}

int64_t share_single(struct job *job, const struct threads *threads)
{
    return compute(job, threads, true);
}
