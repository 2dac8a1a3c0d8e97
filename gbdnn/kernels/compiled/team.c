/* Calls that several threads compute together.

    the caller    opens the gate;  work(job, 0);  closes the gate;  waits for helpers within
    a helper      waits until the gate is open;  enters;  work(job, number);  leaves

A helper that comes late finds the gate closed, and the caller does not wait for it, unless all
threads are needed.

Threads of Python would need its lock to begin, one after the other, which takes as long as computing
some inputs. Helpers wait in compiled code: for the time that usually passes between two calls they
watch the gate, then they sleep. */

#define _GNU_SOURCE  // clock_gettime, sched_getcpu

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "loops.h"

#ifdef _WIN32
#define aligned_alloc(alignment, size) _aligned_malloc(size, alignment)
#endif

enum { LOOKS = 64 };  // at the gate between times
enum { CONDITIONS = 64 };  // of helpers that sleep; more of them share one

struct team {
    _Alignas(LINE) int64_t gate;  // how often a call has begun or ended: odd while it is open
    _Alignas(LINE) int64_t within;  // minus the number of helpers in a call
    _Alignas(LINE) int64_t completed;  // number of helpers that have done their part of a call
    _Alignas(LINE) int64_t asleep[CONDITIONS];  // number of helpers
    int64_t count;  // threads of the call
    work_function work;
    void *job;
    pthread_mutex_t mutex;
    pthread_cond_t begun[CONDITIONS];  // by number: a call wakes the helpers that it takes along
#ifdef __linux__
    cpu_set_t elsewhere;  // cores of the last caller that woke helpers, but for the one it ran on
#endif
};

/* Return a team without helpers, or null if there is no memory. It is never freed, since
   helpers watch it until the process ends. */
struct team *open_team(void)
{
    struct team *team = aligned_alloc(LINE, sizeof(struct team));
    if (team) {
        *team = (struct team){0};
        pthread_mutex_init(&team->mutex, 0);
        for (int64_t n = 0; n < CONDITIONS; n++)
            pthread_cond_init(&team->begun[n], 0);
    }
    return team;
}

/* Return how many helpers that a call on `count` threads takes along are asleep. */
static int64_t sleeping(struct team *team, int64_t count)
{
    int64_t found = 0;
    for (int64_t n = 1; n < least(count, CONDITIONS + 1); n++)
        found += atomic_read(team->asleep + n % CONDITIONS);
    return found;
}

/* Whether helpers of a call are asleep that may have to wake on other cores than for the last call. */
int64_t may_move(struct team *team, int64_t count)
{
#ifdef __linux__
    if (sleeping(team, count)) {
        cpu_set_t cores;
        if (sched_getaffinity(0, sizeof cores, &cores))
            return true;
        CPU_CLR(sched_getcpu(), &cores);
        if (!CPU_EQUAL(&cores, &team->elsewhere)) {
            team->elsewhere = cores;
            return true;
        }
    }
#endif
    return false;
}

int64_t nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* Whether a call that this helper has not seen takes it along. */
static bool is_called(struct team *team, int64_t number, int64_t seen)
{
    const int64_t gate = atomic_read(&team->gate);
    return gate % 2 && gate != seen && number < atomic_read(&team->count);
}

/* Return the gate when it is open for a helper. */
static int64_t open_for(struct team *team, int64_t number, int64_t seen)
{
    for (const int64_t since = nanoseconds(); nanoseconds() - since < STAY; sched_yield())
        for (int64_t looks = 0; looks < LOOKS; looks++, relax())
            if (is_called(team, number, seen))
                return atomic_read(&team->gate);
    pthread_mutex_lock(&team->mutex);
    atomic_add(team->asleep + number % CONDITIONS, 1);
    while (!is_called(team, number, seen))
        pthread_cond_wait(&team->begun[number % CONDITIONS], &team->mutex);
    atomic_add(team->asleep + number % CONDITIONS, -1);
    pthread_mutex_unlock(&team->mutex);
    return atomic_read(&team->gate);
}

void assist(struct team *team, int64_t number)
{
    for (int64_t gate = 0;;) {
        gate = open_for(team, number, gate);
        atomic_add(&team->within, -1);
        if (gate % 2 && atomic_read(&team->gate) == gate && number < team->count) {
            team->work(team->job, number);
            atomic_add(&team->completed, 1);
        }
        atomic_add(&team->within, 1);
    }
}

void open_gate(const struct threads *threads, work_function work, void *job)
{
    struct team *team = threads->team;
    atomic_write(&team->count, threads->count);
    team->work = work;
    team->job = job;
    atomic_write(&team->completed, 0);
    atomic_add(&team->gate, 1);
    if (sleeping(team, threads->count)) {
        pthread_mutex_lock(&team->mutex);
        for (int64_t n = 1; n < least(threads->count, CONDITIONS + 1); n++)
            pthread_cond_broadcast(&team->begun[n % CONDITIONS]);
        pthread_mutex_unlock(&team->mutex);
    }
}

void close_gate(const struct threads *threads)
{
    atomic_add(&threads->team->gate, 1);
    wait_for(&threads->team->within, 0);
}

static void lead(const struct threads *threads, work_function work, void *job)
{
    open_gate(threads, work, job);
    work(job, 0);
    if (threads->all_needed)
        wait_for(&threads->team->completed, threads->count - 1);
    close_gate(threads);
}

/* A call for OpenMP's threads. */
struct openmp_call {
    const struct threads *threads;
    work_function work;
    void *job;
    int64_t is_too_small;  // whether they are fewer
};

static void take_part(void *given)
{
    struct openmp_call *call = given;
    const int64_t thread = ((int (*)(void))call->threads->number)();
    if (((int (*)(void))call->threads->size)() < call->threads->count)
        atomic_write(&call->is_too_small, 1);
    else if (thread < call->threads->count)
        call->work(call->job, thread);
}

bool work_together(const struct threads *threads, work_function work, void *job)
{
    if (threads->count == 1) {
        work(job, 0);
    } else if (threads->team) {
        lead(threads, work, job);
    } else {
        // The team has its usual size: another one would end threads.
        struct openmp_call call = {threads, work, job, 0};
        if (((int (*)(void))threads->most)() != threads->usual)
            return false;
        typedef void (*parallel)(void (*)(void *), void *, unsigned, unsigned);
        ((parallel)threads->parallel)(take_part, &call, 0, 0);
        return !call.is_too_small;
    }
    return true;
}
