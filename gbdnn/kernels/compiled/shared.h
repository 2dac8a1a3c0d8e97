/* Structures and functions that C and Python share: declarations alone, which cffi reads, too
   (build.py). Those of GraphBLAS and its loops are in graphblas.h and loops.h. */

/* A layer: columns of W in the order of computation, from which neurons are computed. */
struct layer {
    int64_t nrows, ncols, edges;
    int64_t weight_step;  // 1, or 0 if all edges have the weight weights[0]
    int64_t bias_step;    // 1, or 0 if all neurons have the bias bias[0]
    int64_t paired;       // whether most columns are in pairs with the same rows
    int64_t dense;        // whether all weights are stored, without row numbers
    int64_t counted;      // whether nonzero activations are counted
    int64_t checked;      // whether to look for sums that are not finite
    int64_t masked;       // whether sums are kept where a mask lies between the limits, else 0
    int64_t panels;       // number of groups of rows by which the edges are sorted
    int64_t first, width;  // for single inputs: the first of the columns here, and number of sums
    const int64_t *indptr;
    const void *rows;  // uint32_t; for single inputs: columns, uint16_t if `width` is at most NEAR
    const uint32_t *places;  // neuron of each column
    const real *weights, *bias;
    const real *limits;  // least and greatest activation
    const uint8_t *pairs;  // 1 where a column and the next one have the same rows
};

/* Consecutive layers for `chain`. */
struct plan {
    const struct layer *table;
    int64_t tidy;  // whether to compact the block at the end
    double edge_cost, read_cost;  // time of a multiply-add, and of reading an edge
    double move_cost, row_cost;  // of moving an activation, and visiting a row, to compact a block
};

enum { STAY = 200000 };  // ns that helpers watch for the next call

/* Threads that compute a call together: the caller and helpers of a team, or those of OpenMP. */
struct threads {
    int64_t count;
    struct team *team;  // of at least `count` - 1 helpers; or null
    int64_t all_needed;  // whether to wait for helpers that come late
    // libgomp's GOMP_parallel, omp_get_thread_num, omp_get_num_threads and omp_get_max_threads
    int64_t parallel, number, size, most;
    int64_t usual;  // size of the team that is meant
};

/* Rows that a run reads: sparse ones; dense ones if X is not null; or those of a matrix. */
struct features {
    const int64_t *indptr, *columns;
    const real *values;
    int64_t value_step;  // as in `fill`
    const real *X;
    int64_t row_stride, column_stride;  // of X
    GrB_Matrix matrix;  // or null; rows are those of the matrix
};

/* Columns of a block, or rows, that pass a window together. */
struct piece {
    int64_t at;  // number of the row, or of the block among the current ones
    int64_t offset;  // the first one of the block's columns that stay
    int64_t count;
};

/* A thread of a run. */
struct worker {
    int64_t *Z;  // number of its second block
    int64_t *pool;  // number of a block of survivors, or -1
    int64_t *scratch;  // as in `chain`
    int64_t *results;  // distinct marks; entries of a dense answer; ns of regrouping; see OWN
};

/* All inputs on their way through the layers; see run.c. Blocks are numbers of places in `memory`, and
   a slot is a column of any block. `places` are where blocks wait: before layer stops[0], stops[1], ...,
   and after the last layer. */
struct run {
    // the layers in memory, from number `loaded` on, before `loaded_end`
    const struct plan *plan, *checked;  // the second one for blocks with larger features
    int64_t loaded, loaded_end;
    const int64_t *positions;  // of the neurons before layer `loaded`
    const int64_t *sizes;  // neurons before each layer, and after the last one
    const int64_t *stops;  // ascending; the last one is the number of layers
    const double *leaving;  // of places: the density below which blocks may leave
    int64_t windows;  // number of stops - 1
    // rows before layer `read_layer`, in parts of `part_rows`, that will wait at `read_place`
    const struct features *parts;
    const int64_t *row_ids;  // or null if the ids are the numbers of the rows
    const int64_t *read_positions;
    int64_t first_row, next_row, last_row;  // of all parts, where to go on, and their end
    int64_t phase_row;  // where the present phase began
    int64_t part_rows, step;  // rows of a part, and of a piece
    int64_t more;  // whether further parts follow
    const struct contexts *contexts;  // to read a matrix, or null
    int64_t read_layer, read_place;
    int64_t largest, infinite;  // bits of the largest feature for which no sum can leave the range
    int64_t limit;  // no window begins after this layer
    // the answer: dense rows, or sparse ones, whose entries are counted before there is memory
    real *answer;
    uint8_t *present;  // as in `to_dense`
    int64_t clears;  // whether rows of dead inputs are not zero yet
    int64_t *degrees;  // of ids: number of entries
    int64_t *offsets;  // of ids: where their entries begin
    int64_t copies;  // whether merged inputs get copies of rows
    int64_t ids;  // their number
    int64_t *answer_columns;
    real *answer_values;
    // sizes
    int64_t neurons, width, stride;  // of a block
    int64_t blocks;
    int64_t threads;  // for which pieces are cut
    int64_t merges;  // 0 never, 1 if many inputs are equal, 2 always
    int64_t most_shared;  // most inputs whose layers are divided among threads
    const double *sharing;  // ns of a layer from which two threads divide it, three, ...
    // memory
    real *memory;
    int64_t *numbers;  // of slots: ids
    int64_t *counts, *kept, *unread, *flagged, *repeated, *next;  // of blocks
    int64_t *unused, *current, *finished;  // numbers of blocks
    int64_t *heads, *waiting;  // of places: the first block, which has a next one, and their number
    int32_t *keep, *repeats;  // of slots: columns that stay, and those with an equal mark before
    uint64_t *marks;  // of slots
    int64_t *leaders;  // of slots: slot of the first equal mark
    uint8_t *differs;  // of slots
    int64_t *table;  // of slots with distinct marks
    int64_t table_size;  // a power of two
    const uint64_t *factors;
    int64_t *parents, *multiplicity;  // of ids: the one that represents it; how many it represents
    int64_t census;  // whether the log has all counters, or only inputs
    struct piece *pieces;
    struct worker *workers;
    int64_t *log;  // a record per piece, and per merge; or null
    int64_t log_size, log_needed;
    int64_t *counters;  // see below
    // state
    int64_t slice;  // ns after which the caller's thread returns
    int64_t is_told;  // whether the caller has seen the status
    int64_t is_open, phase, place, reading, piece_count, whole, unused_count, currents, generation, in_place;
    int64_t share_layer, share_block, share_count, asked;
    int64_t *share_record;  // of the log
    int64_t *alive;  // of shares and of inputs: nonzero activations
    int64_t wanted;  // the layer to load, or where blocks may leave
    int64_t faulty_layer, faulty_row;
};

