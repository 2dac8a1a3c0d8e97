/* Records of the loops of GraphBLAS calls: sparse_loop.c. */

#ifndef GBDNN_LOOPS_H
#define GBDNN_LOOPS_H

#include "kernels.h"

/* A layer of the sparse kernel. */
struct sparse_layer {
    GrB_Matrix W;     // row-wise
    GrB_Matrix D;     // diagonal, a bias per neuron; or null: all have the bias `b`
    GrB_Matrix fill;  // bias rule `all`: one row, the values of neurons without an entry; or null
    int64_t ncols, relu, clipped;
    int64_t checked;    // whether to look for sums that are not finite
    int64_t droppable;  // whether inputs without entries after it stay empty
    int64_t degree, filled;  // most edges of a neuron before it, and entries of `fill`
    double b, clip;
    double most_each;  // entries per input before it up to which the layer is computed here
};

/* Rows `start` to `start + nrows` of the features, before layer `layer`. */
struct row_part {
    GrB_Matrix Y;  // null before they are read, and if none has an entry
    int64_t start, nrows;
    int64_t layer;  // before which they wait; less than the first one: not read
    int64_t ended;  // whether they leave the loop there
    int64_t alive, entries;  // inputs that may have entries, and entries
    int64_t reading;  // ns
    int64_t *counts;  // five numbers per layer, as in `chain`; or null
};

/* Parts of rows on their way through layers `first` to `last` (exclusive). */
struct sparse_run {
    const struct sparse_layer *layers;  // from layer `first` on
    int64_t first, last;
    GrB_Matrix X;  // features, or null: arrays
    const GrB_Index *indptr, *columns;
    const real *values;
    int64_t value_step;  // 0 if all entries have the value values[0]
    int64_t ncols;  // of the features
    const int64_t *stands;  // how many inputs each row represents; or null
    struct row_part *parts;
    int64_t count;
    const struct contexts *contexts;
    int64_t slice, until;  // ns after which a call returns, so that Python sees signals
    int64_t drops;  // whether inputs without entries before the first layer stay empty
    int64_t counted;  // whether inputs that may be dropped are counted, also without statistics
    double most;  // entries of a part after a layer
    double room;  // entries of parts that have ended, beyond which no further part is read
    int64_t *state;  // shared by the threads, as below
};

/* Places in `state`: parts taken in this call, entries of parts that have ended, the first error and
   its layer. */
enum { TAKEN = 0, HELD = 8, FAILED = 16, FAILED_LAYER = 17, STATES = 24 };

/* Activations of parts as the arrays of one matrix. */
struct joining {
    struct row_part *parts;
    const int64_t *which;  // numbers of the parts
    const int64_t *rows, *starts;  // the first row and the first entry of each
    int64_t count;
    GrB_Index *indptr, *columns;
    real *values;
    const struct contexts *contexts;
    int64_t *state;
};

EXPORT int64_t compute_parts(struct sparse_run *run, const struct threads *threads);
EXPORT int64_t join_parts(struct joining *job, const struct threads *threads);
EXPORT void free_parts(struct row_part *parts, int64_t count);

/* Nanoseconds of a clock that runs steadily. */
int64_t nanoseconds(void);

#endif
