/* Types and operations of the compiled kernels.

A library is compiled for one type of number and one level of vector instructions. The compiler's
command line defines

    REAL        float or double
    BITS        unsigned integer of the same size
    PAIR_LINES  cache lines of the widest tile that computes two neurons: 4 with 32 registers of
                a whole line (AVX-512), else 2

A `line` is a vector as large as a cache line, which the compiler divides into the processor's
registers. Each input or feature has a lane of its own, so its bits do not depend on its position.

Python calls the functions marked EXPORT. It reads graphblas.h, shared.h and loops.h (build.py), which
therefore contain only declarations. */

#ifndef GBDNN_KERNELS_H
#define GBDNN_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))
#define INLINED static inline __attribute__((always_inline))
#define APART static __attribute__((noinline))

typedef REAL real;
typedef BITS bits;

enum { LINE = 64, LANES = LINE / sizeof(real) };

typedef real line __attribute__((ext_vector_type(LANES)));
typedef bits bits_line __attribute__((ext_vector_type(LANES)));
typedef bool some_lanes __attribute__((ext_vector_type(LANES)));  // a bit each

#include "graphblas.h"
#include "shared.h"

extern struct graphblas GrB;

/* ------------------------------------------------------------------------------------------------
   Functions that several files call
   --------------------------------------------------------------------------------------------- */

/* A block at some inputs: pointers to the first one. alive[q] counts the nonzero activations of input
   q, and overflow[q] becomes nonzero if a sum is not finite; they are used if the layer asks. */
struct strip {
    const real *Y;
    real *Z;
    int64_t stride;  // elements from one neuron to the next
    bits *alive, *overflow;
    const real *mask;  // a block, read only if the layer is masked
};

void compute_layer(const struct layer *W, struct strip block, int64_t inputs);

/* Write the numbers of an input's nonzero activations, and return how many there are. */
int64_t find_active(const real *y, int64_t nrows, uint32_t *active);

/* Compute rows `first` to `last` (exclusive) of a product with dense weights. Return whether a sum is
   not finite. */
bool multiply_rows(const struct dense *dense, int64_t first, int64_t last);

/* Whether any of `count` numbers is not finite. */
bool any_infinite(const real *z, int64_t count);

/* Compute a layer, or a share of its columns, for a single input, whose `actives` nonzero activations are
   listed in `active`. Return whether a sum is not finite. `cold`: the weights are not in the caches. */
bool compute_single(const struct layer *layer, const uint32_t *active, int64_t actives, const real *y,
                    real *z, bool cold);

/* Training steps. A group's block before layer k, among those in Y or D, or after the last layer. */
INLINED real *block_of(const struct steps *job, real *blocks, int64_t group, int64_t k)
{
    const int64_t n = job->layers, outputs = job->edges[n - 1].ncols;
    real *const first = k < n ? blocks : job->Z;
    return first + job->stride * (k < n ? group * job->starts[n] + job->starts[k] : group * outputs);
}

/* Replace outputs Z of `count` of the `inputs` of a minibatch, from `first` of the
   call on, by the gradient of their losses. */
void compute_losses(const struct steps *job, int64_t first, int64_t count, int64_t inputs, real *Z);

/* Compute a thread's columns of layer k from `lines` lines of inputs; return whether no gradient is
   NaN or too large. */
bool compute_gradient(const struct steps *job, int64_t k, int64_t thread, int64_t lines);

/* Sum a thread's squared gradients by column, and compute the norm of all. */
void add_squares(const struct edges *W, int64_t thread);
double norm(const struct steps *job);

/* Update a thread's columns of layer k; `rates` are those of this step. */
void update(const struct steps *job, int64_t k, int64_t thread, const real *rates, real factor);

/* Copy a thread's part of W to W^T. */
void refresh(const struct edges *W, int64_t thread, int64_t threads);

/* ------------------------------------------------------------------------------------------------
   Vectors, at any address of a number
   --------------------------------------------------------------------------------------------- */

