/* The arithmetic of attention between two rows of vectors, and of its gradient; included by each kernel_*.c after
 * kernel.h. Each pair of rows is computed completely before the next one, so that all of it stays in the second-level
 * cache. Only the memory's words are padded, up to a full vector. attention.c has the formula. */

/* exp(v) for v <= 0. */
INLINE vec exp_below(vec v) {
    vec scale, p = exp_parts(v, &scale);
    return scale * p + scale;
}

INLINE float horizontal_sum(vec v) {
    float sum = 0.0f;
    for (int i = 0; i < LANES; i++) sum += v[i];
    return sum;
}

/* out[i][j] (+)= sum over k of a[i * by_row + k * by_k] * panel[k][j], for `rows` rows and `cols` vectors. */
INLINE void tile(const float *a, int32_t by_row, int32_t by_k, int32_t depth, const float *panel, float *out,
                 int32_t out_row, int add, const int rows, const int cols) {
    vec sums[ROWS][2];
    for (int i = 0; i < rows; i++)
        for (int c = 0; c < cols; c++) sums[i][c] = add ? load(out + (size_t)i * out_row + c * LANES) : (vec){0};
    for (int32_t k = 0; k < depth; k++, a += by_k, panel += cols * LANES) {
        vec right[2];
        for (int c = 0; c < cols; c++) right[c] = load(panel + c * LANES);
        for (int i = 0; i < rows; i++)
            for (int c = 0; c < cols; c++) sums[i][c] += right[c] * a[(size_t)i * by_row];
    }
    for (int i = 0; i < rows; i++)
        for (int c = 0; c < cols; c++) store(out + (size_t)i * out_row + c * LANES, sums[i][c]);
}

/* out [height, width] (+)= a [height, depth] @ b [depth, width], a as in `tile`; width is a multiple of LANES. `panel`
 * is a buffer of depth * 2 * LANES numbers, into which columns of b that are used together are copied. */
static void product(float *out, int32_t out_row, int32_t height, int32_t width, const float *a, int32_t by_row,
                    int32_t by_k, int32_t depth, const float *b, int32_t b_row, float *panel, int add) {
    for (int32_t j = 0; j < width; j += 2 * LANES) {
        const int wide = width - j >= 2 * LANES;
        const size_t columns = wide ? 2 * LANES : LANES;
        for (int32_t k = 0; k < depth; k++)
            memcpy(panel + k * columns, b + (size_t)k * b_row + j, columns * sizeof *panel);
        for (int32_t i = 0, n; i < height; i += n) {
            n = next_block(height - i);
            const float *left = a + (size_t)i * by_row;
            float *to = out + (size_t)i * out_row + j;
            if (wide) {
                FOR_ROWS(n, tile(left, by_row, by_k, depth, panel, to, out_row, add, rows, 2))
            } else {
                FOR_ROWS(n, tile(left, by_row, by_k, depth, panel, to, out_row, add, rows, 1))
            }
        }
    }
}

INLINE float dot(const float *a, const float *b, int32_t n) {
    vec sum = {0};
    for (int32_t i = 0; i < n; i += LANES) sum += load(a + i) * load(b + i);
    return horizontal_sum(sum);
}

/* to += from * factor */
INLINE void add_times(float *to, const float *from, float factor, int32_t n) {
    for (int32_t i = 0; i < n; i += LANES) store(to + i, load(to + i) + load(from + i) * factor);
}

/* to = a * b */
INLINE void times(float *to, const float *a, const float *b, int32_t n) {
    for (int32_t i = 0; i < n; i += LANES) store(to + i, load(a + i) * load(b + i));
}

INLINE vec vec_max(vec a, vec b) { return pick(a > b, a, b); }

/* The maximum of a row of full vectors. */
INLINE float row_max(const float *row, int32_t n) {
    vec most = load(row);
    for (int32_t i = LANES; i < n; i += LANES) most = vec_max(most, load(row + i));
    float one = most[0];
    for (int i = 1; i < LANES; i++) one = most[i] > one ? most[i] : one;
    return one;
}

/* Softmax in place of the first n numbers of a row padded to full vectors, with zeros behind. Returns the maximum of
 * the original numbers. */
INLINE float softmax_row(float *row, int32_t n) {
    const int32_t full = (n + LANES - 1) / LANES * LANES;
    for (int32_t i = n; i < full; i++) row[i] = row[0];
    const float most = row_max(row, full);
    for (int32_t i = 0; i < full; i += LANES) store(row + i, exp_below(load(row + i) - most));
    for (int32_t i = n; i < full; i++) row[i] = 0.0f;
    vec sum = {0};
    for (int32_t i = 0; i < full; i += LANES) sum += load(row + i);
    const float one = 1.0f / horizontal_sum(sum);
    for (int32_t i = 0; i < full; i += LANES) store(row + i, load(row + i) * one);
    return most;
}