/* Places in a run's counters, in cache lines of their own: the status, whether to stop, pieces that
   nobody has taken, pieces completed, blocks finished, a lock, and numbers used of the log. */
enum { STATUS = 0, STOP = 8, LEFT = 16, DONE = 24, FINISHES = 32, LOCK = 40, LOGGED = 48 };
enum { COUNTERS = 56 };

/* Values of the status, for which a call returns. */
enum { RUNNING, READ, LOAD, LEAVE, SIZED, LOG, IDLE, COMPLETE, FAULT };

/* A record of the log: its length, written at last, a layer and the number of those that follow,
   inputs before and after them, ns of reading, computing and the rest; then five counters per layer,
   as in `chain`. */
enum { LENGTH, LAYER, LAYERS, BEFORE, AFTER, READING, COMPUTING, REST, RECORD };

/* Ranges of rows, of which threads take one after the other. */
struct ranges {
    const int64_t *ends;  // first row and last row (exclusive) of each
    int64_t count;
    int64_t most;  // ranges of a call, which cannot be interrupted
    int64_t *next;  // shared by the threads
};

/* The product of a graph matrix A and a full matrix Y. */
struct product {
    const int64_t *indptr;
    const int64_t *places;  // row of `start` and Z for each row of A; null if equal
    const uint64_t *columns;
    int64_t weight_step;
    int64_t stride;  // elements from one row of Y to the next
    int64_t features;
    int64_t start_stride;  // 0 if all rows start equally
    int64_t z_stride;
    const real *weights, *Y, *start;
    real *Z;
    double low, high;  // limits of Z
    const struct dense *next;  // multiplies rows of Z, which are then not stored; or null
};

/* The product of a matrix Y and dense weights W. */
struct dense {
    int64_t nrows, ncols;  // of W
    int64_t stride;  // elements from one row of Y to the next
    int64_t w_stride;
    int64_t start_stride;  // 0 if all rows start equally
    int64_t z_stride;
    const int64_t *ids;  // rows of Y; null if they are those of Z
    const real *W, *Y, *start;
    real *Z;
    double low, high;  // limits of Z
};

/* A narrow block, or one input, whose layers are divided among threads. */
struct job {
    const struct layer *table;  // `shares` records of the first layer, of the second, ...
    int64_t shares, layers;
    int64_t stride, inputs;  // of the block in Y
    int64_t neurons;  // numbers per thread in `active`
    real *Y, *Z;  // activations and a second buffer; the result is in Y if `layers` is even
    uint32_t *active;  // work space for single inputs
    int64_t cold;  // whether other work came before this call, so that weights are not in the caches
    int64_t *counters;  // PROGRESS + 2 layers
};

/* Places in a job's counters.

    FAULTY    for single inputs: 0, or 1 + the first layer with a sum that is not finite, or
              1 + `layers` if a feature is not finite
    PROGRESS  from here on, for each layer, the numbers of shares begun and completed */
enum { FAULTY = 0, PROGRESS = 8 };

