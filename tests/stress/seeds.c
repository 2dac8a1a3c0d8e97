/* What a call of the kernels meets, for seeds.py; the compiler calls the functions with two
   underscores.

   edges: a counter of each edge of the control flow
   pairs: of each comparison of integers, whether they were equal, neighbours or further apart */

#include <stdint.h>
#include <string.h>

#define SHARED __attribute__((visibility("default"), no_sanitize("coverage")))
#define PAIRS 1048573 /* a prime; different pairs may have one place */

static uint8_t *first, *last, pairs[PAIRS];

SHARED void __sanitizer_cov_8bit_counters_init(uint8_t *from, uint8_t *to)
{
    first = from;
    last = to;
}

__attribute__((no_sanitize("coverage"))) static void pair(void *site, int64_t a, int64_t b)
{
    const int64_t apart = (int64_t)((uint64_t)a - (uint64_t)b);
    const int kind = apart > 1 ? 4 : apart < -1 ? 3 : (int)apart + 1;
    pairs[((uint64_t)((uint8_t *)site - pairs) * 8 + kind) % PAIRS] = 1;
}

#define COMPARES(bytes, integer)                                                                   \
    SHARED void __sanitizer_cov_trace_cmp##bytes(integer a, integer b)                             \
    {                                                                                              \
        pair(__builtin_return_address(0), a, b);                                                   \
    }                                                                                              \
    SHARED void __sanitizer_cov_trace_const_cmp##bytes(integer a, integer b)                       \
    {                                                                                              \
        pair(__builtin_return_address(0), a, b);                                                   \
    }

COMPARES(1, int8_t)
COMPARES(2, int16_t)
COMPARES(4, int32_t)
COMPARES(8, int64_t)

SHARED void __sanitizer_cov_trace_switch(uint64_t value, uint64_t *cases)
{
    (void)value;
    (void)cases;
}

/* Copy what was met since the last call, edges first, unless `met` is NULL; return its size. */
SHARED int64_t take(uint8_t *met)
{
    const int64_t edges = last - first;
    if (met) {
        memcpy(met, first, edges);
        memcpy(met + edges, pairs, PAIRS);
        memset(first, 0, edges);
        memset(pairs, 0, PAIRS);
    }
    return edges + PAIRS;
}
