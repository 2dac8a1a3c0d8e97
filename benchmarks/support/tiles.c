/* Take dense inputs through all layers of another library, tile by tile of some inputs.

    for each tile:   Y = rows of X, transposed;  for each layer:  Z = W Y,  Y = clip(Z + b);  rows = Y'

Libraries whose products read neurons x inputs are fastest with few columns, which Python cannot
afford. Threads call this at the same time and take tiles until none is left. */

#include <stdint.h>

enum { NON_TRANSPOSE = 10, ROW_MAJOR = 101 };  // of MKL

struct description { int type, mode, diagonal; };

typedef int mkl_product(int, float, void *, struct description, int, const float *, int, int, float,
                        float *, int);
typedef void product(void *, const float *, float *);

/* `mkl` is mkl_sparse_s_mm, or null; then `other` computes the product of a matrix. `sizes` are the
   neurons before and after each layer, `Y` and `Z` have room for a tile of the widest layer. */
void tiles(mkl_product *mkl, product *other, int64_t layers, void **matrices, const int64_t *sizes,
           const float **biases, const float *limits, const float *X, float *answer, int64_t inputs,
           int64_t width, int64_t *next, float *Y, float *Z)
{
    const struct description general = {20, 40, 50};
    for (;;) {
        const int64_t start = __atomic_fetch_add(next, width, __ATOMIC_RELAXED);
        if (start >= inputs)
            return;
        const int64_t count = inputs - start < width ? inputs - start : width;
        for (int64_t i = 0; i < sizes[0]; i++)
            for (int64_t q = 0; q < width; q++)
                Y[i * width + q] = q < count ? X[(start + q) * sizes[0] + i] : 0;
        for (int64_t k = 0; k < layers; k++) {
            if (mkl)
                mkl(NON_TRANSPOSE, 1, matrices[k], general, ROW_MAJOR, Y, width, width, 0, Z, width);
            else
                other(matrices[k], Y, Z);
            const float low = limits[2 * k], high = limits[2 * k + 1];
            for (int64_t j = 0; j < sizes[k + 1]; j++)
                for (int64_t q = 0; q < width; q++) {
                    const float z = Z[j * width + q] + biases[k][j];
                    Z[j * width + q] = z < low ? low : z > high ? high : z;
                }
            float *const swap = Y;
            Y = Z, Z = swap;
        }
        for (int64_t q = 0; q < count; q++)
            for (int64_t j = 0; j < sizes[layers]; j++)
                answer[(start + q) * sizes[layers] + j] = Y[j * width + q];
    }
}
