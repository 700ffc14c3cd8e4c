/* A thread team: several engines for one story that share the commands of a state.
 *
 * The threads sleep between searches, because starting them takes a noticeable part of a small search. A forked process
 * has none of its parent's threads; it starts its own. */
#define _GNU_SOURCE
#include "zset.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* Which processors threads may run on can be asked and set on Linux only. */
#if defined(__linux__) && !defined(XTX_NO_AFFINITY)
typedef cpu_set_t processor_set;
static void read_processors(processor_set *set) {
    if (sched_getaffinity(0, sizeof *set, set)) CPU_ZERO(set);
}
static void allow_processors(pthread_attr_t *thread, const processor_set *set) {
    if (CPU_COUNT(set)) pthread_attr_setaffinity_np(thread, sizeof *set, set);
}
#else
typedef char processor_set;
static void read_processors(processor_set *set) { *set = 0; }
static void allow_processors(pthread_attr_t *thread, const processor_set *set) { (void)thread, (void)set; }
#endif

typedef struct {
    const start_state *state;
    const int64_t *randoms;
    const char **commands;
    job *jobs;
    uint32_t job_count, each; /* each: random numbers for a command */
    uint64_t limit;
    int32_t mode, first_alone; /* as in zset_filter */
    uint8_t *flags; /* results, by command and random number */
    uint64_t *diffs, *hashes, *watches;
    const uint8_t *watched;
    int32_t masks; /* of `watched` */
    transcript *transcripts;
    atomic_uint next;
    atomic_int failed;
} work;

struct team;

typedef struct {
    struct team *team;
    engine *e;
    pthread_t thread; /* of all engines but the first, which runs in the calling thread */
} member;

typedef struct team {
    pid_t process; /* in which the threads are */
    uint32_t count, started;
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    /* changed under the lock only */
    work *work;
    uint32_t places, asleep; /* threads that may still join the work, and those of them that were not woken yet */
    atomic_uint busy;        /* threads that are working */
    int closing;
    /* not shared */
    processor_set processors; /* on which the threads may run, even if the thread that made the team is bound later */
    prices prices;
    member members[];
} team;

static uint64_t cost_so_far(const engine *e) {
    /* The cost of a split with its merge, and of a number in a vector, in instructions. */
    return e->count_instructions + 500 * e->count_splits + e->count_lanes / 8;
}

/* Does jobs until there are none left. Jobs are not assigned in advance, because their costs are estimates. */
static void take_part(engine *e, work *w) {
    for (uint32_t i; (i = atomic_fetch_add(&w->next, 1)) < w->job_count;) {
        job *j = &w->jobs[i];
        size_t at = (size_t)j->first * w->each;
        uint64_t before = cost_so_far(e);
        if (zset_filter(e, w->state, w->randoms, (int32_t)w->each, w->first_alone, w->commands[j->first],
                        (int32_t)j->count, w->limit, w->mode, w->flags + at, w->diffs + at,
                        w->hashes ? w->hashes + at : NULL, NULL, w->watched, w->masks, w->watches ? w->watches + at * (size_t)w->masks : NULL,
                        w->transcripts ? w->transcripts + j->first : NULL))
            atomic_store(&w->failed, 1);
        j->cost = cost_so_far(e) - before;
    }
}

/* Wakes two threads, each of which wakes two more: waking takes time, so it is shared too. */
static void wake_some(team *t) {
    for (int i = 0; i < 2 && t->asleep; i++, t->asleep--) pthread_cond_signal(&t->wake);
}

