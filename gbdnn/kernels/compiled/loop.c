/* Parts of the rows on their way through the layers of the sparse kernel, or of the full one.

    for each part:    read;  layers;  end
    a layer:          sparse_loop.c or full_loop.c

Rows do not depend on each other. Each thread takes a part of them through all layers, in a GraphBLAS
Context of one thread, and waits for no other thread. If there are fewer parts than threads, a Context
has several. */

#include <string.h>

#include "loops.h"

int64_t neurons(const struct loop_run *run, const struct row_part *part)
{
    return part->layer == run->first ? run->ncols : run->layers[part->layer - run->first - 1].ncols;
}

/* Whether a layer may have too many entries after it, or is cheaper in the other kernel. */
static bool leaves(const struct loop_run *run, const struct row_part *part)
{
    const struct loop_layer *next = run->layers + part->layer - run->first;
    const double limit = next->limit * part->alive;
    if (run->width)
        return part->entries < limit;
    const double bound = (double)part->entries * next->degree + (double)part->nrows * next->filled;
    const double all = (double)part->nrows * next->ncols;
    return (bound < all ? bound : all) > run->most || part->entries > limit;
}

/* Read a part; it leaves before the first layer if it needs too much memory. */
static GrB_Info begin(const struct loop_run *run, struct row_part *part)
{
    const int64_t began = nanoseconds();
    int64_t counts[2] = {part->nrows};
    GrB_Index entries = 0;
    GrB_Info info = run->width ? read_block(run, part) : read_rows(run, part);
    if (!run->width) {
        info = info ?: GrB.Matrix_nvals(&entries, part->Y);
        if (run->drops && (part->counts || run->counted))
            info = info ?: count_alive(run, part, counts);
    }
    part->layer = run->first;
    part->alive = counts[0];
    part->entries = entries;
    part->ended = !run->width && ((run->drops && !entries) || (run->X && leaves(run, part)));
    part->reading = nanoseconds() - began;
    return info;
}

/* Take a part through layers until the last one, its end, or the end of the call. */
static GrB_Info compute(const struct loop_run *run, struct row_part *part)
{
    GrB_Info info = part->layer < run->first ? begin(run, part) : 0;
    while (!info && !part->ended) {
        const int64_t k = part->layer - run->first, began = nanoseconds();
        const struct loop_layer *layer = run->layers + k;
        int64_t counts[5] = {part->alive};  // inputs, alive, for how many they stand, entries, ns
        info = run->width ? advance_block(run, part, counts + 1) : advance_rows(run, part, counts + 1);
        if (info)
            break;
        if (run->width)
            counts[0] = part->count;
        counts[4] = nanoseconds() - began;
        if (part->counts)
            memcpy(part->counts + 5 * k, counts, sizeof counts);
        if (layer->droppable && (part->counts || run->counted))
            part->alive = counts[1];
        part->entries = counts[3];
        part->layer++;
        part->ended = part->layer == run->last || (!part->entries && layer->droppable) || leaves(run, part);
        if (nanoseconds() > run->until)
            break;
    }
    return info ?: run->width && part->ended ? leave_block(run, part) : 0;
}

/* A thread's work: the next part that has not ended, again and again. */
static void take_parts(void *given, int64_t thread)
{
    const struct loop_run *run = given;
    int64_t *state = run->state;
    enter(run->contexts);
    for (int64_t n; !atomic_read(state + FAILED) && (n = atomic_add(state + TAKEN, 1)) < run->count;) {
        struct row_part *part = run->parts + n;
        const bool unread = part->layer < run->first;
        if (part->ended || (unread && atomic_read(state + HELD) > run->room))
            continue;
        const GrB_Info info = compute(run, part);
        if (info) {
            atomic_write(state + FAILED_LAYER, part->layer);
            atomic_write(state + FAILED, info);
        } else if (part->ended && part->Y) {
            atomic_add(state + HELD, part->entries);
        }
        if (nanoseconds() > run->until)
            break;
    }
    leave(run->contexts, thread);
}

int64_t compute_parts(struct loop_run *run, const struct threads *threads)
{
    run->state[TAKEN] = 0;
    run->until = nanoseconds() + run->slice;
    return work_together(threads, take_parts, run);
}

void free_parts(struct row_part *parts, int64_t count)
{
    for (int64_t n = 0; n < count; n++) {
        GrB.Matrix_free(&parts[n].Y);
        free_block(parts + n);
    }
}

/* ------------------------------------------------------------------------------------------------
   The answer
   --------------------------------------------------------------------------------------------- */

/* A thread's work: move the entries of parts to the arrays of one matrix. */
static void take_results(void *given, int64_t thread)
{
    const struct joining *job = given;
    enter(job->contexts);
    for (int64_t n; !atomic_read(job->state + FAILED) && (n = atomic_add(job->state + TAKEN, 1)) < job->count;) {
        struct row_part *part = job->parts + job->which[n];
        const int64_t nrows = part->nrows, start = job->starts[n];
        struct rows rows;
        const GrB_Info info = take_rows(&part->Y, &rows);
        if (info) {
            atomic_write(job->state + FAILED, info);
            break;
        }
        for (int64_t i = 1; i <= nrows; i++)
            job->indptr[job->rows[n] + i] = start + rows.indptr[i];
        const int64_t entries = rows.indptr[nrows];
        memcpy(job->columns + start, rows.columns, entries * sizeof *rows.columns);
        for (int64_t k = 0; k < entries; k++)
            job->values[start + k] = rows.values[k * rows.value_step];
        release_rows(&rows);
    }
    leave(job->contexts, thread);
}

int64_t join_parts(struct joining *job, const struct threads *threads)
{
    return work_together(threads, take_results, job);
}
