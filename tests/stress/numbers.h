/* Random numbers and the sum of answers, of loops.c and races.c. */

/* The same numbers on every system. */
static int draw(void)
{
    static uint64_t x = 88172645463325252;
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    return x >> 33;
}

static uint64_t sum;  // of the bits of all answers

static void add_to_sum(const real *y, int64_t count)
{
    bits word;
    for (int64_t k = 0; k < count; k++) {
        memcpy(&word, y + k, sizeof word);
        sum = (sum ^ word) * UINT64_C(0x9E3779B97F4A7C15);
        sum ^= sum >> 32;
    }
}
