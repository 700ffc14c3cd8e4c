/* The arithmetic of one level. Each kernel_*.c selects an instruction set, defines LANES (numbers in a vector), ROWS
 * (nodes that are computed together) and KERNEL (the name of the kernel), and includes this file. GCC's vector types
 * compile to the instructions of that set.
 *
 * ROWS * 3 sums must fit into the vector registers, with some left for weights: then the inner loops load few numbers
 * for each multiplication, and the gates are computed before anything is stored. */
#include <string.h>

#include "gru.h"

#define INLINE static inline __attribute__((always_inline))

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int32_t ivec __attribute__((vector_size(4 * LANES)));
typedef float loose __attribute__((vector_size(4 * LANES), aligned(4), may_alias)); /* memory of any alignment */

INLINE vec load(const float *p) { return *(const loose *)p; }
INLINE void store(float *p, vec v) { *(loose *)p = v; }
INLINE vec pick(ivec where, vec a, vec b) { return (vec)((where & (ivec)a) | (~where & (ivec)b)); }

/* Runs CALL with `rows` a constant, so that its loops over rows are unrolled and its sums stay in registers. */
#define CASE(n, CALL)           \
    case n: {                   \
        enum { rows = n };      \
        CALL;                   \
        break;                  \
    }
#if ROWS == 8
#define FOR_ROWS(count, CALL)                                                                                    \
    switch (count) {                                                                                             \
        CASE(1, CALL) CASE(2, CALL) CASE(3, CALL) CASE(4, CALL) CASE(5, CALL) CASE(6, CALL) CASE(7, CALL)        \
        CASE(8, CALL)                                                                                            \
    }
#else
#define FOR_ROWS(count, CALL) \
    switch (count) { CASE(1, CALL) CASE(2, CALL) CASE(3, CALL) CASE(4, CALL) }
#endif

/* Rows of the next block. Blocks of a level have about equal size, because a block of one or two rows is limited by
* memory. */
INLINE int32_t next_block(int32_t left) {
    int32_t blocks = (left + ROWS - 1) / ROWS;
    return (left + blocks - 1) / blocks;
}

/* exp(v) = scale * (1 + p), to about two units in the last place; returns p. v is clamped to +-40, where the gates are
 * saturated. v = n ln 2 + r; exp(r) - 1 by the polynomial of Cephes' expf. A NaN stays one. */
INLINE vec exp_parts(vec v, vec *scale) {
    const float big = 12582912.0f; /* adding it rounds to an integer, which is then in the lowest bits */
    const vec zero = {0};
    v = pick(v > 40.0f, zero + 40.0f, v);
    v = pick(v < -40.0f, zero - 40.0f, v);
    vec n = v * 1.44269504f + big;
    *scale = (vec)(((ivec)n << 23) + 0x3f800000);
    n -= big;
    vec r = v - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    vec p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    return p * (r * r) + r;
}

/* exp(v) - 1, accurate for small v too. */
INLINE vec exp_minus_1(vec v) {
    vec scale, p = exp_parts(v, &scale);
    return scale * p + (scale - 1.0f);
}

INLINE void gates(vec *r, vec *z, vec *n, vec x_n) {
    vec a = exp_minus_1(-*r) + 2.0f, b = exp_minus_1(-*z) + 2.0f;
    vec one = 1.0f / (a * b); /* one division for both, because it is the slowest instruction here */
    *r = b * one;
    *z = a * one;
    vec e = exp_minus_1(-2.0f * (x_n + *r * *n));
    *n = -e / (e + 2.0f);
}

/* [panel of LANES columns][k][gate][LANES] */
static void pack_forward(const float *w, int32_t size, float *packed) {
    for (int32_t j = 0; j < size; j += LANES)
        for (int32_t k = 0; k < size; k++)
            for (int g = 0; g < 3; g++)
                for (int c = 0; c < LANES; c++) *packed++ = w[((size_t)g * size + j + c) * size + k];
}