/* memory [words, width] -> transposed [width, full], with zeros behind the words. */
static void transpose(const float *memory, int32_t words, int32_t full, int32_t width, float *transposed) {
    memset(transposed, 0, (size_t)width * full * sizeof *transposed);
    for (int32_t d = 0; d < width; d += LANES, transposed += (size_t)LANES * full)
        for (int32_t m = 0; m < words; m++)
            for (int32_t i = 0; i < LANES; i++) transposed[(size_t)i * full + m] = memory[(size_t)m * width + d + i];
}

static void attend_forward(const gru_attention *s, const gru_attention_pair *p, const gru_attention_scratch *r) {
    const int32_t w = s->width, h = s->hidden, t = p->words, m = p->memory_words;
    const int32_t full = (m + LANES - 1) / LANES * LANES;
    const size_t all = (size_t)t * w;
    float *weighed = r->token[0], *product_of = r->token[0], *importance = p->importance;
    transpose(p->memory, m, full, w, r->transposed);
    for (int32_t i = 0; i < t; i++)
        times(weighed + (size_t)i * w, p->context + (size_t)i * w, s->product_weight, w);
    product(p->shares, full, t, full, weighed, w, 1, w, r->transposed, full, r->panel, 0);
    for (int32_t k = 0; k < full; k++) r->row[k] = k < m ? dot(p->memory + (size_t)k * w, s->memory_weight, w) : 0.0f;
    for (int32_t i = 0; i < t; i++) {
        add_times(p->shares + (size_t)i * full, r->row, 1.0f, full);
        importance[i] = softmax_row(p->shares + (size_t)i * full, m) + dot(p->context + (size_t)i * w, s->context_weight, w);
    }
    softmax_row(importance, t);
    memset(p->gist, 0, w * sizeof *p->gist);
    for (int32_t i = 0; i < t; i++) add_times(p->gist, p->context + (size_t)i * w, importance[i], w);
    product(p->found, w, t, w, p->shares, full, 1, m, p->memory, w, r->panel, 0);
    times(product_of, p->context, p->found, (int32_t)all);
    /* The linear layer in parts: b * a under the weights is a under weights multiplied by b. */
    for (int32_t d = 0; d < w; d++)
        for (int32_t k = 0; k < h; k += LANES) {
            const float *found = r->mix_transposed + (size_t)(w + d) * h + k;
            const float *gist = r->mix_transposed + (size_t)(3 * w + d) * h + k;
            store(r->own + (size_t)d * h + k, load(found) + load(gist) * p->gist[d]);
        }
    for (int32_t i = 0; i < t; i++) memcpy(p->out + (size_t)i * h, s->bias, h * sizeof(float));
    product(p->out, h, t, h, p->context, w, 1, w, r->mix_transposed, h, r->panel, 1);
    product(p->out, h, t, h, p->found, w, 1, w, r->own, h, r->panel, 1);
    product(p->out, h, t, h, product_of, w, 1, w, r->mix_transposed + (size_t)2 * w * h, h, r->panel, 1);
    for (int32_t i = 0; i < t * h; i += LANES) {
        vec v = load(p->out + i);
        store(p->out + i, pick(v > 0.0f, v, v * GRU_LEAK));
    }
}

/* Turns the gradient of the shares [t, full] into that of the similarities, in place. from_gist: the gradient of the
* importances. */
INLINE void backward_shares(const gru_attention_pair *p, float *grad, const float *from_gist, int32_t full) {
    for (int32_t i = 0; i < p->words; i++, grad += full) {
        const float *shares = p->shares + (size_t)i * full;
        const float mean = dot(shares, grad, full);
        for (int32_t k = 0; k < full; k += LANES)
            store(grad + k, load(shares + k) * (load(grad + k) - mean));
        const vec most = (vec){0} + row_max(shares, full);
        vec count = {0};
        for (int32_t k = 0; k < full; k += LANES) count += pick(load(shares + k) == most, (vec){0} + 1.0f, (vec){0});
        const vec more = (vec){0} + from_gist[i] / horizontal_sum(count); /* shared equally among several maxima, as in torch */
        for (int32_t k = 0; k < full; k += LANES)
            store(grad + k, load(grad + k) + pick(load(shares + k) == most, more, (vec){0}));
    }
}

