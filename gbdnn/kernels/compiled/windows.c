/* Take inputs through a window of layers.

    for each piece:   Y = rows, or columns of waiting blocks;  layers;  mark the inputs;
                      finish the block, or append its inputs to the thread's pool

A block with many survivors waits for the next window, and so does a full pool. Blocks are cut anew
when the next window reads them: they are given back with their last column. */

#include <string.h>

#include "run.h"

static void lock(struct run *run)
{
    while (__atomic_exchange_n(run->counters + LOCK, 1, __ATOMIC_ACQUIRE))
        relax();
}

static void unlock(struct run *run) { __atomic_store_n(run->counters + LOCK, 0, __ATOMIC_RELEASE); }

/* Return an unused block: the thread's own, or that which was used last. Phases have no more pieces than
   there are blocks. */
static int64_t take_block(struct run *run, struct worker *worker)
{
    int64_t y = worker->results[OWN];
    if (y < 0) {
        lock(run);
        y = run->unused[--run->unused_count];
        unlock(run);
    }
    worker->results[OWN] = -1;
    run->flagged[y] = run->counts[y] = 0;
    return y;
}

void put_block(struct run *run, int64_t y)
{
    lock(run);
    run->unused[run->unused_count++] = y;
    unlock(run);
}

/* The same for a block in this core's cache. */
void keep_block(struct run *run, struct worker *worker, int64_t y)
{
    if (worker->results[OWN] < 0)
        worker->results[OWN] = y;
    else
        put_block(run, y);
}

void finish_block(struct run *run, int64_t y)
{
    if (run->counts[y])
        run->finished[atomic_add(run->counters + FINISHES, 1)] = y;
    else
        put_block(run, y);
}

/* Fill a block with rows of a matrix; return an error of GraphBLAS or 0. */
static GrB_Info read_matrix(const struct run *run, GrB_Matrix X, struct piece p, real *Y, int64_t nrows)
{
    const GrB_Index range[] = {p.at, p.at + p.count - 1};
    GrB_Matrix some = 0;
    struct rows rows = {0};
    GrB_Info info = GrB.Matrix_new(&some, GrB.type, p.count, nrows)
        ?: GrB.extract(some, 0, 0, X, range, GrB.RANGE, GrB.ALL, nrows, 0)
        ?: take_rows(&some, &rows);
    if (info)
        GrB.Matrix_free(&some);
    else
        fill((int64_t *)rows.indptr, (int64_t *)rows.columns, rows.values, rows.value_step, 0, p.count,
             run->read_positions, Y, run->stride, nrows);
    release_rows(&rows);
    return info;
}

static int64_t read_rows(struct run *run, struct worker *worker, struct piece p)
{
    const int64_t y = take_block(run, worker), nrows = run->sizes[run->read_layer], at = p.at - run->first_row;
    const struct features *part = run->parts + at / run->part_rows;
    const int64_t first = at % run->part_rows;
    if (part->X) {
        const int64_t largest = from_dense(part->X + first * part->row_stride, part->row_stride,
                                           part->column_stride, 0, p.count, run->read_positions,
                                           block(run, y), run->stride, nrows);
        run->flagged[y] = largest > run->largest;
        if (largest >= run->infinite)
            fail(run, -1, p.at);
    } else if (part->matrix) {
        const GrB_Info info = read_matrix(run, part->matrix, p, block(run, y), nrows);
        if (info) {
            fail(run, -2, info);
            return y;
        }
    } else {
        fill(part->indptr, part->columns, part->values, part->value_step, first, p.count,
             run->read_positions, block(run, y), run->stride, nrows);
    }
    for (int64_t q = 0; q < p.count; q++)
        ids_of(run, y)[q] = run->row_ids ? run->row_ids[at + q] : p.at + q;
    run->counts[y] = p.count;
    return y;
}

INLINED bool is_whole(const struct run *run, int64_t b) { return run->kept[b] == run->counts[b]; }

/* Copy `count` kept columns of block b, from `offset` on, to those of block y from q on. */
static void copy_columns(struct run *run, int64_t b, int64_t offset, int64_t count, int64_t y, int64_t q,
                         int64_t nrows)
{
    const real *from = block(run, b);
    real *to = block(run, y) + q;
    const int32_t *keep = run->keep ? run->keep + b * run->width + offset : 0; /* none if all are kept */
    const int64_t *ids = ids_of(run, b);
    int64_t *new_ids = ids_of(run, y) + q;
    if (is_whole(run, b)) {
        for (int64_t i = 0; i < nrows; i++)
            memcpy(to + i * run->stride, from + i * run->stride + offset, count * sizeof(real));
        memcpy(new_ids, ids + offset, count * sizeof *ids);
    } else {
        for (int64_t i = 0; i < nrows; i++)
            for (int64_t k = 0; k < count; k++)
                to[i * run->stride + k] = from[i * run->stride + keep[k]];
        for (int64_t k = 0; k < count; k++)
            new_ids[k] = ids[keep[k]];
    }
    if (run->flagged[b])
        run->flagged[y] = 1;
    if (atomic_add(run->unread + b, -count) == count)
        put_block(run, b);
}

