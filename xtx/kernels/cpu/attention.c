/* Attention between rows of vectors, for xtx/kernels/cpu/attention.py. Of each pair of a context [t, width] and a
 * memory [m, width]:
 *
 *   similarity [t, m] = context . context_weight + memory . memory_weight + (context * product_weight) . memory
 *   a [t, width]      = softmax over the memory (similarity) @ memory                   kept: shares, found
 *   b [width]         = softmax over the context (highest similarity of each) @ context  kept: importance, gist
 *   out [t, hidden]   = leaky_relu(mix @ [context; a; context * a; b * a] + bias)
 *
 * The pairs are split into chunks for threads. The split depends on the pairs only, and sums over pairs have a fixed
 * order: results have the same bits for any number of threads. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "gru.h"

typedef void (*pair_work)(const gru_attention *, const gru_attention_pair *, const gru_attention_scratch *);

/* Offsets of a pair: words of contexts, words of memories, and numbers of shares before it. */
typedef struct {
    size_t words, memory_words, shares;
} before;

typedef struct {
    const gru_attention *s;
    pair_work work;
    before *at;     /* [pairs + 1] */
    float *transposed; /* the mixing weights: see gru_attention_scratch */
    float *grads;   /* [words of contexts and then of memories, width]; NULL in the forward pass */
    float *parts;   /* [GRU_CHUNKS] each chunk's part of the gradients of all weights */
    atomic_int next, failed;
} job;

static size_t full(int32_t words) { return ((size_t)words + GRU_GRAIN - 1) / GRU_GRAIN * GRU_GRAIN; }

static size_t weights_of(const gru_attention *s) {
    return (size_t)s->width * (3 + 4 * (size_t)s->hidden) + (size_t)s->hidden;
}

/* Allocates the temporary buffers for the longest rows, in one piece; NULL if there is no memory. */
static float *allocate_scratch(const gru_attention *s, gru_attention_scratch *r) {
    size_t w = (size_t)s->width, h = (size_t)s->hidden, t = full(s->most_words), m = full(s->most_memory_words);
    size_t longest = t > m ? t : m;
    longest = longest > w ? longest : w;
    longest = longest > h ? longest : h;
    size_t sizes[] = {t * w, t * w, t * w, t * h, w * m, t * m, w * h, longest * 2 * GRU_GRAIN, longest, t};
    float **parts[] = {&r->token[0], &r->token[1], &r->token[2], &r->mixed, &r->transposed,
                       &r->shares,   &r->own,      &r->panel,    &r->row,   &r->column};
    size_t all = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) all += sizes[i];
    float *scratch = gru_allocate(all);
    for (size_t i = 0, at = 0; scratch && i < sizeof sizes / sizeof *sizes; at += sizes[i++]) *parts[i] = scratch + at;
    return scratch;
}

static gru_attention_pair pair_of(const job *j, int32_t i, size_t chunk) {
    const gru_attention *s = j->s;
    size_t w = (size_t)s->width, h = (size_t)s->hidden, words = j->at[i].words;
    /* Without `keep` every chunk has buffers for one pair. */
    size_t kept = s->keep ? words : chunk * (size_t)s->most_words, gist = s->keep ? (size_t)i : chunk;
    size_t shares = s->keep ? j->at[i].shares : chunk * s->most_words * full(s->most_memory_words);
    return (gru_attention_pair){
        .words = s->context_words[i],
        .memory_words = s->memory_words[i],
        .context = s->table + s->context_start[i] * w,
        .memory = s->table + s->memory_start[i] * w,
        .out = s->out + words * h,
        .shares = s->shares + shares,
        .found = s->found + kept * w,
        .importance = s->importance + full((int32_t)kept) + gist * GRU_GRAIN,
        .gist = s->gist + gist * w,
        .grad_out = j->grads ? s->grad_out + words * h : NULL,
        .grad_context = j->grads ? j->grads + words * w : NULL,
        .grad_memory = j->grads ? j->grads + (j->at[s->pairs].words + j->at[i].memory_words) * w : NULL,
    };
}

/* The first pair of a chunk. All chunks have about the same number of words. */
static int32_t first_of(const job *j, size_t chunk) {
    int32_t i = 0;
    while (j->at[i].words * GRU_CHUNKS < chunk * j->at[j->s->pairs].words) i++;
    return i;
}

