/* Read `count` times LINES cache lines, `passes` times, and add w times each to LINES sums in
   registers, where w is the first line of `out`, which receives the sums. */

#include <stdint.h>

typedef float line __attribute__((ext_vector_type(16)));

void stream(const line *buffer, int64_t count, int64_t passes, line *out)
{
    const line w = out[0];
    line s[LINES] = {0};
    for (int64_t pass = 0; pass < passes; pass++)
        for (int64_t i = 0; i < count; i++)
#pragma unroll
            for (int k = 0; k < LINES; k++)
                s[k] = __builtin_elementwise_fma(w, buffer[i * LINES + k], s[k]);
    for (int k = 0; k < LINES; k++)
        out[k] = s[k];
}