static void clear_lanes(struct run *run, int64_t y, int64_t nrows)
{
    const int64_t inputs = run->counts[y];
    for (int64_t i = 0; inputs % LANES && i < nrows; i++)
        for (int64_t q = inputs; q < whole_lines(inputs); q++)
            block(run, y)[i * run->stride + q] = 0;
}

/* Move the kept columns of a block to its beginning. */
static void keep_in_place(struct run *run, int64_t y, int64_t nrows)
{
    const int32_t *keep = run->keep + y * run->width;
    for (int64_t i = 0; i < nrows; i++) {
        real *row = block(run, y) + i * run->stride;
        for (int64_t k = 0; k < run->kept[y]; k++)
            row[k] = row[keep[k]];
    }
    for (int64_t k = 0; k < run->kept[y]; k++)
        ids_of(run, y)[k] = ids_of(run, y)[keep[k]];
    run->counts[y] = run->kept[y];
    clear_lanes(run, y, nrows);
}

/* Return a block with the columns of a piece: the block itself, or a new one. */
int64_t gather_columns(struct run *run, struct worker *worker, struct piece p, int64_t nrows)
{
    const int64_t whole = run->current[p.at];
    if (run->in_place && !is_whole(run, whole))
        keep_in_place(run, whole, nrows);
    if (p.offset == 0 && p.count == run->counts[whole] && is_whole(run, whole))
        return whole;
    const int64_t y = take_block(run, worker);
    for (int64_t q = 0, some; q < p.count; p.at++, p.offset = 0, q += some) {
        const int64_t b = run->current[p.at];
        some = least(run->kept[b] - p.offset, p.count - q);
        copy_columns(run, b, p.offset, some, y, q, nrows);
    }
    run->counts[y] = p.count;
    clear_lanes(run, y, nrows);
    return y;
}

/* Exchange a block and the thread's second one, which has the activations now. */
static int64_t exchanged(struct run *run, struct worker *worker, int64_t y)
{
    const int64_t other = *worker->Z;
    memcpy(ids_of(run, other), ids_of(run, y), run->counts[y] * sizeof(int64_t));
    run->flagged[other] = run->flagged[y];
    run->counts[other] = run->counts[y];
    *worker->Z = y;
    return other;
}

/* Put the neurons into the order of the layers that were loaded. */
static int64_t place_neurons(struct run *run, struct worker *worker, int64_t y, int64_t nrows)
{
    for (int64_t i = 0; i < nrows; i++)
        memcpy(block(run, *worker->Z) + run->positions[i] * run->stride, block(run, y) + i * run->stride,
               run->stride * sizeof(real));
    return exchanged(run, worker, y);
}

/* Append a block's inputs to the thread's pool; one that does not fit becomes the next pool. */
static void pour(struct run *run, struct worker *worker, int64_t y, int64_t ncols)
{
    const int64_t x = *worker->pool;
    if (x >= 0 && run->counts[y] > 0) {
        const int64_t used = run->counts[x], some = least(run->width - used, run->counts[y]);
        const int64_t from = run->counts[y] - some;
        for (int64_t i = 0; i < ncols; i++)
            memcpy(block(run, x) + i * run->stride + used, block(run, y) + i * run->stride + from,
                   some * sizeof(real));
        memcpy(ids_of(run, x) + used, ids_of(run, y) + from, some * sizeof(int64_t));
        if (run->merges)
            memcpy(run->marks + x * run->width + used, run->marks + y * run->width + from,
                   some * sizeof(uint64_t));
        run->flagged[x] |= run->flagged[y];
        run->counts[x] += some;
        run->counts[y] = from;
        if (run->counts[x] == run->width) {
            finish_block(run, x);
            *worker->pool = -1;
        }
    }
    if (run->counts[y] == 0)
        keep_block(run, worker, y);
    else
        *worker->pool = y;
}

/* What follows the last layer of a window. */
static void end_window(struct run *run, struct worker *worker, int64_t y, int64_t before, int64_t row)
{
    const int64_t ncols = run->sizes[last_layer(run)];
    if (is_last(run)) {
        answer_block(run, worker, y, before, row);
        return;
    }
    if (run->merges)
        mark_inputs(run, y, ncols);
    if (run->counts[y] == run->width)
        finish_block(run, y);
    else
        pour(run, worker, y, ncols);
}

