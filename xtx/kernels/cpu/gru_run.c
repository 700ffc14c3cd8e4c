/* Computes states and gradients of a plan: levels, chunks, threads. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "gru.h"

/* --- threads ------------------------------------------------------------------------------------------------- */

#define MAX_THREADS 64 /* limits an array of threads */

typedef struct {
    void (*work)(void *);
    void *data;
} work_item;

static void *run_work_item(void *e) {
    ((work_item *)e)->work(((work_item *)e)->data);
    return NULL;
}

/* Runs work(data) in up to `threads` threads and waits for all. `work` takes its tasks from a shared counter, so any
 * number of threads is possible. PyTorch's OpenMP threads are used if they exist: they spin for some time after every
 * operation of PyTorch, and other threads would have to share the processors with them. */
void gru_in_threads(void (*work)(void *), void *data, int threads) {
    if (threads <= 1) {
        work(data);
        return;
    }
    void (*parallel)(void (*)(void *), void *, unsigned, unsigned);
    *(void **)&parallel = dlsym(RTLD_DEFAULT, "GOMP_parallel");
    if (parallel) {
        parallel(work, data, (unsigned)threads, 0);
        return;
    }
    pthread_t others[MAX_THREADS];
    work_item e = {work, data};
    int started = 0;
    while (started < threads - 1 && !pthread_create(&others[started], NULL, run_work_item, &e)) started++;
    work(data);
    while (started) pthread_join(others[--started], NULL);
}

/* --- the functions that Python calls -------------------------------------------------------------------------- */

typedef struct {
    const gru_plan *plan;
    const gru_kernel *kernel;
    int32_t size;
    const float *x, *b, *w; /* w: packed */
    float *state, *kept;    /* of all nodes; NULL: only the last states are computed */
    float *last;            /* [rows, size] */
    const float *grad_last; /* [rows, size] */
    float *parts;           /* [chunks][3 size + 1][size]: each chunk's part of the gradients of w and of n's bias */
    float *grad_x, *grad_w, *grad_b;
    atomic_int next, failed;
} job;

float *gru_allocate(size_t numbers) {
    size_t bytes = (numbers * sizeof(float) + 63) / 64 * 64;
    return aligned_alloc(64, bytes ? bytes : 64);
}

