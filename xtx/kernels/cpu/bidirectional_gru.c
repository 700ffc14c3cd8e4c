/* A GRU over rows of tokens in both directions, with the states of all tokens: for xtx/kernels/cpu/bidirectional_gru.py.
 *
 * Unlike in gru_run.c nothing is shared between rows. The rows that have a token at a step are one level for the
 * kernels. Rows descend in length, so the rows of a step are the first of those of the step before. The two directions
 * are independent: each may have a thread of its own, and results have the same bits. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "gru.h"

/* The same structure as `_Steps` in bidirectional_gru.py. Arrays with a leading [2] have the forward direction first. */
typedef struct {
    int32_t size, steps, tokens, rows;
    const int32_t *sizes; /* [steps] rows that have a token */
    const int32_t *place; /* [2][tokens] which token is read, in the order of the steps */
    const int32_t *given; /* [tokens] a token's row in x: several may have the same */
    const float *x;       /* [.., 2, 3 size] input projections with the input's bias */
    const float *w;       /* [2, 3 size, size] */
    const float *b;       /* [2, 3 size] */
    const float *start;   /* [2, size] the first states */
    float *out;           /* [tokens, 2, size] states, by place */
    float *state;         /* [2][tokens, size] states, in the order of the steps; NULL: no gradient is needed */
    float *kept;          /* [2][tokens, 4 size] see gru_level; overwritten by the backward pass */
    const float *grad;    /* [tokens, 2, size] */
    float *grad_x, *grad_w, *grad_b, *grad_start; /* shaped like x, w, b and start; added to */
} gru_steps;

typedef struct {
    const gru_steps *s;
    const gru_kernel *kernel;
    atomic_int next, failed;
} job;

/* Temporary memory of a pass over the steps of one direction. */
typedef struct {
    float *packed, *scratch; /* the weights as the kernel packed them; buffers of the pass */
    int32_t *word, *self, *first;
} space;

static int get_space(space *p, const gru_steps *s, size_t numbers) {
    size_t rows = (size_t)s->rows;
    p->packed = gru_allocate((size_t)3 * s->size * s->size);
    p->scratch = gru_allocate(numbers);
    p->word = malloc(3 * rows * sizeof *p->word);
    if (!p->packed || !p->scratch || !p->word) return -1;
    p->self = p->word + rows;
    p->first = p->self + rows;
    for (int32_t i = 0; i < s->rows; i++) p->self[i] = i, p->first[i] = 0; /* all rows have the same first state */
    return 0;
}

static void drop_space(space *p) { free(p->packed), free(p->scratch), free(p->word); }

/* The level of a step whose tokens begin at `at` in the order of the steps. */
static gru_level describe(const gru_steps *s, const space *p, int direction, int32_t step, size_t at) {
    size_t size = (size_t)s->size, first = direction * (size_t)s->tokens + at;
    for (int32_t i = 0; i < s->sizes[step]; i++) p->word[i] = 2 * s->given[s->place[first + i]] + direction;
    return (gru_level){
        .size = s->size,
        .width = s->sizes[step],
        .parent = step ? p->self : p->first,
        .word = p->word,
        .x = s->x,
        .b = s->b + direction * 3 * size,
        .w = p->packed,
        .state = s->state ? s->state + first * size : NULL,
        .kept = s->kept ? s->kept + first * 4 * size : NULL,
        .before = step ? (s->state ? s->state + (first - s->sizes[step - 1]) * size : NULL) : s->start + direction * size,
    };
}