void take_through(struct run *run, struct worker *worker, struct piece p)
{
    const int64_t first = first_layer(run), last = last_layer(run), began = run->log ? now() : 0;
    const int64_t nrows = run->sizes[first];
    int64_t y = run->reading ? read_rows(run, worker, p) : gather_columns(run, worker, p, nrows);
    if (run->positions && !run->reading && first == run->loaded)
        y = place_neurons(run, worker, y, nrows);
    const int64_t before = run->counts[y], read = run->log ? now() : 0;
    int64_t *record = log_record(run, last - first), statistics[2] = {0, run->census ? (int64_t)run->multiplicity : 0};
    if (record)
        statistics[0] = (int64_t)(record + RECORD - 5 * (first - run->loaded));
    struct plan plan = *(run->flagged[y] ? run->checked : run->plan);
    plan.tidy = !is_last(run);
    const int64_t *output = worker->scratch + 4 * run->stride;
    chain(&plan, first - run->loaded, last - run->loaded, block(run, y), block(run, *worker->Z), run->stride,
          before, ids_of(run, y), worker->scratch, record ? statistics : 0);
    if (output[2] >= 0)
        fail(run, run->loaded + output[2], -1);
    if (output[1])
        y = exchanged(run, worker, y);
    run->counts[y] = output[0];
    const int64_t computed = record ? now() : 0;
    end_window(run, worker, y, before, p.at);
    if (record) {
        record[LAYER] = first, record[LAYERS] = last - first;
        record[BEFORE] = before, record[AFTER] = output[0];
        record[READING] = read - began, record[COMPUTING] = computed - read, record[REST] = now() - computed;
        atomic_write(record + LENGTH, RECORD + 5 * (last - first));
    }
}

/* Compute a share of the neurons of a layer for the only block. */
void take_share(struct run *run, struct worker *worker, int64_t share)
{
    const struct plan *plan = run->flagged[run->share_block] ? run->checked : run->plan;
    const struct layer *whole = plan->table + run->share_layer - run->loaded;
    struct layer W = *whole;
    const int64_t shares = run->piece_count, step = W.dense ? DENSE_GROUP : 2;
    int64_t ends[2];
    for (int k = 0; k < 2; k++) {
        ends[k] = (share + k) * W.ncols / shares / step * step;
        if (share + k == shares)
            ends[k] = W.ncols;
        else if (!W.dense && ends[k] > 0 && W.pairs[ends[k] - 1])
            ends[k] -= 1;  // a pair is in one share
    }
    const int64_t from = ends[0];
    W.ncols = ends[1] - from;
    W.edges = W.edges * W.ncols / most(1, whole->ncols);
    W.places += from;
    W.bias += from * W.bias_step;
    if (W.dense)
        W.weights += from * W.nrows;
    else
        W.indptr += from, W.pairs += from;
    W.counted = 1;
    const bool odd = (run->share_layer - first_layer(run)) % 2;
    real *Y = block(run, run->share_block), *Z = block(run, *run->workers[0].Z);
    bits *alive = (bits *)worker->scratch, *overflow = (bits *)(worker->scratch + run->stride), any = 0;
    compute_layer(&W, (struct strip){odd ? Z : Y, odd ? Y : Z, run->stride, alive, overflow, 0},
                  run->share_count);
    for (int64_t q = 0; q < run->share_count; q++) {
        run->alive[share * run->most_shared + q] = (int64_t)alive[q];
        any |= W.checked ? overflow[q] : 0;
    }
    if (any)
        fail(run, run->share_layer, -1);
}

/* Count the activations of the layer that was computed in shares. */
static void take_census(const struct run *run, const int64_t *ids)
{
    int64_t *counters = run->share_record ? run->share_record + RECORD : 0;
    if (counters)
        counters += 5 * (run->share_layer - first_layer(run));
    for (int64_t q = 0; q < run->share_count; q++) {
        for (int64_t share = 1; share < run->piece_count; share++)
            run->alive[q] += run->alive[share * run->most_shared + q];
        if (counters && run->census) {
            counters[1] += run->alive[q] > 0;
            counters[2] += run->alive[q] > 0 ? run->multiplicity[ids[q]] : 0;
            counters[3] += run->alive[q];
        }
    }
    if (counters)
        counters[0] = run->share_count, counters[4] = 1;
}

/* After a layer in shares: return whether it was the last one of the window, whose block is then done. */
bool end_share(struct run *run)
{
    struct worker *worker = run->workers;
    int64_t y = run->share_block, left = 0;
    take_census(run, ids_of(run, y));
    const bool drops = run->plan->table[run->share_layer - run->loaded].counted;
    run->share_layer += 1;
    if (run->share_layer < last_layer(run))
        return false;
    const int64_t first = first_layer(run), ncols = run->sizes[run->share_layer];
    run->counts[y] = run->share_count;
    if ((run->share_layer - first) % 2)
        y = exchanged(run, worker, y);
    for (int64_t q = 0; drops && q < run->share_count; q++)
        if (run->alive[q]) {
            for (int64_t i = 0; left < q && i < ncols; i++)
                block(run, y)[i * run->stride + left] = block(run, y)[i * run->stride + q];
            ids_of(run, y)[left++] = ids_of(run, y)[q];
        }
    run->counts[y] = drops ? left : run->share_count;
    int64_t *record = run->share_record;
    if (record) {
        record[LAYER] = first, record[LAYERS] = run->share_layer - first;
        record[BEFORE] = run->share_count, record[AFTER] = run->counts[y];
        record[COMPUTING] = now() - record[READING], record[READING] = 0;
        atomic_write(record + LENGTH, RECORD + 5 * (run->share_layer - first));
    }
    end_window(run, worker, y, run->share_count, 0);
    return true;
}