INLINE void forward_block(const gru_level *l, int32_t first, int32_t j, const int rows) {
    const int32_t size = l->size, depth = l->before ? size : 0;
    const float *w = l->w + (size_t)j * 3 * size;
    const float *before[ROWS], *x[ROWS];
    vec r[ROWS], z[ROWS], n[ROWS];
    for (int i = 0; i < rows; i++) {
        before[i] = l->before + (depth ? (size_t)l->parent[first + i] * size : 0);
        x[i] = l->x + (size_t)l->word[first + i] * 3 * size + j;
        r[i] = load(x[i]) + load(l->b + j);
        z[i] = load(x[i] + size) + load(l->b + size + j);
        n[i] = load(l->b + 2 * size + j);
    }
    for (int32_t k = 0; k < depth; k++, w += 3 * LANES) {
        vec w_r = load(w), w_z = load(w + LANES), w_n = load(w + 2 * LANES);
        for (int i = 0; i < rows; i++) {
            float h = before[i][k];
            r[i] += w_r * h;
            z[i] += w_z * h;
            n[i] += w_n * h;
        }
    }
    for (int i = 0; i < rows; i++) {
        vec part = n[i], old = depth ? load(before[i] + j) : (vec){0};
        gates(&r[i], &z[i], &n[i], load(x[i] + 2 * size));
        store(l->state + (size_t)(first + i) * size + j, n[i] + z[i] * (old - n[i]));
        if (l->kept) {
            float *kept = l->kept + (size_t)(first + i) * 4 * size + j;
            store(kept, r[i]);
            store(kept + size, z[i]);
            store(kept + 2 * size, n[i]);
            store(kept + 3 * size, part);
        }
    }
}

static void forward(const gru_level *l) {
    for (int32_t j = 0; j < l->size; j += LANES) /* outermost, so that the panel of weights stays in the first-level cache */
        for (int32_t i = 0, n; i < l->width; i += n) {
            n = next_block(l->width - i);
            FOR_ROWS(n, forward_block(l, i, j, rows))
        }
}

/* [panel of 2 LANES columns][k][2 LANES], k over all gates */
static void pack_backward(const float *w, int32_t size, float *packed) {
    for (int32_t j = 0; j < size; j += 2 * LANES)
        for (int32_t k = 0; k < 3 * size; k++, packed += 2 * LANES)
            memcpy(packed, w + (size_t)k * size + j, 2 * LANES * sizeof *w);
}

INLINE void backward_block(const gru_level *l, int32_t first, int32_t j, const int rows) {
    const int32_t size = l->size;
    const float *w = l->w + (size_t)j * 3 * size;
    const float *gate[ROWS];
    vec a[ROWS], b[ROWS];
    for (int i = 0; i < rows; i++) {
        gate[i] = l->kept + (size_t)(first + i) * 4 * size;
        a[i] = b[i] = (vec){0};
    }
    for (int32_t k = 0; k < 3 * size; k++, w += 2 * LANES) {
        vec w_a = load(w), w_b = load(w + LANES);
        for (int i = 0; i < rows; i++) {
            a[i] += w_a * gate[i][k];
            b[i] += w_b * gate[i][k];
        }
    }
    for (int i = 0; i < rows; i++) { /* sequentially, because two nodes may have the same parent */
        float *to = l->grad_before + (size_t)l->parent[first + i] * size + j;
        store(to, load(to) + a[i]);
        store(to + LANES, load(to + LANES) + b[i]);
    }
}

/* Adds the gradients of a node's gates to those of its input and of the biases of r and z. */
INLINE void add_to_input(const gru_level *l, int32_t i, int32_t j, vec r, vec z, vec n) {
    const int32_t size = l->size;
    float *x = l->grad_x + (size_t)l->word[i] * 3 * size + j, *b = l->grad_rz + j;
    store(x, load(x) + r);
    store(x + size, load(x + size) + z);
    store(x + 2 * size, load(x + 2 * size) + n);
    store(b, load(b) + r);
    store(b + size, load(b + size) + z);
}

