/* Several engines for one story share the commands of one or more states. */
#include "zset.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

/* Some commands in a row, tried from one of the states. */
typedef struct {
    uint32_t state, first, count;
} job;

typedef struct {
    const start_state *states;
    const char **commands;
    const job *jobs;
    uint32_t job_count, count;
    uint64_t limit;
    int32_t mode;
    uint8_t *flags; /* results, by state and command */
    uint64_t *diffs, *hashes, *watches;
    const uint8_t *watched;
    atomic_uint next;
    atomic_int failed;
} work;

typedef struct {
    engine *e;
    work *w;
} member;

/* Does jobs until there are none left: they take very different times, so nobody is given a fixed share. */
static void *take_part(void *given) {
    const member *m = given;
    work *w = m->w;
    for (uint32_t i; (i = atomic_fetch_add(&w->next, 1)) < w->job_count;) {
        const job *j = &w->jobs[i];
        size_t at = (size_t)j->state * w->count + j->first;
        if (zset_filter(m->e, &w->states[j->state], w->commands[j->first], (int32_t)j->count, w->limit, w->mode,
                        w->flags + at, w->diffs + at, w->hashes ? w->hashes + at : NULL, NULL, w->watched,
                        w->watches ? w->watches + at : NULL))
            atomic_store(&w->failed, 1);
    }
    return NULL;
}

/* --- cutting ------------------------------------------------------------------------------------------------ */

static int same_verb(const char *a, const char *b) {
    for (; *a == *b; a++, b++)
        if (!*a || *a == ' ') return 1;
    return (!*a || *a == ' ') && (!*b || *b == ' ');
}

/* The end of a part, moved to where another verb begins, if that is near: commands with the same verb go together for
 * longest, and to run them in two sets costs most. */
static uint32_t between_verbs(const char *const *commands, uint32_t count, uint32_t first, uint32_t end) {
    for (uint32_t off = 0, most = (end - first) / 2; off < most; off++) {
        if (end + off < count && !same_verb(commands[end + off - 1], commands[end + off])) return end + off;
        if (!same_verb(commands[end - off - 1], commands[end - off])) return end - off;
    }
    return end;
}

/* Cuts the commands of all states into jobs, for some engines: large ones first, for all that is cut is done twice in
 * part, and then ever smaller ones, so that no engine has much to do when the others have finished. Their number; they
 * are counted only if `jobs` is NULL. */
static uint32_t cut(const char *const *commands, uint32_t count, uint32_t states, uint32_t engines, uint32_t least,
                    job *jobs) {
    enum { MOST = 2048 };
    uint32_t n = 0;
    for (uint32_t state = 0; state < states; state++)
        for (uint32_t first = 0, size; first < count; first += size, n++) {
            uint64_t left = (uint64_t)(states - state) * count - first, fair = left * 2 / (3 * engines);
            size = fair < least ? least : fair > MOST ? MOST : (uint32_t)fair;
            if (size < count - first) size = between_verbs(commands, count, first, first + size) - first;
            if (size + least / 2 > count - first) size = count - first;
            if (jobs) jobs[n] = (job){state, first, size};
        }
    return n;
}

/* zset_filter from each of the states, in parts of about `least` commands or more; results lie by state and command. */
int zset_share(engine *const *engines, int32_t engine_count, const start_state *states, int32_t state_count,
               const char *commands, int32_t command_count, int32_t least, uint64_t limit, int32_t mode, uint8_t *flags,
               uint64_t *diffs, uint64_t *hashes, const uint8_t *watched, uint64_t *watches) {
    if (command_count <= 0 || state_count <= 0 || engine_count <= 0 || least <= 0) return 0;
    uint32_t count = (uint32_t)command_count, helpers = 0;
    work w = {.states = states, .count = count, .limit = limit, .mode = mode, .flags = flags, .diffs = diffs,
              .hashes = hashes, .watches = watches, .watched = watched};
    member *members = malloc((size_t)engine_count * sizeof *members);
    pthread_t *threads = malloc((size_t)engine_count * sizeof *threads);
    job *jobs = NULL;
    w.commands = malloc(count * sizeof *w.commands);
    int result = -1;
    if (members && threads && w.commands) {
        for (uint32_t i = 0; i < count; i++, commands += strlen(commands) + 1) w.commands[i] = commands;
        uint32_t parts = cut(w.commands, count, (uint32_t)state_count, (uint32_t)engine_count, (uint32_t)least, NULL);
        w.jobs = jobs = malloc(parts * sizeof *jobs);
        if (jobs) w.job_count = cut(w.commands, count, (uint32_t)state_count, (uint32_t)engine_count, (uint32_t)least, jobs);
    }
    if (jobs) {
        for (int32_t i = 0; i < engine_count; i++) members[i] = (member){engines[i], &w};
        /* One that cannot be started is not missed: the others do its jobs. */
        while (helpers + 1 < (uint32_t)engine_count && helpers + 1 < w.job_count &&
               !pthread_create(&threads[helpers], NULL, take_part, &members[helpers + 1]))
            helpers++;
        take_part(&members[0]);
        while (helpers > 0) pthread_join(threads[--helpers], NULL);
        result = atomic_load(&w.failed) ? -1 : 0;
    }
    free(members);
    free(threads);
    free(w.commands);
    free(jobs);
    return result;
}
