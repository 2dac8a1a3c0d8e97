/* What the files of a run share: blocks, phases, and the log. See run.c. */

#ifndef GBDNN_RUN_H
#define GBDNN_RUN_H

#include "kernels.h"

enum { OWN = 3 };  // place in the results of a worker: number of a block to use next, or -1
enum { WINDOW, FIND, COMPARE, KEEP, SHARE, EXTRACT, COPY, PHASES };
enum {
    ROWS = 16,  // neurons at which inputs are compared at a time
    RANGE = 1024,  // inputs of a piece of the answer
    NARROW = 32,  // inputs below which a further thread does not help
};

INLINED real *block(const struct run *run, int64_t y) { return run->memory + y * run->neurons * run->stride; }
INLINED int64_t *ids_of(const struct run *run, int64_t y) { return run->numbers + y * run->width; }

/* Layers of the current window, and the place after it. */
INLINED int64_t place_after(const struct run *run) { return run->reading ? run->read_place : run->place + 1; }
INLINED int64_t first_layer(const struct run *run)
{
    return run->reading ? run->read_layer : run->stops[run->place];
}
INLINED int64_t last_layer(const struct run *run) { return run->stops[place_after(run)]; }
INLINED bool is_last(const struct run *run) { return place_after(run) == run->windows; }

// windows.c
void put_block(struct run *run, int64_t y);
void keep_block(struct run *run, struct worker *worker, int64_t y);
void finish_block(struct run *run, int64_t y);
void take_through(struct run *run, struct worker *worker, struct piece p);
void take_share(struct run *run, struct worker *worker, int64_t share);
bool end_share(struct run *run);
int64_t gather_columns(struct run *run, struct worker *worker, struct piece p, int64_t nrows);

// equal.c
void mark_inputs(const struct run *run, int64_t y, int64_t neurons);
void find_equal(struct run *run, struct worker *worker, int64_t b);
void compare_inputs(struct run *run, int64_t first, int64_t last);
void keep_columns(struct run *run, int64_t b);

// answer.c
void answer_block(struct run *run, struct worker *worker, int64_t y, int64_t before, int64_t row);
void extract_block(struct run *run, struct worker *worker, int64_t y);
void copy_merged(struct run *run, int64_t range);

// run.c
int64_t now(void);  // ns
void fail(struct run *run, int64_t layer, int64_t row);
int64_t *log_record(struct run *run, int64_t layers);

#endif