/* Training steps. Blocks are those of a group of `group_lines` lines of inputs. */
struct steps {
    int64_t layers, batch, count;
    const struct layer *forward, *backward;  // of all layers
    const struct edges *edges;
    int64_t group_lines, stride, loss, optimizer, threads, passes;
    int64_t row_stride, column_stride;  // of X
    const void *targets;  // labels as int64_t, or a number per output
    const int64_t *starts;  // of each layer, number of neurons before the layers below it
    real *Y, *D;  // blocks of activations before each layer, and of their gradients, group after group
    real *Z;  // blocks after the last layer: activations, then their gradients
    const int64_t *indices;
    int64_t *barrier, *stopped;
    const real *limits, *X, *sample_weights;
    const real *rates;  // three numbers per step: learning rate, and Adam's two corrections
    const real *constants;  // momentum or beta1, beta2, epsilon, weight decay, largest norm or 0
    double *losses;
    uint8_t *hits;
    int64_t out_stride;  // of `out`
    real *out;  // rows of outputs, or of gradients of the inputs
    int64_t done;  // number of complete steps
};

/* A layer's edges in training. */
struct edges {
    int64_t nrows, ncols, edges, dense, panels;
    const int64_t *indptr;
    const int64_t *cuts;  // first column of each thread
    const uint32_t *rows, *places, *transposed_edges;
    real *weights, *gradient, *first, *second;  // moments
    real *bias, *bias_gradient, *bias_first, *bias_second;
    real *transposed;  // weights in the order of the transposed matrix
    double *squares;  // of gradients, by column
};

enum { DENSE_GROUP = 24 };  // columns, a multiple of the neurons that a dense tile computes
enum { NEAR = 65536 };  // most neurons of a layer that single inputs address with uint16_t
enum { BLOCK_ROWS = 60 };  // of a product, multiplied by dense weights while they are in the cache
enum { CROSS_ENTROPY, SQUARED_ERROR };  // losses
enum { SGD, NESTEROV, ADAM };  // optimizers

/* Passes of a call, a sum. A loss or an optimizer in NumPy runs between two calls.

    REFRESH          first of all, copy W to W^T, after W was modified from outside
    OUTPUT           after FORWARD, write the outputs to `out`
    OUTPUT_GRADIENT  before BACKWARD, read the gradients of the outputs from X
    INPUT_GRADIENT   after BACKWARD, write the gradients of the inputs to `out` */
enum { FORWARD = 1, LOSS_GRADIENT = 2, BACKWARD = 4, UPDATE = 8 };
enum { OUTPUT = 16, OUTPUT_GRADIENT = 32, INPUT_GRADIENT = 64, REFRESH = 128 };

/* ------------------------------------------------------------------------------------------------
   Functions that Python calls
   --------------------------------------------------------------------------------------------- */

EXPORT void chain(const struct plan *plan, int64_t first, int64_t last, real *Y, real *Z,
                  int64_t stride, int64_t count, int64_t *ids, int64_t *scratch,
                  const int64_t *statistics);

EXPORT struct team *open_team(void);
EXPORT int64_t may_move(struct team *team, int64_t count);
EXPORT void assist(struct team *team, int64_t number);

EXPORT int64_t run(struct run *run, const struct threads *threads);
EXPORT int64_t place_rows(struct run *run, int64_t *ids, int64_t *indptr);
EXPORT void leave_run(struct run *run, const struct threads *threads);
EXPORT int64_t run_virtual(struct run *run, int64_t first, int64_t last, int64_t *ns);

EXPORT int64_t from_dense(const real *X, int64_t row_stride, int64_t column_stride,
                          const int64_t *ids, int64_t count, const int64_t *positions, real *Y,
                          int64_t stride, int64_t nrows);
EXPORT int64_t to_dense(const real *Y, int64_t stride, int64_t ncols, const int64_t *ids,
                        int64_t count, real *X, int64_t row_stride, uint8_t *present);

EXPORT void fill(const int64_t *indptr, const int64_t *columns, const real *values,
                 int64_t value_step, int64_t first, int64_t count, const int64_t *positions, real *Y,
                 int64_t stride, int64_t nrows);
EXPORT void count(const real *Y, int64_t stride, int64_t nrows, int64_t inputs, int64_t *counts);
EXPORT void extract(const real *Y, int64_t stride, int64_t ncols, const int64_t *positions,
                    int64_t inputs, int64_t *places, int64_t *columns, real *values);
EXPORT int64_t first_equal(const int64_t *indptr, const int64_t *columns, const real *values,
                           int64_t nrows, int64_t *table, int64_t size, int64_t *first);

EXPORT void patterns(const int64_t *indptr, const int64_t *rows, int64_t ncols, double *mean,
                     uint64_t *mark);
EXPORT void arrange(const int64_t *indptr, const int64_t *rows, const real *weights,
                    const int64_t *order, int64_t ncols, uint8_t *pairs, int64_t *new_indptr,
                    uint32_t *new_rows, real *new_weights);
EXPORT void panels(const int64_t *indptr, const int64_t *rows, const real *weights, int64_t ncols,
                   int64_t size, int64_t count, int64_t *cursors, int64_t *new_indptr,
                   uint32_t *new_rows, real *new_weights);

EXPORT int64_t share_block(struct job *job, const struct threads *threads);
EXPORT int64_t share_single(struct job *job, const struct threads *threads);

EXPORT int64_t gather(const struct product *product, const struct ranges *ranges, real *block);
EXPORT int64_t multiply(const struct dense *dense, const struct ranges *ranges);

EXPORT int64_t steps(struct steps *job, const struct threads *threads);
