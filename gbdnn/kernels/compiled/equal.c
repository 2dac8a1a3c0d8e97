/* Find equal inputs of blocks at the same layer.

    for each block:   mark = sum over a sample of neurons of factor x bits, for each input
    for each neuron:  compare the bits of pairs of inputs with equal marks

Threads take blocks, or ranges of neurons, until none is left. */

#include <string.h>

#include "kernels.h"

enum { AHEAD = 2 };  // neurons

static void mark_block(const struct marking *job, const struct columns *block)
{
    uint64_t *marks = job->marks + block->start;
    memset(marks, 0, block->count * sizeof(uint64_t));
    for (int64_t n = 0; n * job->step < job->neurons; n++) {
        const bits *row = block->Y + n * job->step * block->stride;
        const uint64_t factor = job->factors[n];
        for (int64_t q = 0; q < block->count; q++)
            marks[q] += factor * row[q];
    }
}

static void mark_blocks(void *given, int64_t thread)
{
    (void)thread;
    const struct marking *job = given;
    for (int64_t n; (n = atomic_add(job->next, 1)) < job->last;)
        mark_block(job, job->blocks + n);
}

/* Mark all inputs. Return 0 if OpenMP's threads cannot; see `work_together`. */
int64_t mark(struct marking *job, const struct threads *threads)
{
    return work_together(threads, mark_blocks, job);
}

/* Compare all pairs at some neurons; rows of blocks then stay in the cache. */
static void compare_neurons(const struct pairs *job, int64_t first, int64_t last)
{
    for (int64_t n = first; n < last; n++)
        for (int64_t p = 0; p < job->count; p++) {
            const int64_t x_stride = job->input_strides[p], y_stride = job->other_strides[p];
            const bits *x = job->inputs[p] + n * x_stride, *y = job->others[p] + n * y_stride;
            __builtin_prefetch(x + AHEAD * x_stride);
            __builtin_prefetch(y + AHEAD * y_stride);
            if (*x != *y)
                __atomic_store_n(job->equal + p, 0, __ATOMIC_RELAXED);
        }
}

static void compare_ranges(void *given, int64_t thread)
{
    (void)thread;
    const struct pairs *job = given;
    for (int64_t n; (n = atomic_add(job->next, job->step)) < job->last;)
        compare_neurons(job, n, least(n + job->step, job->last));
}

/* Set equal[p] to 0 for each pair whose bits differ. Return 0 if OpenMP's threads cannot; see
   `work_together`. */
int64_t compare(struct pairs *job, const struct threads *threads)
{
    return work_together(threads, compare_ranges, job);
}