static void *wait_for_work(void *given) {
    const member *m = given;
    team *t = m->team;
    pthread_mutex_lock(&t->lock);
    for (;;) {
        while (!t->places && !t->closing) pthread_cond_wait(&t->wake, &t->lock);
        if (t->closing) break;
        work *w = t->work;
        t->places--;
        t->busy++;
        wake_some(t);
        pthread_mutex_unlock(&t->lock);
        take_part(m->e, w);
        pthread_mutex_lock(&t->lock);
        if (!--t->busy) pthread_cond_signal(&t->done);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* Initialises what belongs to a process: at the beginning, and again after a fork, whatever state it was in. */
static void settle(team *t) {
    t->process = getpid();
    t->started = t->places = t->asleep = 0;
    atomic_store(&t->busy, 0);
    t->closing = 0;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->wake, NULL);
    pthread_cond_init(&t->done, NULL);
}

/* Starts missing threads. If one cannot be started, the others do its work. The threads block all signals, so that
 * other threads of the process handle them. */
static void start_threads(team *t) {
    if (t->process != getpid()) settle(t);
    if (t->started + 1 >= t->count) return;
    sigset_t all, before;
    pthread_attr_t everywhere;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&everywhere);
    allow_processors(&everywhere, &t->processors);
    while (t->started + 1 < t->count) {
        member *m = &t->members[t->started + 1];
        if (pthread_create(&m->thread, &everywhere, wait_for_work, m) && pthread_create(&m->thread, NULL, wait_for_work, m))
            break;
        t->started++;
    }
    pthread_attr_destroy(&everywhere);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Spin-waits for the other threads, which will end soon; yields the processor to other processes meanwhile. */
static void wait_awake(const team *t) {
    enum { LONGEST = 300000 }; /* nanoseconds */
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    while (atomic_load(&t->busy)) {
        sched_yield();
        clock_gettime(CLOCK_MONOTONIC, &now);
        if ((now.tv_sec - start.tv_sec) * 1000000000L + now.tv_nsec - start.tv_nsec > LONGEST) break;
    }
}

static void do_work(team *t, work *w) {
    uint32_t helpers = w->job_count - 1;
    if (helpers) start_threads(t);
    if (helpers > t->started) helpers = t->started;
    if (helpers) {
        pthread_mutex_lock(&t->lock);
        t->work = w;
        t->places = t->asleep = helpers;
        wake_some(t);
        pthread_mutex_unlock(&t->lock);
    }
    take_part(t->members[0].e, w);
    if (!helpers) return;
    pthread_mutex_lock(&t->lock);
    t->places = t->asleep = 0; /* threads that have not woken up by now need not join */
    pthread_mutex_unlock(&t->lock);
    wait_awake(t);
    pthread_mutex_lock(&t->lock);
    while (t->busy) pthread_cond_wait(&t->done, &t->lock);
    t->work = NULL;
    pthread_mutex_unlock(&t->lock);
}

/* --- the functions that Python calls -------------------------------------------------------------------------- */

/* Makes a team of engines, which the caller still owns; NULL if there is no memory. */
team *zset_team(engine *const *engines, int32_t count) {
    if (count <= 0) return NULL;
    team *t = calloc(1, sizeof *t + (size_t)count * sizeof *t->members);
    if (!t) return NULL;
    t->count = (uint32_t)count;
    for (uint32_t i = 0; i < t->count; i++) t->members[i] = (member){.team = t, .e = engines[i]};
    read_processors(&t->processors);
    cut_begin(&t->prices);
    settle(t);
    return t;
}

/* Ends a team's threads; must be called before its engines are closed. */
void zset_disband(team *t) {
    if (!t) return;
    if (t->process == getpid()) { /* a forked process has no threads to wait for */
        pthread_mutex_lock(&t->lock);
        t->closing = 1;
        pthread_cond_broadcast(&t->wake);
        pthread_mutex_unlock(&t->lock);
        for (uint32_t i = 0; i < t->started; i++) pthread_join(t->members[i + 1].thread, NULL);
        pthread_cond_destroy(&t->done);
        pthread_cond_destroy(&t->wake);
        pthread_mutex_destroy(&t->lock);
    }
    free(t);
}

/* Does what zset_filter does, in parts of about `least` lanes or more. `starts`: where each command begins in `text`;
 * `groups`: may be NULL. */
int zset_share(team *t, const start_state *state, const int64_t *randoms, int32_t random_count, int32_t first_alone,
               const char *text, const uint32_t *starts, const uint16_t *groups, int32_t command_count, int32_t least,
               uint64_t limit, int32_t mode, uint8_t *flags, uint64_t *diffs, uint64_t *hashes, const uint8_t *watched,
               int32_t masks, uint64_t *watches) {
    if (command_count <= 0 || least <= 0) return 0;
    uint32_t count = (uint32_t)command_count, each = random_count > 1 ? (uint32_t)random_count : 1;
    work w = {.state = state, .randoms = randoms, .each = each, .limit = limit, .mode = mode,
              .first_alone = first_alone, .flags = flags, .diffs = diffs, .hashes = hashes, .watches = watches,
              .watched = watched, .masks = masks};
    w.commands = malloc(count * sizeof *w.commands);
    if (!w.commands) return -1;
    for (uint32_t i = 0; i < count; i++) w.commands[i] = text + starts[i];
    cutting c = {.commands = w.commands, .groups = groups, .count = count};
    w.job_count = cut(&t->prices, &c, first_alone ? 1 : each, t->count, (uint32_t)least, &w.jobs);
    if (w.job_count) {
        do_work(t, &w);
        cut_learn(&t->prices, &c, w.jobs, w.job_count);
    }
    int result = w.job_count && !atomic_load(&w.failed) ? 0 : -1;
    free(w.commands);
    free(w.jobs);
    return result;
}

/* The length of a text that Frotz has shown when the story reads the next line: all but the buffered word. */
static uint32_t shown(const transcript *t) {
    uint32_t word = t->flushed;
    uint8_t before = 0;
    for (uint32_t i = word; i < t->length; i++) {
        uint8_t c = t->bytes[i];
        if (c == 13) {
            word = i + 1;
            before = 0;
        } else {
            if (i > word && (c == ' ' || (before == '-' && c != '-'))) word = i;
            before = c;
        }
    }
    return word;
}

/* Writes a text as libfrotz's screen shows it, with a NUL behind it. Returns its length, or 0 if only libfrotz can
 * tell. */
static uint32_t on_screen(const engine *e, uint8_t flags, const transcript *t) {
    enum { LONGEST_WORD = 200 }; /* at 275 Frotz ends */
    uint8_t *text = t->bytes - 1;
    uint32_t length = shown(t), letters = 0;
    if ((flags & (UNJUDGED | END_OPEN)) == UNJUDGED || t->length == t->capacity) return 0;
    for (uint32_t i = 0; i < t->length; i++) {
        uint8_t c = t->bytes[i];
        if (c != 13 && !letter_shown(e, c)) return 0; /* Frotz converts other characters */
        if (c > 126) t->bytes[i] = letter_shown(e, c);
        letters = c == 13 || c == ' ' ? 0 : letters + 1;
        if (letters > LONGEST_WORD) return 0;
        if (c == 13) t->bytes[i] = '\n';
    }
    text[0] = '\n'; /* the end of the typed line */
    t->bytes[length] = 0;
    return length + 1;
}

/* Writes the story's answer to each command (NUL-terminated, concatenated) in a state as libfrotz's screen shows it: to
 * `capacity` bytes for each in `texts`, with the length in `lengths`, 0 if only libfrotz can tell. Run by a team, in
 * parts of about `least` commands or more, or by one engine. */
int zset_responses(team *t, engine *e, const start_state *state, const char *commands, int32_t command_count, int32_t least,
             uint64_t limit, uint8_t *texts, int32_t capacity, uint32_t *lengths) {
    if (command_count <= 0 || least <= 0 || capacity < 3) return 0;
    const int64_t random = state->random_a;
    uint32_t count = (uint32_t)command_count, parts = t ? count / (uint32_t)least : 1;
    if (t && parts > t->count) parts = t->count;
    if (!parts) parts = 1;
    work w = {.state = state, .randoms = &random, .each = 1, .limit = limit, .mode = MERGING, .job_count = parts};
    w.commands = malloc(count * sizeof *w.commands);
    w.jobs = malloc(parts * sizeof *w.jobs);
    w.transcripts = calloc(count, sizeof *w.transcripts);
    w.flags = malloc(count);
    w.diffs = malloc(count * sizeof *w.diffs);
    int result = -1;
    if (w.commands && w.jobs && w.transcripts && w.flags && w.diffs) {
        for (uint32_t i = 0; i < count; i++, commands += strlen(commands) + 1) {
            w.commands[i] = commands;
            w.transcripts[i].bytes = texts + (size_t)i * (uint32_t)capacity + 1;
            w.transcripts[i].capacity = (uint32_t)capacity - 2;
        }
        for (uint32_t i = 0, first = 0, end; i < parts; i++, first = end) {
            end = (uint32_t)((uint64_t)count * (i + 1) / parts);
            w.jobs[i] = (job){.first = first, .count = end - first};
        }
        if (t) do_work(t, &w);
        else take_part(e, &w);
        if (!atomic_load(&w.failed)) {
            for (uint32_t i = 0; i < count; i++) lengths[i] = on_screen(e, w.flags[i], &w.transcripts[i]);
            result = 0;
        }
    }
    free(w.commands);
    free(w.jobs);
    free(w.transcripts);
    free(w.flags);
    free(w.diffs);
    return result;
}

/* Returns the number of a team's threads in this process, without the caller's. */
int32_t zset_threads(const team *t) { return t->process == getpid() ? (int32_t)t->started : 0; }