typedef line line_anywhere __attribute__((aligned(sizeof(real))));
typedef bits_line bits_line_anywhere __attribute__((aligned(sizeof(real))));

INLINED line load(const real *from) { return *(const line_anywhere *)from; }

INLINED void store(real *to, line x) { *(line_anywhere *)to = x; }

/* Lanes below `count`. */
INLINED some_lanes lanes_below(int64_t count)
{
    bits_line lane;
#pragma unroll
    for (int k = 0; k < LANES; k++)
        lane[k] = k;
    return __builtin_convertvector(lane < (bits_line)(bits)count, some_lanes);
}

/* The numbers where a mask is set, else 0. */
INLINED line load_some(const real *from, some_lanes mask)
{
    return __builtin_masked_load(mask, from, (line)0);
}

INLINED void store_some(real *to, line x, some_lanes mask) { __builtin_masked_store(mask, x, to); }

/* w y + s, rounded once. */
INLINED line fma_line(line w, line y, line s) { return __builtin_elementwise_fma(w, y, s); }

/* min(max(z, low), high). NaN stays NaN, and -0 becomes 0. */
INLINED line between(line z, real low, real high)
{
    z = (line)low > z ? (line)low : z;
    z = (line)high < z ? (line)high : z;
    return z + 0;
}

/* 0 where y <= low or high <= y, else s. */
INLINED line inside(line y, real low, real high, line s)
{
    return ((y <= (line)low) | (y >= (line)high)) ? (line)0 : s;
}

/* Bits that are not all 0 where s is not finite. */
INLINED bits_line infinite(line s) { return (bits_line)(s - s); }

/* Whether any bit is set. */
INLINED bool any(bits_line x) { return __builtin_reduce_or(x) != 0; }

/* The smallest magnitude that training keeps: subnormal numbers are ten times slower. */
static const real TINY = sizeof(real) == 4 ? 1e-30 : 1e-290;

INLINED int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
INLINED int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* `count` rounded up to whole cache lines. */
INLINED int64_t whole_lines(int64_t count) { return (count + LANES - 1) / LANES * LANES; }

/* ------------------------------------------------------------------------------------------------
   Numbers that several threads read and write
   --------------------------------------------------------------------------------------------- */

INLINED int64_t atomic_add(int64_t *at, int64_t x) { return __atomic_fetch_add(at, x, __ATOMIC_SEQ_CST); }
INLINED int64_t atomic_read(int64_t *at) { return __atomic_load_n(at, __ATOMIC_SEQ_CST); }
INLINED void atomic_write(int64_t *at, int64_t x) { __atomic_store_n(at, x, __ATOMIC_SEQ_CST); }

/* The two ends of the next range, or null if none is left. */
INLINED const int64_t *next_range(const struct ranges *ranges)
{
    const int64_t k = atomic_add(ranges->next, 1);
    return k < ranges->count ? ranges->ends + 2 * k : 0;
}

/* The processor's cycle counter, or 0 if it has none. */
INLINED int64_t ticks(void) { return (int64_t)__builtin_readcyclecounter(); }

/* The processor's hint for loops that wait. */
void relax(void);

/* Wait until a number that other threads write is at least `value`. */
void wait_for(int64_t *at, int64_t value);

/* Call work(job, 0) on this thread and work(job, 1), ... on others, and wait until all calls have
   returned. Unless all threads are needed, calls on helpers are omitted if they could begin only
   afterwards. Return false, with nothing done, if OpenMP has another team than the usual one, or not
   enough threads. */
typedef void (*work_function)(void *job, int64_t thread);
bool work_together(const struct threads *threads, work_function work, void *job);

/* The same in two parts, between which the caller may come and go: let helpers of a team begin, and
   wait for those that have begun. */
void open_gate(const struct threads *threads, work_function work, void *job);
void close_gate(const struct threads *threads);


/* Wait until `nthreads` threads have called this; their earlier writes are visible afterwards.
   `state` holds two numbers a cache line apart, at first 0. */
void barrier(int64_t *state, int64_t nthreads);

#endif
