/* Compute several layers of a block in one call, dropping inputs without activations.

    for each layer:   Y' = min(max(Y W + b, 0), clip);  exchange the buffers
                      compact the block when the work spent on dead inputs exceeds its cost

An input is dead if all its activations are 0, otherwise it is alive. Compaction moves alive ones
from the end of the block, with their `ids`, to the positions of dead ones, so that few inputs move.
The result of an input does not depend on its position. */

#include "kernels.h"

/* A block on its way through the layers. */
struct flow {
    real *Y, *Z;
    int64_t stride, count;
    int64_t *ids;
    bits *alive, *overflow;  // of each input; see struct strip
    int64_t *holes, *movers;  // work space of `compact`
};

/* Move the alive ones of the inputs from `left` on to positions of dead inputs before it. */
static void compact(struct flow *x, int64_t nrows, int64_t left)
{
    int64_t moves = 0;
    for (int64_t q = 0; q < left; q++)
        if (x->alive[q] == 0)
            x->holes[moves++] = q;
    moves = 0;
    for (int64_t q = left; q < x->count; q++)
        if (x->alive[q] != 0)
            x->movers[moves++] = q;
    for (int64_t i = 0; i < nrows; i++) {
        real *row = x->Y + i * x->stride;
        for (int64_t m = 0; m < moves; m++)
            row[x->holes[m]] = row[x->movers[m]];
        for (int64_t q = left; q < whole_lines(left); q++)
            row[q] = 0;
    }
    for (int64_t m = 0; m < moves; m++)
        x->ids[x->holes[m]] = x->ids[x->movers[m]];
    x->count = left;
}

/* Add a layer's inputs alive, the inputs that these represent, and their entries to its counters. */
static void take_census(const struct flow *x, const int64_t *multiplicity, int64_t *counters)
{
    for (int64_t q = 0; q < x->count; q++) {
        const bits entries = x->alive[q];
        counters[3] += (int64_t)entries;
        if (entries) {
            counters[1] += 1;
            counters[2] += multiplicity[x->ids[q]];
        }
    }
}

static void count_entries(const struct flow *x, int64_t nrows)
{
    for (int64_t q = 0; q < x->count; q++)
        x->alive[q] = 0;
    for (int64_t i = 0; i < nrows; i++)
        for (int64_t q = 0; q < x->count; q++)
            x->alive[q] += x->Y[i * x->stride + q] != 0;
}

static bool any_overflow(const struct flow *x)
{
    bits overflow = 0;
    for (int64_t q = 0; q < x->count; q++)
        overflow |= x->overflow[q];
    return overflow != 0;
}

static int64_t alive_from(const struct flow *x, int64_t first)
{
    int64_t alive = 0;
    for (int64_t q = first; q < x->count; q++)
        alive += x->alive[q] != 0;
    return alive;
}

/* Take a block through layers `first` to `last` (exclusive).

    Y, Z        the block, of shape (neurons, stride), and a second buffer. Inputs after `count`
                that share its last cache line must be finite, preferably 0.
    ids         one per input; dropped and moved with the inputs
    scratch     4 x stride numbers of work space, aligned to a cache line. Then follows the output:
                the number of inputs left; 1 if they are in Z, else 0; the first layer with a sum
                that is not finite, or -1.
    statistics  null, or two addresses: of five counters per layer, which are incremented (inputs
                computed, inputs alive after the layer, inputs that these represent, entries, clock
                ticks), and of the number of equal inputs that each id represents. Without the
                second one, only inputs are counted. */
void chain(const struct plan *plan, int64_t first, int64_t last, real *Y, real *Z, int64_t stride,
           int64_t count, int64_t *ids, int64_t *scratch, const int64_t *statistics)
{
    struct flow x = {
        Y, Z, stride, count, ids, (bits *)scratch, (bits *)(scratch + stride),
        scratch + 2 * stride, scratch + 3 * stride,
    };
    int64_t *counters = statistics ? (int64_t *)statistics[0] : 0;
    const int64_t *multiplicity = statistics ? (const int64_t *)statistics[1] : 0;
    int64_t k = first, faulty = -1;
    double waste = 0;
    while (k < last && x.count > 0 && faulty < 0) {
        const struct layer *W = plan->table + k;
        const int64_t began = multiplicity ? ticks() : 0;
        compute_layer(W, (struct strip){x.Y, x.Z, stride, x.alive, x.overflow, x.Y}, x.count);
        real *next = x.Z;
        x.Z = x.Y, x.Y = next;
        k += 1;
        if (W->checked && any_overflow(&x)) {
            faulty = k - 1;
            break;
        }
        if (counters)
            counters[5 * (k - 1)] += x.count;
        if (multiplicity) {
            if (!W->counted)
                count_entries(&x, W->ncols);
            take_census(&x, multiplicity, counters + 5 * (k - 1));
            counters[5 * (k - 1) + 4] += ticks() - began;
        }
        const int64_t left = W->counted ? alive_from(&x, 0) : x.count;
        if (left == x.count)
            continue;
        const int64_t moves = alive_from(&x, left);
        const int64_t lanes = whole_lines(x.count) - whole_lines(left);
        waste += (double)(lanes * W->edges) * plan->edge_cost;
        const double cost = (double)W->ncols * (plan->row_cost + (double)moves * plan->move_cost);
        if ((plan->tidy && k == last) || waste > cost) {
            compact(&x, W->ncols, left);
            waste = 0;
        }
    }
    int64_t *output = scratch + 4 * stride;
    output[0] = x.count;
    output[1] = x.Y == Z;
    output[2] = faulty;
}