/* Overwrites a node's gates with their gradients, and adds the part of the parent's gradient that does not pass them.
*/
INLINE void backward_gates(const gru_level *l, int32_t i) {
    const int32_t size = l->size;
    float *kept = l->kept + (size_t)i * 4 * size;
    const float *before = l->before + (l->before ? (size_t)l->parent[i] * size : 0);
    float *to = l->grad_before + (l->before ? (size_t)l->parent[i] * size : 0);
    for (int32_t j = 0; j < size; j += LANES) {
        vec grad = load(l->grad + (size_t)i * size + j);
        vec r = load(kept + j), z = load(kept + size + j), n = load(kept + 2 * size + j);
        vec part = load(kept + 3 * size + j), old = l->before ? load(before + j) : (vec){0};
        vec grad_n = grad * (1.0f - z) * (1.0f - n * n);
        vec grad_part = grad_n * r;
        store(kept + j, grad_n * part * (r * (1.0f - r)));
        store(kept + size + j, grad * (old - n) * (z * (1.0f - z)));
        store(kept + 2 * size + j, grad_part);
        store(kept + 3 * size + j, grad_n);
        store(l->grad_b + j, load(l->grad_b + j) + grad_part);
        if (l->before) store(to + j, load(to + j) + grad * z);
        if (l->grad_x) add_to_input(l, i, j, load(kept + j), load(kept + size + j), grad_n);
    }
}

static void backward(const gru_level *l) {
    for (int32_t i = 0; i < l->width; i++) backward_gates(l, i);
    if (!l->before) return;
    for (int32_t j = 0; j < l->size; j += 2 * LANES)
        for (int32_t i = 0, n; i < l->width; i += n) {
            n = next_block(l->width - i);
            FOR_ROWS(n, backward_block(l, i, j, rows))
        }
}

static void outer(int32_t size, int32_t count, const float *const *gates_of, const float *const *states, float *scratch,
                  float *grad_w) {
    /* Rows are 4 * size numbers apart, often a power of two, which causes cache conflicts: both are copied first. */
    float *gate = scratch, *state = scratch + (size_t)3 * size * GRU_BLOCK;
    for (int32_t t = 0; t < count; t++) {
        for (int32_t g = 0; g < 3 * size; g += ROWS)
            memcpy(gate + (size_t)g * count + t * ROWS, gates_of[t] + g, ROWS * sizeof *gate);
        for (int32_t j = 0; j < size; j += 2 * LANES)
            memcpy(state + (size_t)j * count + t * 2 * LANES, states[t] + j, 2 * LANES * sizeof *state);
    }
    for (int32_t j = 0; j < size; j += 2 * LANES)
        for (int32_t g = 0; g < 3 * size; g += ROWS) {
            const float *left = gate + (size_t)g * count, *right = state + (size_t)j * count;
            float *to = grad_w + (size_t)g * size + j;
            vec a[ROWS], b[ROWS];
            for (int i = 0; i < ROWS; i++) {
                a[i] = load(to + (size_t)i * size);
                b[i] = load(to + (size_t)i * size + LANES);
            }
            for (int32_t t = 0; t < count; t++, left += ROWS, right += 2 * LANES) {
                vec s_a = load(right), s_b = load(right + LANES);
                for (int i = 0; i < ROWS; i++) {
                    a[i] += s_a * left[i];
                    b[i] += s_b * left[i];
                }
            }
            for (int i = 0; i < ROWS; i++) {
                store(to + (size_t)i * size, a[i]);
                store(to + (size_t)i * size + LANES, b[i]);
            }
        }
}

#include "attention.h"

const gru_kernel KERNEL = {pack_forward, forward, pack_backward, backward, outer, attend_forward, attend_backward};
