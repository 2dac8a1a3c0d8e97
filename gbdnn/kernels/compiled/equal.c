/* Find equal inputs of blocks at the same layer.

    for each block:   mark = sum over a sample of neurons of factor x bits, for each input
    for each neuron:  compare the bits of pairs of inputs with equal marks

Threads take blocks, or ranges of neurons; see run.c. */

#include <string.h>

#include "run.h"

enum { AHEAD = 2 };  // neurons

enum { SLOT_BITS = 40 };  // of the table's entries, whose other bits are the number of the merge

/* Mark the inputs of a block, which are in the cache, by a sample of their neurons. */
void mark_inputs(const struct run *run, int64_t y, int64_t neurons)
{
    const int64_t step = least(16, most(1, neurons / 64)), inputs = run->counts[y];
    uint64_t *marks = run->marks + y * run->width;
    memset(marks, 0, inputs * sizeof *marks);
    for (int64_t n = 0; n * step < neurons; n++) {
        const bits *row = (const bits *)block(run, y) + n * step * run->stride;
        const uint64_t factor = run->factors[n];
        for (int64_t q = 0; q < inputs; q++)
            marks[q] += factor * row[q];
    }
}

/* Return the first slot with the mark of a slot; the slot itself, now in the table, if there is none. */
static int64_t leader_of(struct run *run, int64_t slot)
{
    const uint64_t mark = run->marks[slot];
    const int64_t slots = (INT64_C(1) << SLOT_BITS) - 1, generation = run->generation << SLOT_BITS;
    for (uint64_t h = (mark ^ mark >> 32) * UINT64_C(0x9E3779B97F4A7C15) >> 20;; h++) {
        int64_t *at = run->table + (h & (run->table_size - 1)), other = atomic_read(at);
        while ((other & ~slots) != generation)  // of an earlier merge
            if (__atomic_compare_exchange_n(at, &other, generation | slot, false, __ATOMIC_SEQ_CST,
                                            __ATOMIC_SEQ_CST))
                return slot;
        if (run->marks[other & slots] == mark)
            return other & slots;
    }
}

/* Look up the marks of a block's inputs. */
void find_equal(struct run *run, struct worker *worker, int64_t b)
{
    const int64_t start = b * run->width;
    run->repeated[b] = 0;
    for (int64_t q = 0; q < run->counts[b]; q++) {
        run->leaders[start + q] = leader_of(run, start + q);
        if (run->leaders[start + q] == start + q) {
            worker->results[0] += 1;
        } else {
            const int64_t r = start + run->repeated[b]++;
            run->repeats[r] = (int32_t)q;
            run->differs[r] = 0;
        }
    }
}

/* Compare inputs with their leaders at some neurons; rows of blocks then stay in the cache. */
void compare_inputs(struct run *run, int64_t first, int64_t last)
{
    const int64_t size = run->neurons * run->stride;
    for (int64_t n = first; n < last; n++)
        for (int64_t k = 0; k < run->currents; k++) {
            const int64_t b = run->current[k], start = b * run->width;
            const bits *x = (const bits *)block(run, b) + n * run->stride;
            const bits *all = (const bits *)run->memory + n * run->stride;
            for (int64_t r = start; r < start + run->repeated[b]; r++) {
                const int64_t leader = run->leaders[start + run->repeats[r]], other = leader / run->width;
                const bits *y = all + other * size + (leader - other * run->width);
                __builtin_prefetch(y + AHEAD * run->stride);
                if (x[run->repeats[r]] != *y)
                    __atomic_store_n(run->differs + r, 1, __ATOMIC_RELAXED);
            }
        }
}

/* List the columns of a block that stay, and note for whom the leaders of the others stand. */
void keep_columns(struct run *run, int64_t b)
{
    const int64_t start = b * run->width;
    int64_t r = start, kept = 0;
    for (int64_t q = 0; q < run->counts[b]; q++) {
        const bool repeats = r < start + run->repeated[b] && run->repeats[r] == q;
        if (repeats && !run->differs[r]) {
            const int64_t id = run->numbers[start + q], leader = run->numbers[run->leaders[start + q]];
            run->parents[id] = leader;
            atomic_add(run->multiplicity + leader, run->multiplicity[id]);
        } else {
            run->keep[start + kept++] = (int32_t)q;
        }
        r += repeats;
    }
    run->kept[b] = kept;
}