static int forward_direction(const job *j, int direction) {
    const gru_steps *s = j->s;
    size_t size = (size_t)s->size, at = 0;
    space p = {0};
    if (get_space(&p, s, 2 * s->rows * size)) return drop_space(&p), -1;
    j->kernel->pack_forward(s->w + direction * 3 * size * size, s->size, p.packed);
    for (int32_t step = 0; step < s->steps; at += s->sizes[step++]) {
        gru_level level = describe(s, &p, direction, step, at);
        if (!s->state) { /* two buffers, used alternately */
            level.state = p.scratch + (step & 1) * s->rows * size;
            if (step) level.before = p.scratch + (~step & 1) * s->rows * size;
        }
        j->kernel->forward(&level);
        const int32_t *place = s->place + direction * (size_t)s->tokens + at;
        for (int32_t i = 0; i < level.width; i++)
            memcpy(s->out + (2 * (size_t)place[i] + direction) * size, level.state + i * size, size * sizeof(float));
    }
    drop_space(&p);
    return 0;
}

static int backward_direction(const job *j, int direction) {
    const gru_steps *s = j->s;
    size_t size = (size_t)s->size, most = s->rows * size, at = (size_t)s->tokens;
    float *grad_w = s->grad_w + direction * 3 * size * size, *grad_b = s->grad_b + direction * 3 * size;
    space p = {0};
    if (get_space(&p, s, 2 * most + GRU_BLOCK * 4 * size)) return drop_space(&p), -1;
    float *grad = p.scratch, *grad_before = p.scratch + most, *outer_scratch = p.scratch + 2 * most;
    const float *gates[GRU_BLOCK], *states[GRU_BLOCK];
    int32_t waiting = 0;
    j->kernel->pack_backward(s->w + direction * 3 * size * size, s->size, p.packed);
    memset(grad, 0, most * sizeof *grad);
    for (int32_t step = s->steps - 1; step >= 0; step--) {
        at -= (size_t)s->sizes[step];
        gru_level level = describe(s, &p, direction, step, at);
        level.grad = grad;
        level.grad_b = grad_b + 2 * size;
        level.grad_rz = grad_b;
        level.grad_x = s->grad_x;
        level.grad_before = step ? grad_before : s->grad_start + direction * size;
        if (step) memset(grad_before, 0, s->sizes[step - 1] * size * sizeof *grad);
        const int32_t *place = s->place + direction * (size_t)s->tokens + at;
        for (int32_t i = 0; i < level.width; i++) {
            const float *from = s->grad + (2 * (size_t)place[i] + direction) * size;
            for (size_t k = 0; k < size; k++) grad[i * size + k] += from[k];
        }
        j->kernel->backward(&level);
        for (int32_t i = 0; i < level.width; i++) { /* collected for a larger product, as in gru_run.c */
            gates[waiting] = level.kept + i * 4 * size;
            states[waiting++] = level.before + level.parent[i] * size;
            if (waiting == GRU_BLOCK || (!step && i == level.width - 1)) {
                j->kernel->outer(s->size, waiting, gates, states, outer_scratch, grad_w);
                waiting = 0;
            }
        }
        grad_before = grad;
        grad = level.grad_before;
    }
    drop_space(&p);
    return 0;
}

static void forward_work(void *data) {
    job *j = data;
    for (int direction; (direction = atomic_fetch_add(&j->next, 1)) < 2;)
        if (forward_direction(j, direction)) atomic_store(&j->failed, 1);
}

static void backward_work(void *data) {
    job *j = data;
    for (int direction; (direction = atomic_fetch_add(&j->next, 1)) < 2;)
        if (backward_direction(j, direction)) atomic_store(&j->failed, 1);
}

/* Both return 0, or -1 if there is no memory; `most` as in gru_run.c. */
int gru_both_ways_forward(const gru_steps *steps, int threads, int most) {
    job j = {.s = steps, .kernel = gru_choose_kernel(most)};
    gru_in_threads(forward_work, &j, threads < 2 ? threads : 2);
    return j.failed ? -1 : 0;
}

int gru_both_ways_backward(const gru_steps *steps, int threads, int most) {
    job j = {.s = steps, .kernel = gru_choose_kernel(most)};
    gru_in_threads(backward_work, &j, threads < 2 ? threads : 2);
    return j.failed ? -1 : 0;
}
