/* Take dense inputs through all layers, block by block, without a return to the caller between blocks.

    for each block:   Y = rows of X;  all layers;  rows of the answer = Y

Threads call this at the same time and take blocks until none is left. Sums of a block with larger
features than those for which no sum can leave the range are checked. */

#include "kernels.h"

static void set_to_zero(const struct stream *job, int64_t first, int64_t last)
{
    for (int64_t k = first * job->ncols; k < last * job->ncols; k++)
        job->answer[k] = 0;
    for (int64_t k = first * job->ncols; job->present && k < last * job->ncols; k++)
        job->present[k] = 0;
}

/* Compute blocks with the blocks Y and Z, `ids` (one per input of a block) and `scratch` (see
   `chain`) as work space. Add to `done` the number of the answer's entries, if `present` is not
   null, and clock ticks of reading, of all layers and of writing; `statistics` as for `chain`.
   Return -1 if there are no blocks left; -2 after `blocks` blocks, since calls cannot be
   interrupted; -3 if a sum is not finite, in the layer done[4]; the first input of a block if one
   of its features is not finite. */
int64_t stream(const struct stream *job, real *Y, real *Z, int64_t stride, int64_t *ids,
               int64_t *scratch, int64_t *done, const int64_t *statistics)
{
    const int64_t *output = scratch + 4 * stride;
    for (int64_t n = 0; n < job->blocks; n++) {
        const int64_t start = atomic_add(job->next, job->width);
        if (start >= job->inputs)
            return -1;
        const int64_t count = least(job->width, job->inputs - start), began = ticks();
        const int64_t largest = from_dense(job->X + start * job->row_stride, job->row_stride,
                                           job->column_stride, 0, count, 0, Y, stride, job->nrows);
        if (largest >= job->infinite)
            return start;
        for (int64_t q = 0; q < count; q++)
            ids[q] = start + q;
        const int64_t read = ticks();
        chain(largest > job->largest ? job->checked : job->plan, 0, job->layers, Y, Z, stride, count,
              ids, scratch, statistics);
        if (output[2] >= 0) {
            done[4] = output[2];
            return -3;
        }
        const int64_t computed = ticks();
        if (output[0] < count)  // the others are dead
            set_to_zero(job, start, start + count);
        done[0] += to_dense(output[1] ? Z : Y, stride, job->ncols, ids, output[0], job->answer,
                            job->ncols, job->present);
        done[1] += read - began;
        done[2] += computed - read;
        done[3] += ticks() - computed;
    }
    return -2;
}
