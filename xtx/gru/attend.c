/* Attention between rows of vectors, for xtx/gru/attend.py. Of each pair of a context [t, width] and a memory [m, width]:
 *
 *   similarity [t, m] = context . context_weight + memory . memory_weight + (context * product_weight) . memory
 *   a [t, width]      = softmax over the memory (similarity) @ memory                   kept: shares, found
 *   b [width]         = softmax over the context (highest similarity of each) @ context  kept: importance, gist
 *   out [t, hidden]   = leaky_relu(mix @ [context; a; context * a; b * a] + bias) */
#include <stdlib.h>
#include <string.h>

#include "gru.h"

static size_t full(int32_t words) { return ((size_t)words + GRU_GRAIN - 1) / GRU_GRAIN * GRU_GRAIN; }

/* All the room that the longest rows need, in one piece; NULL if there is no memory. */
static float *get_room(const gru_attention *s, gru_attention_room *r) {
    size_t w = (size_t)s->width, h = (size_t)s->hidden, t = full(s->most_words), m = full(s->most_memory_words);
    size_t longest = t > m ? t : m;
    longest = longest > w ? longest : w;
    longest = longest > h ? longest : h;
    size_t sizes[] = {t * w, t * w, t * w, t * h, w * m, t * m, m * w, w * h, longest * 2 * GRU_GRAIN, longest, t, 4 * w * h};
    float **parts[] = {&r->token[0], &r->token[1], &r->token[2], &r->mixed, &r->turned,     &r->shares,
                       &r->memory,   &r->own,      &r->panel,    &r->row,   &r->column, &r->mix_turned};
    size_t all = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) all += sizes[i];
    float *room = gru_room(all);
    for (size_t i = 0, at = 0; room && i < sizeof sizes / sizeof *sizes; at += sizes[i++]) *parts[i] = room + at;
    return room;
}

static int attend(const gru_attention *s, void (*work)(const gru_attention *, const gru_attention_pair *,
                                                       const gru_attention_room *)) {
    gru_attention_room r;
    float *room = get_room(s, &r);
    if (!room) return -1;
    size_t w = (size_t)s->width, h = (size_t)s->hidden, at = 0, shares = 0;
    for (size_t k = 0; k < h; k++)
        for (size_t d = 0; d < 4 * w; d++) r.mix_turned[d * h + k] = s->mix[k * 4 * w + d];
    for (int32_t i = 0; i < s->pairs; i++) {
        size_t context = (size_t)s->context_start[i] * w, memory = (size_t)s->memory_start[i] * w;
        gru_attention_pair p = {
            .words = s->context_words[i],
            .memory_words = s->memory_words[i],
            .context = s->table + context,
            .memory = s->table + memory,
            .out = s->out + at * h,
            .shares = s->shares + shares,
            .found = s->found + (s->keep ? at * w : 0),
            .importance = s->importance + (s->keep ? full((int32_t)at) + (size_t)i * GRU_GRAIN : 0),
            .gist = s->gist + (s->keep ? i * w : 0),
            .grad_out = s->grad_out ? s->grad_out + at * h : NULL,
            .grad_context = s->grad_table ? s->grad_table + context : NULL,
            .grad_memory = s->grad_table ? s->grad_table + memory : NULL,
        };
        work(s, &p, &r);
        at += (size_t)p.words;
        if (s->keep) shares += (size_t)p.words * full(p.memory_words);
    }
    free(room);
    return 0;
}

/* Both return 0, or -1 if there is no memory; `most` as in run.c. */
int gru_attend_forward(const gru_attention *s, int most) { return attend(s, gru_choose_kernel(most)->attend_forward); }

int gru_attend_backward(const gru_attention *s, int most) { return attend(s, gru_choose_kernel(most)->attend_backward); }