/* The gradients of the mixing weights, and of b through them. */
INLINE void backward_mix(const gru_attention *s, const gru_attention_pair *p, const gru_attention_scratch *r,
                         const float *mixed, const float *product_of) {
    const int32_t w = s->width, h = s->hidden, t = p->words;
    product(s->grad_mix, 4 * w, h, w, mixed, 1, h, t, p->context, w, r->panel, 1);
    product(s->grad_mix + 2 * w, 4 * w, h, w, mixed, 1, h, t, product_of, w, r->panel, 1);
    product(r->own, w, h, w, mixed, 1, h, t, p->found, w, r->panel, 0);
    memset(r->row, 0, w * sizeof *r->row);
    for (int32_t k = 0; k < h; k++) {
        float *own = r->own + (size_t)k * w, *grad = s->grad_mix + (size_t)k * 4 * w;
        const float *weights = s->mix + (size_t)k * 4 * w;
        for (int32_t d = 0; d < w; d += LANES) {
            vec g = load(own + d), gist = load(p->gist + d), for_gist = load(weights + 3 * w + d);
            store(grad + w + d, load(grad + w + d) + g);
            store(grad + 3 * w + d, load(grad + 3 * w + d) + g * gist);
            store(r->row + d, load(r->row + d) + g * for_gist);
            store(own + d, load(weights + w + d) + for_gist * gist); /* from here on `own` has the weights of a */
        }
    }
}

static void attend_backward(const gru_attention *s, const gru_attention_pair *p, const gru_attention_scratch *r) {
    const int32_t w = s->width, h = s->hidden, t = p->words, m = p->memory_words;
    const int32_t full = (m + LANES - 1) / LANES * LANES;
    float *mixed = r->mixed, *product_of = r->token[0], *context = r->token[1], *found = r->token[2], *both = r->token[0];
    memcpy(mixed, p->grad_out, (size_t)t * h * sizeof *mixed);
    for (int32_t i = 0; i < t * h; i += LANES)
        store(mixed + i, load(mixed + i) * pick(load(p->out + i) > 0.0f, (vec){0} + 1.0f, (vec){0} + GRU_LEAK));
    for (int32_t i = 0; i < t; i++) add_times(s->grad_bias, mixed + (size_t)i * h, 1.0f, h);
    times(product_of, p->context, p->found, t * w);
    backward_mix(s, p, r, mixed, product_of);
    const float *gist = r->row; /* its gradient */
    product(context, w, t, w, mixed, h, 1, h, s->mix, 4 * w, r->panel, 0);
    product(both, w, t, w, mixed, h, 1, h, s->mix + 2 * w, 4 * w, r->panel, 0);
    product(found, w, t, w, mixed, h, 1, h, r->own, w, r->panel, 0);
    for (int32_t i = 0; i < t * w; i += LANES) {
        store(context + i, load(context + i) + load(both + i) * load(p->found + i));
        store(found + i, load(found + i) + load(both + i) * load(p->context + i));
    }
    transpose(p->memory, m, full, w, r->transposed);
    product(r->shares, full, t, full, found, w, 1, w, r->transposed, full, r->panel, 0);
    product(p->grad_memory, w, m, w, p->shares, 1, full, t, found, w, r->panel, 0);
    /* b: through the softmax of the importances. */
    float mean = 0.0f;
    for (int32_t i = 0; i < t; i++) {
        r->column[i] = dot(gist, p->context + (size_t)i * w, w);
        mean += r->column[i] * p->importance[i];
        add_times(context + (size_t)i * w, gist, p->importance[i], w);
    }
    for (int32_t i = 0; i < t; i++) r->column[i] = p->importance[i] * (r->column[i] - mean);
    backward_shares(p, r->shares, r->column, full);
    /* The similarities: the parts of the product, of the context and of the memory. */
    float *weighed = found;
    product(both, w, t, w, r->shares, full, 1, m, p->memory, w, r->panel, 0);
    for (int32_t i = 0; i < t; i++) {
        const float *here = p->context + (size_t)i * w;
        const float of_row = r->column[i]; /* the part of a row's gradients through the softmax sums to 0 */
        for (int32_t d = 0; d < w; d += LANES) {
            vec c = load(here + d), g = load(both + (size_t)i * w + d), weight = load(s->product_weight + d);
            store(s->grad_product_weight + d, load(s->grad_product_weight + d) + g * c);
            store(s->grad_context_weight + d, load(s->grad_context_weight + d) + c * of_row);
            store(weighed + (size_t)i * w + d, c * weight);
            vec grad = load(context + (size_t)i * w + d) + g * weight + load(s->context_weight + d) * of_row;
            store(p->grad_context + (size_t)i * w + d, grad);
        }
    }
    product(p->grad_memory, w, m, w, r->shares, 1, full, t, weighed, w, r->panel, 1);
    memset(r->row, 0, full * sizeof *r->row);
    for (int32_t i = 0; i < t; i++) add_times(r->row, r->shares + (size_t)i * full, 1.0f, full);
    for (int32_t k = 0; k < m; k++) {
        add_times(s->grad_memory_weight, p->memory + (size_t)k * w, r->row[k], w);
        add_times(p->grad_memory + (size_t)k * w, s->memory_weight, r->row[k], w);
    }
}
