/* Write inputs that have passed all layers to the answer.

    for each block after the last layer:  dense rows;  or the number of entries of each input
    for each block, when there is memory for all entries:  entries, from `offsets` on, or dense rows
    for each input that was merged:  a copy of the row of the one that represents it

Blocks of a sparse answer wait, so that no buffer has to grow. */

#include <string.h>

#include "run.h"

/* Give the rows of the answer their places: row n begins at indptr[n]. Without `ids`, rows are all inputs,
   and those that were merged have the row of the one that represents them; else they are those of the
   current blocks, whose ids are written. Return the number of entries. */
int64_t place_rows(struct run *run, int64_t *ids, int64_t *indptr)
{
    int64_t entries = 0, row = 0;
    run->copies = !ids && run->parents;
    for (int64_t i = 0; !ids && i < run->ids; i++) {
        int64_t root = i;
        while (run->parents && run->parents[root] != root)
            root = run->parents[root];
        if (run->parents)
            run->parents[i] = root;
        indptr[row++] = entries;
        entries += run->degrees[root];
    }
    for (int64_t k = 0; ids && k < run->currents; k++)
        for (int64_t q = 0; q < run->counts[run->current[k]]; q++) {
            const int64_t i = ids[row] = ids_of(run, run->current[k])[q];
            run->offsets[i] = indptr[row++] = entries;
            entries += run->degrees[i];
        }
    indptr[row] = entries;
    return entries;
}

static int64_t outputs(const struct run *run) { return run->sizes[run->stops[run->windows]]; }

void answer_block(struct run *run, struct worker *worker, int64_t y, int64_t before, int64_t row)
{
    const int64_t ncols = outputs(run), inputs = run->counts[y], *ids = ids_of(run, y);
    if (!run->answer) {
        count(block(run, y), run->stride, ncols, inputs, worker->scratch);
        for (int64_t q = 0; q < inputs; q++)
            run->degrees[ids[q]] = worker->scratch[q];
        finish_block(run, y);
        return;
    }
    if (run->clears && inputs < before) {  // the others are dead
        memset(run->answer + row * ncols, 0, before * ncols * sizeof(real));
        if (run->present)
            memset(run->present + row * ncols, 0, before * ncols);
    }
    for (int64_t q = 0; run->degrees && q < inputs; q++)
        run->degrees[ids[q]] = 1;
    worker->results[1] += to_dense(block(run, y), run->stride, ncols, ids, inputs, run->answer, ncols,
                                 run->present);
    keep_block(run, worker, y);
}

void extract_block(struct run *run, struct worker *worker, int64_t y)
{
    const int64_t *ids = ids_of(run, y), ncols = outputs(run);
    if (run->answer) {
        to_dense(block(run, y), run->stride, ncols, ids, run->counts[y], run->answer, ncols, run->present);
        put_block(run, y);
        return;
    }
    for (int64_t q = 0; q < run->counts[y]; q++)
        worker->scratch[q] = run->offsets[ids[q]];
    extract(block(run, y), run->stride, ncols, 0, run->counts[y], worker->scratch,
            run->answer_columns, run->answer_values);
    put_block(run, y);
}

void copy_merged(struct run *run, int64_t range)
{
    const int64_t last = least((range + 1) * RANGE, run->ids), ncols = outputs(run);
    for (int64_t i = range * RANGE; i < last; i++) {
        const int64_t root = run->parents[i], from = run->offsets[root], to = run->offsets[i];
        if (root == i)
            continue;
        if (run->answer) {
            memcpy(run->answer + i * ncols, run->answer + root * ncols, ncols * sizeof(real));
            memcpy(run->present + i * ncols, run->present + root * ncols, ncols);
            continue;
        }
        memcpy(run->answer_columns + to, run->answer_columns + from, run->degrees[root] * sizeof(int64_t));
        memcpy(run->answer_values + to, run->answer_values + from, run->degrees[root] * sizeof(real));
    }
}
