/* Several engines for one story share the commands of one or more states. */
#include "zset.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

/* A job is a part of the commands, tried from one of the states. */
typedef struct {
    const start_state *states;
    const char **part; /* where each part of the commands begins */
    uint32_t parts, jobs, size, count;
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
    for (uint32_t job; (job = atomic_fetch_add(&w->next, 1)) < w->jobs;) {
        uint32_t state = job / w->parts, first = job % w->parts * w->size;
        uint32_t count = w->count - first < w->size ? w->count - first : w->size;
        size_t at = (size_t)state * w->count + first;
        if (zset_filter(m->e, &w->states[state], w->part[job % w->parts], (int32_t)count, w->limit, w->mode, w->flags + at,
                        w->diffs + at, w->hashes ? w->hashes + at : NULL, NULL, w->watched,
                        w->watches ? w->watches + at : NULL))
            atomic_store(&w->failed, 1);
    }
    return NULL;
}

/* zset_filter from each of the states, in parts of `size` commands; results lie by state and command. */
int zset_share(engine *const *engines, int32_t engine_count, const start_state *states, int32_t state_count,
               const char *commands, int32_t count, int32_t size, uint64_t limit, int32_t mode, uint8_t *flags,
               uint64_t *diffs, uint64_t *hashes, const uint8_t *watched, uint64_t *watches) {
    if (count <= 0 || state_count <= 0 || engine_count <= 0 || size <= 0) return 0;
    uint32_t parts = ((uint32_t)count - 1) / (uint32_t)size + 1, helpers = 0;
    work w = {.states = states, .parts = parts, .jobs = parts * (uint32_t)state_count, .size = (uint32_t)size,
              .count = (uint32_t)count, .limit = limit, .mode = mode, .flags = flags, .diffs = diffs, .hashes = hashes,
              .watches = watches, .watched = watched};
    member *members = malloc((size_t)engine_count * sizeof *members);
    pthread_t *threads = malloc((size_t)engine_count * sizeof *threads);
    w.part = malloc(parts * sizeof *w.part);
    int result = -1;
    if (members && threads && w.part) {
        for (int32_t i = 0; i < count; i++, commands += strlen(commands) + 1)
            if (i % size == 0) w.part[i / size] = commands;
        for (int32_t i = 0; i < engine_count; i++) members[i] = (member){engines[i], &w};
        /* One that cannot be started is not missed: the others do its jobs. */
        while (helpers + 1 < (uint32_t)engine_count && helpers + 1 < w.jobs &&
               !pthread_create(&threads[helpers], NULL, take_part, &members[helpers + 1]))
            helpers++;
        take_part(&members[0]);
        while (helpers > 0) pthread_join(threads[--helpers], NULL);
        result = atomic_load(&w.failed) ? -1 : 0;
    }
    free(members);
    free(threads);
    free(w.part);
    return result;
}
