/* Compute a single input or a narrow block, dividing the neurons of each layer among threads.

    for each layer:   threads take shares of its neurons until none is left
                      Y' = min(max(Y W + b, low), high) for the neurons of each share
                      wait for the shares that other threads compute;  exchange the buffers

A few inputs cannot be divided: half as many take as long, because the time is spent on reading the
weights. A thread that comes late finds no share left, so no thread waits for another one to start.

Waking a thread takes about as long as such a call. After a call, the helpers therefore wait for
another one in compiled code, for a time that is not much longer than a call. */

#include "kernels.h"

enum { UNKNOWN = -1 };  // number of nonzero activations of a layer before a thread has counted them

/* Compute a share of a layer. For a single input, `actives` is the number of nonzero activations,
   listed in `active`. Return whether a sum is not finite; a block's sums are not checked. */
INLINED bool compute_share(const struct job *job, const struct layer *W, const real *Y, real *Z,
                           uint32_t *active, int64_t *actives, const bool single)
{
    if (!single) {
        compute_layer(W, (struct strip){.Y = Y, .Z = Z, .stride = job->stride}, job->inputs);
        return false;
    }
    if (*actives == UNKNOWN)
        *actives = find_active(Y, W->nrows, active);
    return compute_single(W, active, *actives, Y, Z + W->first);
}

/* Compute shares of each layer until none is left, as thread `number`. */
INLINED void work(const struct job *job, int64_t number, const bool single)
{
    real *Y = job->Y, *Z = job->Z;
    uint32_t *active = job->active + number * job->neurons;
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

/* Compute a job; helpers may take part if there are several shares. */
INLINED void lead(struct job *job, const bool single)
{
    int64_t *counters = job->counters;
    const bool fault = single && any_infinite(job->Y, job->table->nrows);
    counters[FAULTY] = fault ? job->layers + 1 : 0;
    if (fault)
        return;
    for (int64_t k = 0; k < 2 * job->layers; k++)
        counters[PROGRESS + k] = 0;
    if (job->shares == 1) {
        work(job, 0, single);
        return;
    }
    atomic_add(counters + GATE, 1);
    work(job, 0, single);
    atomic_add(counters + GATE, 1);
    wait_for(counters + WITHIN, 0);
}

/* As thread `number`, help with each call until none begins while it waits `spins` times. */
INLINED void assist(struct job *job, int64_t number, int64_t spins, const bool single)
{
    int64_t *gate = job->counters + GATE, *within = job->counters + WITHIN;
    int64_t seen = 0;
    for (int64_t left = spins; left > 0; left--) {
        const int64_t now = atomic_read(gate);
        if (now != seen && now % 2) {
            atomic_add(within, -1);
            if (atomic_read(gate) == now)
                work(job, number, single);
            atomic_add(within, 1);
            seen = now;
            left = spins;
        }
        relax();
    }
}

void lead_block(struct job *job) { lead(job, false); }

void assist_block(struct job *job, int64_t number, int64_t spins)
{
    assist(job, number, spins, false);
}

void lead_single(struct job *job) { lead(job, true); }

void assist_single(struct job *job, int64_t number, int64_t spins)
{
    assist(job, number, spins, true);
}
