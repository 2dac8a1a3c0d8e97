/* Take dense inputs through all layers, block by block, without a return to the caller between blocks.

    for each block:   Y = rows of X;  all layers;  rows of the answer = Y

Threads take blocks until none is left. Sums of a block with larger
features than those for which no sum can leave the range are checked. */

#include "kernels.h"

static void set_to_zero(const struct stream *job, int64_t first, int64_t last)
{
    for (int64_t k = first * job->ncols; k < last * job->ncols; k++)
        job->answer[k] = 0;
    for (int64_t k = first * job->ncols; job->present && k < last * job->ncols; k++)
        job->present[k] = 0;
}

/* Compute blocks in a thread's lane. Return -1 if there are no blocks left; -2 after `blocks` blocks,
   since calls cannot be interrupted; -3 if a sum is not finite, in the layer done[4]; the first input
   of a block if one of its features is not finite. */
static int64_t take_blocks(const struct stream *job, const struct lane *lane)
{
    const int64_t stride = lane->stride, *output = lane->scratch + 4 * stride;
    int64_t *done = lane->done;
    for (int64_t n = 0; n < job->blocks; n++) {
        const int64_t start = atomic_add(job->next, job->width);
        if (start >= job->inputs)
            return -1;
        const int64_t count = least(job->width, job->inputs - start), began = ticks();
        const int64_t largest = from_dense(job->X + start * job->row_stride, job->row_stride,
                                           job->column_stride, 0, count, 0, lane->Y, stride, job->nrows);
        if (largest >= job->infinite)
            return start;
        for (int64_t q = 0; q < count; q++)
            lane->ids[q] = start + q;
        const int64_t read = ticks();
        chain(largest > job->largest ? job->checked : job->plan, 0, job->layers, lane->Y, lane->Z,
              stride, count, lane->ids, lane->scratch, lane->statistics);
        if (output[2] >= 0) {
            done[4] = output[2];
            return -3;
        }
        const int64_t computed = ticks();
        if (output[0] < count)  // the others are dead
            set_to_zero(job, start, start + count);
        done[0] += to_dense(output[1] ? lane->Z : lane->Y, stride, job->ncols, lane->ids, output[0],
                            job->answer, job->ncols, job->present);
        done[1] += read - began;
        done[2] += computed - read;
        done[3] += ticks() - computed;
    }
    return -2;
}

struct stream_call {
    const struct stream *job;
    const struct lane *const *lanes;
    int64_t *found;
};

static void work(void *given, int64_t thread)
{
    const struct stream_call *call = given;
    call->found[thread] = take_blocks(call->job, call->lanes[thread]);
}

/* Compute blocks on threads, each in its lane; write the outputs of `take_blocks` to `found`. Return
   0 if OpenMP's threads cannot; see `work_together`. */
int64_t stream(const struct stream *job, const struct lane *const *lanes, int64_t *found,
               const struct threads *threads)
{
    struct stream_call call = {job, lanes, found};
    return work_together(threads, work, &call);
}
