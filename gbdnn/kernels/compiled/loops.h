/* Records of the loops of GraphBLAS calls: loop.c, sparse_loop.c, full_loop.c. */

#ifndef GBDNN_LOOPS_H
#define GBDNN_LOOPS_H

#include "kernels.h"

/* A layer of the sparse kernel, or of the full one. */
struct loop_layer {
    GrB_Matrix W;     // row-wise; column-wise in the full kernel
    int64_t ncols, edges;
    int64_t relu, clipped;
    double b, clip;
    int64_t checked;    // whether to look for sums that are not finite
    int64_t droppable;  // whether inputs without entries after it stay empty
    double limit;  // entries per input before it up to which, or in the full kernel from which, the layer is computed here
    // sparse kernel
    GrB_Matrix D;     // diagonal, a bias per neuron; or null: all have the bias `b`
    GrB_Matrix fill;  // bias rule `all`: one row, the values of neurons without an entry; or null
    int64_t degree, filled;  // most edges of a neuron before it, and entries of `fill`
    // full kernel
    const real *biases;  // one per neuron; or null: all have the bias `b`
};

/* Rows `start` to `start + nrows` of the features, before layer `layer`. */
struct row_part {
    GrB_Matrix Y;  // null before they are read, if none has an entry, and while they are in a block
    int64_t start, nrows;
    int64_t layer;  // before which they wait; less than the first one: not read
    int64_t ended;  // whether they leave the loop there
    int64_t alive, entries;  // inputs that may have entries, and entries
    int64_t reading;  // ns
    int64_t *counts;  // five numbers per layer, as in `chain`; or null
    // full kernel
    real *block, *other;  // activations, and memory for those after the next layer
    int64_t *ids, *degrees;  // of each input in the block: its number from `start` on, and its entries
    int64_t count;  // inputs in the block
    double waste;  // ns that dead inputs have taken since they could have been dropped
};

/* Parts of rows on their way through layers `first` to `last` (exclusive). */
struct loop_run {
    const struct loop_layer *layers;  // from layer `first` on
    int64_t first, last;
    int64_t width;  // inputs of a panel in the full kernel, or 0: sparse kernel
    // features: a matrix, dense rows, or arrays of sparse ones
    GrB_Matrix X;
    const real *dense;
    int64_t row_stride, column_stride;
    const GrB_Index *indptr, *columns;
    const real *values;
    int64_t value_step;  // 0 if all entries have the value values[0]
    int64_t ncols;  // of the features
    const int64_t *multiplicity;  // how many inputs each row represents; or null
    struct row_part *parts;
    int64_t count;
    const struct contexts *contexts;
    int64_t slice, until;  // ns after which a call returns, so that Python sees signals
    int64_t drops;  // whether inputs without entries before the first layer stay empty
    int64_t counted;  // whether inputs that may be dropped are counted, also without statistics
    double most;  // entries of a part after a layer
    double room;  // entries of parts that have ended, beyond which no further part is read
    int64_t *state;  // shared by the threads, as below
    // full kernel
    double edge_cost, move_cost;  // ns of a multiply-add, and of moving an activation
    real *answer;  // dense rows after layer `last`; or null: parts become matrices
    uint8_t *present;  // as in `to_dense`
    const int64_t *ids;  // of the features: rows of the answer
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

EXPORT int64_t compute_parts(struct loop_run *run, const struct threads *threads);
EXPORT int64_t join_parts(struct joining *job, const struct threads *threads);
EXPORT void free_parts(struct row_part *parts, int64_t count);

/* Read a part. */
GrB_Info read_rows(const struct loop_run *run, struct row_part *part);
GrB_Info read_block(const struct loop_run *run, struct row_part *part);

/* Take a part through a layer. Write the inputs with entries, and for how many they stand, if they are
   asked for, and the entries. */
GrB_Info advance_rows(const struct loop_run *run, struct row_part *part, int64_t counts[3]);
GrB_Info advance_block(const struct loop_run *run, struct row_part *part, int64_t counts[3]);

/* Move a block's activations to the answer, or to a matrix. */
GrB_Info leave_block(const struct loop_run *run, struct row_part *part);
void free_block(struct row_part *part);

/* Count rows with entries, and the inputs that they stand for. */
GrB_Info count_alive(const struct loop_run *run, const struct row_part *part, int64_t counts[2]);

/* Neurons before a part's layer. */
int64_t neurons(const struct loop_run *run, const struct row_part *part);

/* Nanoseconds of a clock that runs steadily. */
int64_t nanoseconds(void);

#endif
