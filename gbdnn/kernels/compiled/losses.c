/* Losses of a minibatch's inputs, and their gradients, which replace the outputs. */

#include "kernels.h"

#include <math.h>
#include <tgmath.h>

/* Outputs of one input: those of the next neuron are `stride` elements further. */
struct outputs {
    real *Z;
    int64_t stride, count;
    real scale;  // factor of the gradient
    real low, high;  // outputs at these limits have no gradient
};

/* The gradient d of an output z. */
INLINED real kept(const struct outputs x, real z, real d)
{
    return fabs(d) > TINY && x.low < z && z < x.high ? d : 0;
}

/* Z = (softmax(Z) - onehot(label)) scale. Return the loss, and whether `label` has the first of the
   largest outputs. */
static double cross_entropy(const struct outputs x, int64_t label, uint8_t *hit)
{
    real *Z = x.Z, highest = Z[0];
    int64_t best = 0;
    for (int64_t c = 1; c < x.count; c++)
        if (Z[c * x.stride] > highest) {
            highest = Z[c * x.stride];
            best = c;
        }
    double total = 0;
    for (int64_t c = 0; c < x.count; c++)
        total += exp(Z[c * x.stride] - highest);
    const double loss = log(total) - (double)(Z[label * x.stride] - highest);
    const real r = 1 / total;
    for (int64_t c = 0; c < x.count; c++) {
        const real z = Z[c * x.stride], p = exp(z - highest) * r;
        Z[c * x.stride] = kept(x, z, (c == label ? p - 1 : p) * x.scale);
    }
    *hit = best == label;
    return loss;
}

/* Z = gradient of the mean of (Z - target)^2, which is returned. */
static double squared_error(const struct outputs x, const real *target)
{
    const real scale = 2 * x.scale / (real)x.count;
    double total = 0;
    for (int64_t c = 0; c < x.count; c++) {
        const real z = x.Z[c * x.stride], d = z - target[c];
        total += (double)d * (double)d;
        x.Z[c * x.stride] = kept(x, z, d * scale);
    }
    return total / x.count;
}

void compute_losses(const struct steps *job, int64_t first, int64_t count, int64_t inputs, real *Z)
{
    const real *limits = job->limits;
    const int64_t outputs = job->edges[job->layers - 1].ncols;
    struct outputs x = {Z, job->stride, outputs, 0, limits[0], limits[1]};
    for (int64_t q = 0; q < count; q++, x.Z++) {
        const int64_t place = job->indices[first + q];
        double *loss = job->losses + first + q;
        x.scale = 1 / (real)inputs * job->sample_weights[place];
        if (job->loss == CROSS_ENTROPY)
            *loss = cross_entropy(x, ((const int64_t *)job->targets)[place], job->hits + first + q);
        else
            *loss = squared_error(x, (const real *)job->targets + place * outputs);
        if (!isfinite(*loss))
            atomic_write(job->stopped, 1);
    }
    for (int64_t c = 0; c < outputs; c++)
        for (int64_t q = count; q < whole_lines(count); q++)
            Z[c * job->stride + q] = 0;
}
