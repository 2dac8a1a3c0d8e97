/* Take all inputs through all layers on threads that do not need Python.

    while inputs wait:
        choose a window:  rows that are not read, or the blocks that wait at one place
        find equal inputs:  a table of marks;  compare the bits;  keep one of each
        cut pieces;  for each piece:  the layers of the window

A phase has pieces, which threads take until none is left. Whoever completes the last piece prepares
the next phase. So threads wait only for pieces that have begun; helpers may come late, and every
thread may leave between two pieces, since all state is in `struct run`. A successful take belongs to
the present phase, which cannot end before the piece is completed.

A call returns when something is needed from the caller (see the values of STATUS), and after a slice
of time, so that Python sees signals while helpers go on. */

#define _POSIX_C_SOURCE 200809L  // clock_gettime

#include <sched.h>
#include <string.h>
#include <time.h>

#include "run.h"

enum { LOOKS = 2000 };  // of a thread that waits, before it yields
enum { PIECES = 64 };  // per thread, of a phase whose blocks do not wait

static const double WORTH = 0.75;  // fraction of distinct inputs to merge

static int64_t nanoseconds_of(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

int64_t now(void) { return nanoseconds_of(CLOCK_MONOTONIC); }

/* Note the first sum, or feature before layer 0, that is not finite. */
void fail(struct run *run, int64_t layer, int64_t row)
{
    if (__atomic_exchange_n(run->counters + STATUS, FAULT, __ATOMIC_SEQ_CST) == FAULT)
        return;
    run->faulty_layer = layer;
    run->faulty_row = row;
}

static void ask(struct run *run, int64_t status) { atomic_write(run->counters + STATUS, status); }

/* Return a new record of the log, or null if nobody watches. */
int64_t *log_record(struct run *run, int64_t layers)
{
    return run->log ? run->log + atomic_add(run->counters + LOGGED, RECORD + 5 * layers) : 0;
}

/* ------------------------------------------------------------------------------------------------
   Phases: what one thread does between two of them
   --------------------------------------------------------------------------------------------- */

static void begin_phase(struct run *run, int64_t phase, int64_t pieces)
{
    run->phase = phase;
    run->piece_count = pieces;
    run->counters[DONE] = 0;
    atomic_write(run->counters + LEFT, pieces);
}

/* Begin a phase whose pieces, or which itself, is recorded in the log. */
static void begin_window(struct run *run, int64_t phase, int64_t pieces)
{
    const int64_t record = RECORD + 5 * (last_layer(run) - first_layer(run));
    run->log_needed = (phase == SHARE ? 1 : pieces) * record + RECORD;
    run->phase = phase;
    run->piece_count = pieces;
    if (run->log && run->counters[LOGGED] + run->log_needed > run->log_size) {
        ask(run, LOG);
        return;
    }
    run->share_record = 0;
    if (phase == SHARE && (run->share_record = log_record(run, last_layer(run) - first_layer(run))))
        run->share_record[READING] = now();
    begin_phase(run, phase, pieces);
}

/* A width of pieces that gives each thread an equal share of the inputs. */
static int64_t balanced(const struct run *run, int64_t inputs)
{
    const int64_t width = run->width, threads = run->threads;
    const int64_t rounds = most(1, (inputs + width * threads - 1) / (width * threads));
    if (rounds > 8 || threads == 1)
        return width;
    const int64_t unit = rounds * threads * 16;
    return least(width, most(NARROW, (inputs + unit - 1) / unit * 16));
}

/* Return how many pieces `inputs` have, at most `limit`. If they are many, those from number `whole` on have
   half as many inputs as the others, so that threads end together. */
static int64_t count_pieces(struct run *run, int64_t inputs, int64_t step, int64_t limit)
{
    const int64_t threads = run->threads, pieces = (inputs + step - 1) / step, half = step / 2;
    const bool tapers = threads > 1 && half % NARROW == 0 && least(pieces, limit) > 2 * threads;
    const int64_t halved = tapers ? (threads + 1) / 2 : 0;
    const int64_t phases = 1 + (pieces - 1) / (limit - halved);  // of equal size
    run->whole = (pieces + phases - 1) / phases - halved;
    return run->whole + (tapers ? least(2 * halved, (inputs - run->whole * step + half - 1) / half) : 0);
}

/* The rows of a piece. */
static struct piece rows_of(const struct run *run, int64_t n)
{
    const int64_t halves = most(0, n - run->whole), half = run->step / 2;
    const int64_t at = run->phase_row + (n - halves) * run->step + halves * half;
    return (struct piece){at, 0, least(n < run->whole ? run->step : half, run->last_row - at)};
}

static void read_window(struct run *run)
{
    run->reading = 1;
    run->phase_row = run->next_row;
    const int64_t limit = is_last(run) && run->answer ? PIECES * run->threads : run->unused_count;
    const int64_t pieces = count_pieces(run, run->last_row - run->next_row, run->step, limit);
    run->next_row = least(run->last_row, rows_of(run, pieces).at);
    begin_window(run, WINDOW, pieces);
}

/* Into how many shares the layers of the window are divided, if there are few inputs. */
static int64_t shares_of(const struct run *run, int64_t inputs)
{
    const struct layer *W = run->plan->table + first_layer(run) - run->loaded;
    const bool placed = run->positions && first_layer(run) == run->loaded;
    if (inputs > run->most_shared || run->threads == 1 || placed)
        return 1;
    for (int64_t k = 0; k < last_layer(run) - first_layer(run); k++)
        if (W[k].panels > 1) /* edges sorted by panels cannot be divided */
            return 1;
    const double cost = run->plan->read_cost + (double)whole_lines(inputs) * run->plan->edge_cost;
    int64_t shares = 1;
    while (shares < run->threads && (double)W->edges * cost >= run->sharing[shares - 1])
        shares++;
    return run->currents == 1 || run->unused_count > 0 ? shares : 1;
}

static void put_full_first(struct run *run)  // they need not be moved
{
    int64_t full = 0;
    for (int64_t k = 0; k < run->currents; k++) {
        const int64_t b = run->current[k];
        if (run->kept[b] == run->width) {
            run->current[k] = run->current[full];
            run->current[full++] = b;
        }
    }
}

/* Cut the current blocks, or what is kept of them, into pieces. */
static void cut_blocks(struct run *run, bool merged)
{
    int64_t inputs = 0, some = 0, count = 0;
    for (int64_t k = 0; k < run->currents; k++) {
        const int64_t b = run->current[k];
        if (!merged)
            run->kept[b] = run->counts[b];
        run->unread[b] = run->kept[b];
        inputs += run->kept[b];
        if (run->kept[b])
            run->current[some++] = b;
        else
            put_block(run, b);
    }
    run->currents = some;
    const int64_t shares = shares_of(run, inputs), step = balanced(run, inputs);
    run->in_place = shares > 1 && some == 1;  // a block alone needs no other one
    if (shares > 1) {
        run->share_block = gather_columns(run, run->workers, (struct piece){0, 0, inputs},
                                          run->sizes[first_layer(run)]);
        run->share_layer = first_layer(run);
        run->share_count = inputs;
        begin_window(run, SHARE, shares);
        return;
    }
    put_full_first(run);
    const int64_t pieces = count_pieces(run, inputs, step, INT64_MAX);
    if (pieces <= run->unused_count) {
        for (int64_t at = 0, offset = 0, left = inputs, size; count < pieces; left -= size) {
            size = least(count < run->whole ? step : step / 2, left);
            run->pieces[count++] = (struct piece){at, offset, size};
            for (offset += size; at < some && offset >= run->kept[run->current[at]]; at++)
                offset -= run->kept[run->current[at]];
        }
    } else {
        run->in_place = 1;
        for (int64_t k = 0; k < some; k++)
            run->pieces[count++] = (struct piece){k, 0, run->kept[run->current[k]]};
    }
    begin_window(run, WINDOW, count);
}

/* Let the blocks that wait at a place be the current ones. */
static void take_place(struct run *run, int64_t place)
{
    run->place = place;
    run->reading = run->currents = run->asked = 0;
    for (int64_t y = run->heads[place]; y >= 0; y = run->next[y])
        run->current[run->currents++] = y;
    run->heads[place] = -1;
    run->waiting[place] = 0;
}

static void wait_at(struct run *run, int64_t place)
{
    for (int64_t k = 0; k < run->counters[FINISHES]; k++) {
        const int64_t y = run->finished[k];
        run->next[y] = run->heads[place];
        run->heads[place] = y;
        run->waiting[place] += 1;
    }
    run->counters[FINISHES] = 0;
}

/* Whether the first of the waiting blocks has so few activations that blocks may leave. */
static bool may_leave(const struct run *run, int64_t place)
{
    const double limit = run->leaving[place];
    if (limit <= 0 || limit > 1)
        return limit > 1;
    const int64_t y = run->heads[place], neurons = run->sizes[run->stops[place]], inputs = run->counts[y];
    const int64_t step = least(16, most(1, neurons / 64));
    int64_t nonzero = 0;
    for (int64_t i = 0; i < neurons; i += step)
        for (int64_t q = 0; q < inputs; q++)
            nonzero += block(run, y)[i * run->stride + q] != 0;
    return (double)(nonzero * step) < limit * (double)(neurons * inputs);
}

/* Choose what to compute next: the inputs at the earliest layer, so that inputs meet in deep ones; if
   most blocks are used, the place where most of them wait. */
static void next_window(struct run *run)
{
    const bool unread = run->next_row < run->last_row || run->more;
    int64_t place = -1, fullest = -1;
    for (int64_t k = 0; k <= run->windows; k++)
        if (run->waiting[k]) {
            place = place < 0 ? k : place;
            fullest = fullest < 0 || run->waiting[k] >= run->waiting[fullest] ? k : fullest;
        }
    bool reads = unread && (place < 0 || run->read_layer <= run->stops[place]);
    const bool is_full = reads && fullest >= 0 && 4 * run->unused_count < run->blocks;
    if (is_full) {
        place = fullest;
        reads = false;
    }
    const int64_t layer = reads ? run->read_layer : place < 0 ? 0 : run->stops[place];
    run->wanted = reads ? layer : place;
    if (!reads && place < 0)
        ask(run, COMPLETE);
    else if (layer > run->limit && !is_full)
        ask(run, IDLE);
    else if (!reads && place == run->windows) {
        take_place(run, place);
        ask(run, SIZED);
    } else if (!reads && run->asked == 0 && may_leave(run, place)) {
        ask(run, LEAVE);
    } else if (layer < run->loaded || layer >= run->loaded_end) {
        run->wanted = layer;
        ask(run, LOAD);
    } else if (reads && run->next_row == run->last_row) {
        ask(run, READ);
    } else if (reads) {
        read_window(run);
    } else {
        take_place(run, place);
        run->generation += 1;
        for (int64_t n = 0; n < run->threads; n++)
            run->workers[n].results[0] = 0;
        if (run->merges)
            begin_phase(run, FIND, run->currents);
        else
            cut_blocks(run, false);
    }
}

static void after_window(struct run *run)
{
    for (int64_t n = 0; n < run->threads; n++) {
        int64_t *pool = run->workers[n].pool, *own = run->workers[n].results + OWN;
        if (*pool >= 0)
            finish_block(run, *pool);
        if (*own >= 0)
            put_block(run, *own);
        *pool = *own = -1;
    }
    wait_at(run, place_after(run));
    next_window(run);
}

static void after_find(struct run *run)
{
    int64_t distinct = 0, inputs = 0;
    for (int64_t n = 0; n < run->threads; n++)
        distinct += run->workers[n].results[0];
    for (int64_t k = 0; k < run->currents; k++)
        inputs += run->counts[run->current[k]];
    const bool pays = run->merges == 2 || (double)distinct <= WORTH * (double)inputs;
    if (distinct < inputs && pays)
        begin_phase(run, COMPARE, (run->sizes[first_layer(run)] + ROWS - 1) / ROWS);
    else
        cut_blocks(run, false);
}

static void after_keep(struct run *run)
{
    int64_t *record = log_record(run, 0);
    if (record) {
        record[LAYER] = first_layer(run);
        for (int64_t k = 0; k < run->currents; k++)
            record[BEFORE] += run->counts[run->current[k]] - run->kept[run->current[k]];
        record[LENGTH] = RECORD;
    }
    cut_blocks(run, true);
}

static void next_phase(struct run *run)
{
    const int64_t phase = run->phase;
    if (phase == SHARE && !end_share(run))
        begin_phase(run, SHARE, run->piece_count);
    else if (phase == WINDOW || phase == SHARE)
        after_window(run);
    else if (phase == FIND)
        after_find(run);
    else if (phase == COMPARE)
        begin_phase(run, KEEP, run->currents);
    else if (phase == KEEP)
        after_keep(run);
    else if (phase == EXTRACT && run->copies)
        begin_phase(run, COPY, (run->ids + RANGE - 1) / RANGE);
    else
        next_window(run);
}

/* ------------------------------------------------------------------------------------------------
   Threads
   --------------------------------------------------------------------------------------------- */

static void compute_piece(struct run *run, int64_t thread, int64_t n)
{
    struct worker *worker = run->workers + thread;
    const int64_t phase = run->phase, began = run->log ? now() : 0;
    if (phase == WINDOW) {
        take_through(run, worker, run->reading ? rows_of(run, n) : run->pieces[n]);
    } else if (phase == FIND) {
        find_equal(run, worker, run->current[n]);
    } else if (phase == COMPARE) {
        compare_inputs(run, n * ROWS, least((n + 1) * ROWS, run->sizes[first_layer(run)]));
    } else if (phase == KEEP) {
        keep_columns(run, run->current[n]);
    } else if (phase == SHARE) {
        take_share(run, worker, n);
    } else if (phase == EXTRACT) {
        extract_block(run, worker, run->current[n]);
    } else {
        copy_merged(run, n);
    }
    if (run->log && (phase == FIND || phase == COMPARE || phase == KEEP))
        worker->results[2] += now() - began;
}

/* Take the next piece; the phase cannot end before it is completed. */
static bool take_piece(struct run *run, int64_t *piece)
{
    int64_t left = atomic_read(run->counters + LEFT);
    if (left > 0 && (left = atomic_add(run->counters + LEFT, -1)) > 0)
        *piece = run->piece_count - left;
    return left > 0;
}

/* Return whether this was the last piece of the phase. */
static bool complete_piece(struct run *run)
{
    const int64_t pieces = run->piece_count;
    return atomic_add(run->counters + DONE, 1) + 1 == pieces && atomic_read(run->counters + STATUS) == RUNNING;
}

static void work(void *given, int64_t thread)
{
    struct run *run = given;
    const int64_t until = thread ? INT64_MAX : now() + run->slice;
    int64_t looks = 0, piece;
    if (run->contexts)
        enter(run->contexts);
    while (atomic_read(run->counters + STATUS) == RUNNING && !atomic_read(run->counters + STOP)) {
        if (thread == 0 && now() > until)
            break;
        if (take_piece(run, &piece)) {
            compute_piece(run, thread, piece);
            if (complete_piece(run))
                next_phase(run);
            looks = 0;
        } else if (looks++ < LOOKS) {
            relax();
        } else {
            sched_yield();
        }
    }
    if (run->contexts)
        leave(run->contexts, thread);
}

/* With OpenMP's threads, which cannot be left alone: all return after the slice. */
static void work_once(void *given, int64_t thread)
{
    struct run *run = given;
    work(run, thread);
    if (thread == 0)
        atomic_write(run->counters + STOP, 1);
}

/* Begin, or go on after what was asked for was done. */
static void go_on(struct run *run)
{
    const int64_t status = atomic_read(run->counters + STATUS);
    if (!run->is_told)  // helpers may have changed the status since the last call
        return;
    run->is_told = 0;
    ask(run, RUNNING);
    if (status == LOG)
        begin_window(run, run->phase, run->piece_count);
    else if (status == SIZED)
        begin_phase(run, EXTRACT, run->currents);
    else
        next_window(run);
}

/* Compute on this thread and helpers until something is needed, or until the slice is over. Return the
   status, or -1 if OpenMP's threads cannot; see `work_together`. Helpers go on after RUNNING. */
int64_t run(struct run *run, const struct threads *threads)
{
    go_on(run);
    if (threads->count > 1 && !threads->team) {
        if (!work_together(threads, work_once, run))
            return -1;
        atomic_write(run->counters + STOP, 0);
        run->is_told = run->counters[STATUS] != RUNNING;
        return run->counters[STATUS];
    }
    if (threads->count > 1 && !run->is_open) {
        open_gate(threads, work, run);
        run->is_open = 1;
    }
    work(run, 0);
    const int64_t status = atomic_read(run->counters + STATUS);  // once: helpers go on
    run->is_told = status != RUNNING;
    if (run->is_told)
        leave_run(run, threads);
    return status;
}

/* Wait until no helper is in the run; after an interrupt, with STOP. */
void leave_run(struct run *run, const struct threads *threads)
{
    if (run->is_open)
        close_gate(threads);
    run->is_open = 0;
}

/* Compute the pieces of the phase that threads `first` to `last` (exclusive) of n have, every n-th one, and
   write the ns of each; or, if `first` is n, begin or prepare the next phase, and write its ns. Return the
   status. See virtual_cores.py. */
int64_t run_virtual(struct run *run, int64_t first, int64_t last, int64_t *ns)
{
    int64_t began = nanoseconds_of(CLOCK_THREAD_CPUTIME_ID);
    if (run->contexts)
        enter(run->contexts);
    for (int64_t thread = first; thread < last; thread++)
        for (int64_t n = thread; n < run->piece_count; n += run->threads) {
            compute_piece(run, thread, n);
            const int64_t completed = nanoseconds_of(CLOCK_THREAD_CPUTIME_ID);
            ns[n] = completed - began, began = completed;
        }
    if (first == run->threads) {
        if (run->is_told)
            go_on(run);
        else if (run->counters[STATUS] == RUNNING)
            next_phase(run);
        *ns = nanoseconds_of(CLOCK_THREAD_CPUTIME_ID) - began;
    }
    if (run->contexts)
        leave(run->contexts, 0);
    run->is_told = run->counters[STATUS] != RUNNING;
    return run->counters[STATUS];
}