const gru_kernel *gru_choose_kernel(int most) {
#if defined(__x86_64__)
    if (most >= 2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        return &gru_kernel_avx512;
    if (most >= 1 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &gru_kernel_avx2;
#endif
    (void)most;
    return &gru_kernel_plain;
}

static int32_t widest(const gru_plan *p, int32_t chunk) {
    int32_t most = 0;
    for (int32_t l = p->chunk_level[chunk]; l < p->chunk_level[chunk + 1]; l++) {
        int32_t width = p->level_node[l + 1] - p->level_node[l];
        most = width > most ? width : most;
    }
    return most;
}

/* A level of a chunk, without states and gradients. */
static gru_level describe(const job *j, int32_t l) {
    const gru_plan *p = j->plan;
    int32_t node = p->level_node[l];
    return (gru_level){
        .size = j->size,
        .width = p->level_node[l + 1] - node,
        .parent = p->parent + node,
        .word = p->word + node,
        .x = j->x,
        .b = j->b,
        .w = j->w,
        .kept = j->kept ? j->kept + (size_t)node * 4 * j->size : NULL,
    };
}

static int forward_chunk(const job *j, int32_t chunk) {
    const gru_plan *p = j->plan;
    size_t size = (size_t)j->size, most = (size_t)widest(p, chunk);
    float *scratch = NULL, *before = NULL;
    if (!j->state && !(scratch = gru_allocate(2 * most * size))) return -1;
    for (int32_t first = p->chunk_level[chunk], l = first; l < p->chunk_level[chunk + 1]; l++) {
        gru_level level = describe(j, l);
        level.before = before;
        level.state = j->state ? j->state + p->level_node[l] * size : scratch + ((l - first) & 1) * most * size;
        j->kernel->forward(&level);
        for (int32_t e = p->level_end[l]; e < p->level_end[l + 1]; e++) {
            int32_t row = p->end_row[e];
            memcpy(j->last + row * size, level.state + (p->row_node[row] - p->level_node[l]) * size, size * sizeof(float));
        }
        before = level.state;
    }
    free(scratch);
    return 0;
}

/* Nodes whose part of the gradient of w is not added yet. */
typedef struct {
    const float *gates[GRU_BLOCK], *states[GRU_BLOCK];
    float *scratch, *grad_w;
    int32_t count;
} waiting;

static void add_waiting(const job *j, waiting *w) {
    if (w->count) j->kernel->outer(j->size, w->count, w->gates, w->states, w->scratch, w->grad_w);
    w->count = 0;
}

/* Levels are narrow, so nodes are collected for a larger product; they are still in the second-level cache then. */
static void add_level(const job *j, const gru_level *level, waiting *w) {
    size_t size = (size_t)j->size;
    for (int32_t i = 0; i < level->width; i++) {
        w->gates[w->count] = level->kept + i * 4 * size;
        w->states[w->count++] = level->before + level->parent[i] * size;
        if (w->count == GRU_BLOCK) add_waiting(j, w);
    }
}

static int backward_chunk(const job *j, int32_t chunk) {
    const gru_plan *p = j->plan;
    size_t size = (size_t)j->size, most = (size_t)widest(p, chunk);
    float *part = j->parts + chunk * (3 * size + 1) * size;
    float *scratch = gru_allocate(2 * most * size + GRU_BLOCK * 4 * size);
    if (!scratch) return -1;
    float *grad = scratch, *grad_before = scratch + most * size;
    waiting nodes = {.scratch = scratch + 2 * most * size, .grad_w = part};
    memset(part, 0, (3 * size + 1) * size * sizeof *part);
    memset(grad, 0, most * size * sizeof *grad);
    for (int32_t first = p->chunk_level[chunk], l = p->chunk_level[chunk + 1] - 1; l >= first; l--) {
        gru_level level = describe(j, l);
        level.grad = grad;
        level.grad_b = part + 3 * size * size;
        for (int32_t e = p->level_end[l]; e < p->level_end[l + 1]; e++) {
            int32_t row = p->end_row[e];
            float *to = grad + (p->row_node[row] - p->level_node[l]) * size;
            for (size_t i = 0; i < size; i++) to[i] += j->grad_last[row * size + i];
        }
        if (l > first) {
            level.before = j->state + p->level_node[l - 1] * size;
            level.grad_before = grad_before;
            memset(grad_before, 0, (p->level_node[l] - p->level_node[l - 1]) * size * sizeof *grad);
        }
        j->kernel->backward(&level);
        if (l > first) add_level(j, &level, &nodes);
        grad_before = grad;
        grad = level.grad_before;
    }
    add_waiting(j, &nodes);
    free(scratch);
    return 0;
}

static void forward_work(void *data) {
    job *j = data;
    for (int32_t c; (c = atomic_fetch_add(&j->next, 1)) < j->plan->chunks;)
        if (forward_chunk(j, c)) atomic_store(&j->failed, 1);
}

static void backward_work(void *data) {
    job *j = data;
    for (int32_t c; (c = atomic_fetch_add(&j->next, 1)) < j->plan->chunks;)
        if (backward_chunk(j, c)) atomic_store(&j->failed, 1);
}

/* The gradient of a word's projection: the sum over the word's nodes, of r, z and n. */
static void sum_word(const job *j, int32_t word) {
    const gru_plan *p = j->plan;
    size_t size = (size_t)j->size;
    float *to = j->grad_x + word * 3 * size;
    memset(to, 0, 3 * size * sizeof *to);
    for (int32_t i = p->word_start[word]; i < p->word_start[word + 1]; i++) {
        const float *from = j->kept + p->word_node[i] * 4 * size;
        for (size_t k = 0; k < 2 * size; k++) to[k] += from[k];
        for (size_t k = 2 * size; k < 3 * size; k++) to[k] += from[k + size];
    }
}

/* Rows a to b of the gradient of w: the sum over the chunks. */
static void sum_parts(const job *j, size_t a, size_t b) {
    size_t size = (size_t)j->size, step = (3 * size + 1) * size;
    memcpy(j->grad_w + a * size, j->parts + a * size, (b - a) * size * sizeof(float));
    for (int32_t c = 1; c < j->plan->chunks; c++)
        for (size_t i = a * size; i < b * size; i++) j->grad_w[i] += j->parts[c * step + i];
}

#define WORDS_AT_ONCE 16

/* After all chunks: the sums over them, split among threads by the result, so that each sum has a fixed order. */
static void sum_work(void *data) {
    job *j = data;
    int32_t words = j->plan->words, groups = (words + WORDS_AT_ONCE - 1) / WORDS_AT_ONCE;
    int32_t pieces = 3 * j->size / GRU_GRAIN;
    for (int32_t i; (i = atomic_fetch_add(&j->next, 1)) < groups + pieces;) {
        if (i < groups) {
            int32_t end = (i + 1) * WORDS_AT_ONCE;
            for (int32_t w = i * WORDS_AT_ONCE; w < (end < words ? end : words); w++) sum_word(j, w);
        } else {
            sum_parts(j, (size_t)(i - groups) * GRU_GRAIN, (size_t)(i - groups + 1) * GRU_GRAIN);
        }
    }
}

static int at_most(int threads, int32_t things) {
    if (threads > MAX_THREADS) threads = MAX_THREADS;
    return threads < things ? threads : things;
}

/* Computes the last states, last [rows, size], and if they are not NULL the states of all nodes, state [nodes, size],
 * and their gates, kept [nodes, 4 size], which gru_backward needs. `most`: 2 allows the AVX-512 kernel, 1 the AVX2
 * kernel, 0 the plain one only. Returns 0, or -1 if there is no memory. */
int gru_forward(const gru_plan *plan, int32_t size, const float *x, const float *w, const float *b, float *last,
                float *state, float *kept, int threads, int most) {
    job j = {.plan = plan, .kernel = gru_choose_kernel(most), .size = size, .x = x, .b = b, .last = last, .state = state,
             .kept = kept};
    float *packed = gru_allocate((size_t)3 * size * size);
    if (!packed) return -1;
    j.kernel->pack_forward(w, size, packed);
    j.w = packed;
    gru_in_threads(forward_work, &j, at_most(threads, plan->chunks));
    free(packed);
    return j.failed ? -1 : 0;
}

/* Computes grad_x [words, 3 size], grad_w [3 size, size], grad_b [3 size]; overwrites `kept`. Returns as gru_forward.
 */
int gru_backward(const gru_plan *plan, int32_t size, const float *w, const float *state, float *kept,
                 const float *grad_last, float *grad_x, float *grad_w, float *grad_b, int threads, int most) {
    job j = {.plan = plan, .kernel = gru_choose_kernel(most), .size = size, .state = (float *)state, .kept = kept,
             .grad_last = grad_last, .grad_x = grad_x, .grad_w = grad_w, .grad_b = grad_b};
    size_t step = ((size_t)3 * size + 1) * size;
    float *packed = gru_allocate((size_t)3 * size * size);
    j.parts = gru_allocate(plan->chunks * step);
    if (packed && j.parts) {
        j.kernel->pack_backward(w, size, packed);
        j.w = packed;
        gru_in_threads(backward_work, &j, at_most(threads, plan->chunks));
        atomic_store(&j.next, 0);
        if (!j.failed) gru_in_threads(sum_work, &j, at_most(threads, plan->chunks));
        memset(grad_b, 0, (size_t)3 * size * sizeof *grad_b);
        for (int32_t i = 0; i < plan->words; i++) /* r and z: the gradients of both biases are equal */
            for (int32_t k = 0; k < 2 * size; k++) grad_b[k] += grad_x[(size_t)i * 3 * size + k];
        for (int32_t c = 0; c < plan->chunks; c++)
            for (int32_t k = 0; k < size; k++) grad_b[2 * size + k] += j.parts[(c + 1) * step - size + k];
    } else {
        j.failed = 1;
    }
    free(packed), free(j.parts);
    return j.failed ? -1 : 0;
}
