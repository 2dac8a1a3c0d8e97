/* Waiting for other threads.

A training step takes less than a millisecond and has four barriers. Barriers of the operating
system take tens of microseconds each, about as long as the work itself on two threads. Waiting
threads therefore spin for some microseconds and then yield the processor. */

#include <sched.h>

#include "kernels.h"

enum { SPINS = 2000 };  // about ten microseconds

void relax(void)
{
#if __has_builtin(__builtin_ia32_pause)
    __builtin_ia32_pause();
#elif __has_builtin(__builtin_arm_isb)
    __builtin_arm_isb(15);  // a short pause; a hint to yield takes no time
#endif
}

void wait_for(int64_t *at, int64_t value)
{
    for (int64_t spins = 1; atomic_read(at) < value; spins++)
        if (spins < SPINS)
            relax();
        else
            sched_yield();
}

void barrier(int64_t *state, int64_t nthreads)
{
    int64_t *arrived = state, *completed = state + LINE / sizeof(int64_t);
    if (nthreads == 1)
        return;
    const int64_t before = atomic_read(completed);
    if (atomic_add(arrived, 1) < nthreads - 1) {
        wait_for(completed, before + 1);
    } else {
        atomic_write(arrived, 0);
        atomic_write(completed, before + 1);
    }
}