static void chunk_work(void *data) {
    job *j = data;
    gru_attention_scratch r;
    float *scratch = NULL;
    for (int c; (c = atomic_fetch_add(&j->next, 1)) < GRU_CHUNKS;) {
        size_t chunk = (size_t)c, w = (size_t)j->s->width;
        if (!scratch && !(scratch = allocate_scratch(j->s, &r))) {
            atomic_store(&j->failed, 1);
            return;
        }
        r.mix_transposed = j->transposed;
        gru_attention mine = *j->s;
        if (j->parts) {
            float *part = memset(j->parts + chunk * weights_of(j->s), 0, weights_of(j->s) * sizeof(float));
            mine.grad_context_weight = part;
            mine.grad_memory_weight = part + w;
            mine.grad_product_weight = part + 2 * w;
            mine.grad_mix = part + 3 * w;
            mine.grad_bias = part + 3 * w + 4 * w * (size_t)j->s->hidden;
        }
        for (int32_t i = first_of(j, chunk), end = first_of(j, chunk + 1); i < end; i++) {
            gru_attention_pair p = pair_of(j, i, chunk);
            j->work(&mine, &p, &r);
        }
    }
    free(scratch);
}

static void add(float *to, const float *from, size_t n) {
    for (size_t i = 0; i < n; i++) to[i] += from[i];
}

/* After all chunks: the sums over pairs. */
static void sum_up(const job *j) {
    const gru_attention *s = j->s;
    size_t w = (size_t)s->width, mix = 4 * w * (size_t)s->hidden;
    for (int32_t i = 0; i < s->pairs; i++) {
        gru_attention_pair p = pair_of(j, i, 0);
        add(s->grad_table + s->context_start[i] * w, p.grad_context, p.words * w);
        add(s->grad_table + s->memory_start[i] * w, p.grad_memory, p.memory_words * w);
    }
    for (size_t c = 0; c < GRU_CHUNKS; c++) {
        const float *part = j->parts + c * weights_of(s);
        add(s->grad_context_weight, part, w);
        add(s->grad_memory_weight, part + w, w);
        add(s->grad_product_weight, part + 2 * w, w);
        add(s->grad_mix, part + 3 * w, mix);
        add(s->grad_bias, part + 3 * w + mix, (size_t)s->hidden);
    }
}

static int attend(const gru_attention *s, pair_work work, int backwards, int threads) {
    job j = {.s = s, .work = work, .at = calloc((size_t)s->pairs + 1, sizeof *j.at)};
    size_t w = (size_t)s->width, h = (size_t)s->hidden;
    j.transposed = gru_allocate(4 * w * h);
    for (int32_t i = 0; j.at && i < s->pairs; i++) {
        j.at[i + 1].words = j.at[i].words + (size_t)s->context_words[i];
        j.at[i + 1].memory_words = j.at[i].memory_words + (size_t)s->memory_words[i];
        j.at[i + 1].shares = j.at[i].shares + (size_t)s->context_words[i] * full(s->memory_words[i]);
    }
    if (backwards && j.at) {
        j.grads = gru_allocate((j.at[s->pairs].words + j.at[s->pairs].memory_words) * w);
        j.parts = gru_allocate(GRU_CHUNKS * weights_of(s));
    }
    if (!j.at || !j.transposed || (backwards && (!j.grads || !j.parts))) {
        j.failed = 1;
    } else {
        for (size_t k = 0; k < h; k++)
            for (size_t d = 0; d < 4 * w; d++) j.transposed[d * h + k] = s->mix[k * 4 * w + d];
        gru_in_threads(chunk_work, &j, threads < GRU_CHUNKS ? threads : GRU_CHUNKS);
        if (backwards && !j.failed) sum_up(&j);
    }
    free(j.at), free(j.transposed), free(j.grads), free(j.parts);
    return j.failed ? -1 : 0;
}

/* Both return 0, or -1 if there is no memory; `most` as in gru_run.c. Gradients are added to. */
int gru_attend_forward(const gru_attention *s, int threads, int most) {
    return attend(s, gru_choose_kernel(most)->attend_forward, 0, threads);
}

int gru_attend_backward(const gru_attention *s, int threads, int most) {
    return attend(s, gru_choose_kernel(most)->attend_backward, 1, threads);
}
