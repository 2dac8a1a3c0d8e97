/* A program for ThreadSanitizer: random networks on one thread and on four, in slices of 30 us, with
   equal answers. races.py compiles and runs it. */

#define _POSIX_C_SOURCE 200809L

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run.h"
#include "numbers.h"

enum { NEURONS = 64, DEPTH = 40, EDGES = 4, INPUTS = 1500, WIDTH = 64, STRIDE = 80, BLOCKS = 90 };

static struct layer table[DEPTH];
static int64_t stops[] = {0, 6, 10, 14, 20, 30, DEPTH}, sizes[DEPTH + 1];

static void *must(size_t size)
{
    char *found = calloc(1, size + 64);
    return found + 64 - (uintptr_t)found % 64;
}

static void make_network(void)
{
    for (int k = 0; k < DEPTH; k++) {
        int64_t *indptr = must((NEURONS + 1) * 8);
        uint32_t *rows = must(NEURONS * EDGES * 4), *places = must(NEURONS * 4);
        real *limits = must(2 * sizeof(real)), *bias = must(sizeof(real));
        real *weights = must(NEURONS * EDGES * sizeof(real));
        for (int j = 0; j < NEURONS; j++) {
            indptr[j + 1] = (j + 1) * EDGES;
            places[j] = j;
            for (int e = 0; e < EDGES; e++) {
                rows[j * EDGES + e] = draw() % NEURONS;
                weights[j * EDGES + e] = k < DEPTH - 1 ? 0.45 : 0.01 * (draw() % 90 - 10);
            }
        }
        limits[1] = 1, bias[0] = -0.12;
        table[k] = (struct layer){NEURONS, NEURONS, NEURONS * EDGES, 1, 0, 0, 0, 1, 0, 0, 1, 0, 0,
                                  indptr, rows, places, weights, bias, limits, must(NEURONS)};
    }
}

static struct { struct team *team; int64_t number; } helpers[8];

static void *help(void *at)
{
    const int64_t k = (int64_t)at;
    assist(helpers[k].team, helpers[k].number);
    return 0;
}

static int64_t answer(int64_t threads, const struct threads *record, const int64_t *indptr,
                      const int64_t *columns, const real *value, real **values)
{
    enum { WINDOWS = 6, SLOTS = BLOCKS * WIDTH };
    struct plan plan = {table, 1, 0.03, 0, 0.7, 10};
    static const double sharing[4] = {0};  // always
    struct features part = {.indptr = indptr, .columns = columns, .values = value};
    struct run *r = must(sizeof *r);
    struct worker *workers = must(threads * sizeof *workers);
    *r = (struct run){.plan = &plan, .checked = &plan, .loaded_end = DEPTH, .sizes = sizes, .stops = stops,
                      .windows = WINDOWS, .parts = &part, .last_row = INPUTS, .part_rows = 1536,
                      .step = WIDTH, .read_place = 1, .limit = DEPTH, .ids = INPUTS, .neurons = NEURONS,
                      .width = WIDTH, .stride = STRIDE, .blocks = BLOCKS, .threads = threads,
                      .merges = 2, .most_shared = 64, .sharing = sharing, .table_size = 1 << 14, .slice = 30000,
                      .workers = workers, .is_told = 1, .census = 1, .log_size = 1 << 16};
    r->memory = must(SLOTS / WIDTH * NEURONS * STRIDE * sizeof(real));
    int64_t **longs[] = {&r->counts, &r->kept, &r->unread, &r->flagged, &r->repeated,
                         &r->next, &r->unused, &r->current, &r->finished};
    for (int k = 0; k < 9; k++)
        *longs[k] = must(BLOCKS * 8);
    r->numbers = must(SLOTS * 8), r->leaders = must(SLOTS * 8), r->marks = must(SLOTS * 8);
    r->keep = must(SLOTS * 4), r->repeats = must(SLOTS * 4), r->differs = must(SLOTS);
    r->table = must((1 << 14) * 8), r->pieces = must(2 * BLOCKS * sizeof(struct piece));
    r->parents = must(INPUTS * 8), r->multiplicity = must(INPUTS * 8), r->degrees = must(INPUTS * 8);
    r->heads = must(8 * (WINDOWS + 1)), r->waiting = must(8 * (WINDOWS + 1));
    r->leaving = must(8 * (WINDOWS + 1)), r->alive = must(threads * 64 * 8);
    r->counters = must(COUNTERS * 8), r->log = must((1 << 16) * 8);
    r->counters[STATUS] = READ;
    uint64_t *factors = must(NEURONS * 8);
    for (int k = 0; k < NEURONS; k++)
        factors[k] = (k + 1) * UINT64_C(0x9E3779B97F4A7C15) | 1;
    r->factors = factors;
    for (int i = 0; i < INPUTS; i++)
        r->parents[i] = i, r->multiplicity[i] = 1;
    for (int k = 0; k <= WINDOWS; k++)
        r->heads[k] = -1;
    for (int n = 0; n < threads; n++) {
        int64_t *state = must(64);
        state[0] = BLOCKS - 1 - n, state[1] = state[5] = -1;
        workers[n] = (struct worker){state, state + 1, must((4 * STRIDE + 8) * 8), state + 2};
    }
    for (int k = 0; k < BLOCKS - threads; k++)
        r->unused[r->unused_count++] = k;
    int64_t status, *offsets = must((INPUTS + 1) * 8);
    while ((status = run(r, record)) != COMPLETE && status != FAULT) {
        if (status == LOG)
            memset(r->log, 0, (1 << 16) * 8), r->counters[LOGGED] = 0;
        if (status != SIZED)
            continue;
        place_rows(r, 0, offsets);
        r->offsets = offsets;
        r->answer_columns = must((offsets[INPUTS] + 16) * 8);
        r->answer_values = must((offsets[INPUTS] + 16) * sizeof(real));
    }
    *values = r->answer_values;
    return status == COMPLETE ? offsets[INPUTS] : -1;
}

int main(void)
{
    for (int k = 0; k <= DEPTH; k++)
        sizes[k] = NEURONS;
    struct threads alone = {.count = 1}, four = {.count = 4, .team = open_team()};
    for (int64_t k = 1; k < 4; k++) {
        pthread_t thread;
        helpers[k].team = four.team, helpers[k].number = k;
        pthread_create(&thread, 0, help, (void *)k);
    }
    for (int round = 0; round < 20; round++) {
        make_network();
        int64_t *indptr = must((INPUTS + 1) * 8), *columns = must(INPUTS * 20 * 8);
        static real one = 1, *a, *b;
        for (int i = 0; i < INPUTS; i++) {
            const bool again = i > 0 && draw() % 3 == 0;
            const int64_t before = again ? indptr[i] - indptr[i - 1] : 0;
            int64_t e = indptr[i];
            for (int64_t k = 0; k < before; k++)
                columns[e++] = columns[indptr[i - 1] + k];
            for (int c = 0; !before && c < NEURONS && e < indptr[i] + 20; c++)
                if (draw() % 4 == 0)
                    columns[e++] = c;
            indptr[i + 1] = e;
        }
        const int64_t x = answer(1, &alone, indptr, columns, &one, &a);
        const int64_t y = answer(4, &four, indptr, columns, &one, &b);
        if (x < 0 || x != y || memcmp(a, b, x * sizeof *a)) {
            printf("round %d: %ld and %ld entries, different\n", round, (long)x, (long)y);
            return 1;
        }
        add_to_sum(a, x);
        if (round % 10 == 0)
            printf("round %d: %ld entries\n", round, (long)x);
    }
    printf("equal answers, %llx\n", (unsigned long long)sum);
    return 0;
}
