/* The last states of a GRU over many short token rows that share prefixes.
 *
 * The rows form a trie: a *node* is one distinct prefix, and its state is computed once, from its parent's state and
 * its last word. All nodes of one length are a *level*; a level is one small matrix product. The trie is split into
 * *chunks* of neighbouring rows that are independent of each other (the few nodes on a boundary are in both), so
 * threads need not synchronise at every level. The split depends on the rows only, never on the number of threads, and
 * sums have a fixed order: results have the same bits for any number of threads.
 *
 *   prefix_trie.c          rows -> plan
 *   gru_run.c           plan -> states and gradients: levels, chunks, threads; the functions that Python calls
 *   bidirectional_gru.c     the states of all tokens of rows that share nothing, in both directions
 *   attention.c        attention between rows; its arithmetic is in attention.h
 *   kernel.h        the arithmetic of one level, for vectors of any width
 *   kernel_*.c      kernel.h compiled for one kind of machine each
 *
 * There are no global variables. */
#ifndef GRU_H
#define GRU_H

#include <stddef.h>
#include <stdint.h>

/* Sizes of states must be a multiple of this: two of the widest vectors. Python pads with zeros. */
#define GRU_GRAIN 32

/* The same structure as `_Plan` in __init__.py. A *place* is a node's number within its level. */
typedef struct {
    int32_t chunks, levels, nodes, rows, words;
    const int32_t *chunk_level; /* [chunks + 1] each chunk's first level */
    const int32_t *level_node;  /* [levels + 1] each level's first node */
    const int32_t *level_end;   /* [levels + 1] each level's first entry in `end_row` */
    const int32_t *parent;      /* [nodes] the parent's place in the level before; -1 in a chunk's first level */
    const int32_t *word;        /* [nodes] number of the last word among the words of this plan */
    const int32_t *end_row;     /* [rows] rows in the order of the nodes where they end */
    const int32_t *row_node;    /* [rows] the node where each row ends */
    const int32_t *word_start;  /* [words + 1] each word's first entry in `word_node` */
    const int32_t *word_node;   /* [nodes] nodes in the order of their words */
} gru_plan;

/* One level, as the kernels read it. Matrices have rows of `size` numbers, gate matrices of 3 * size: r, z, n. */
typedef struct {
    int32_t size, width;
    const int32_t *parent, *word;
    const float *x;      /* [words, 3 size] input projections with the input's bias */
    const float *b;      /* [3 size] the state's bias */
    const float *w;      /* the state's weights as the kernel packed them */
    const float *before; /* [.., size] states of the level before; NULL in the first level */
    float *state;        /* [width, size] */
    float *kept;         /* [width, 4 size] r, z, n, and n's part from the state; backwards these become the gradients
                            of r, z, n's part from the state, and n. NULL: forwards only */
    float *grad;         /* [width, size] gradient of the states */
    float *grad_before;  /* [.., size] the same of the level before, added to; NULL in the first level */
    float *grad_b;       /* [size] gradient of n's bias from the state, added to */
    float *grad_x;       /* [words, 3 size] gradient of x, added to; NULL: it is summed later */
    float *grad_rz;      /* [2 size] gradient of the biases of r and z, added to with it */
} gru_level;

/* Attention between pairs of rows; see attention.c. The same structure as `_Attention` in attention.py. Rows are slices
 * of `table`, and a row may be in several pairs. */
#define GRU_CHUNKS 8   /* number of chunks into which pairs are split for threads: _CHUNKS in attention.py */
#define GRU_LEAK 0.01f /* the slope of leaky_relu below 0 */

typedef struct {
    int32_t width, hidden, pairs, most_words, most_memory_words;
    int32_t keep; /* whether the intermediate results have space for all pairs; otherwise for the longest pair
    GRU_CHUNKS
                     times, and only `out` is computed */
    const int32_t *context_start, *context_words, *memory_start, *memory_words; /* [pairs] */
    const float *table;                                                         /* [.., width] */
    const float *context_weight, *memory_weight, *product_weight;               /* [width] */
    const float *mix, *bias;                                                    /* [hidden, 4 width], [hidden] */
    float *out;                                                                 /* [words of all contexts, hidden] */
    float *shares, *found, *importance, *gist;                                  /* intermediate results */
    const float *grad_out;
    float *grad_table, *grad_context_weight, *grad_memory_weight, *grad_product_weight, *grad_mix, *grad_bias;
} gru_attention;

/* One pair's part of that. Rows of `shares` are padded to full vectors with zeros. */
typedef struct {
    int32_t words, memory_words;
    const float *context, *memory;
    float *out, *shares, *found, *importance, *gist;
    const float *grad_out;
    float *grad_context, *grad_memory; /* of this pair alone */
} gru_attention_pair;

/* Temporary buffers for a pair of t words of context and m words of memory. */
typedef struct {
    float *token[3];        /* [t, width] each */
    float *mixed;           /* [t, hidden] */
    float *transposed;          /* [width, m] */
    float *shares;          /* [t, m] */
    float *own;             /* [width, hidden] */
    float *panel;           /* of a product */
    float *row, *column;    /* [m] or [width], [t] */
    float *mix_transposed;  /* [4 width, hidden]: the mixing weights, for all pairs */
} gru_attention_scratch;

/* Nodes whose parts of the weights' gradient are added together: as many as fit well into the second-level cache. */
#define GRU_BLOCK 128

typedef struct {
    void (*pack_forward)(const float *w, int32_t size, float *packed);
    void (*forward)(const gru_level *level);
    void (*pack_backward)(const float *w, int32_t size, float *packed);
    void (*backward)(const gru_level *level);
    /* grad_w [3 size, size] += gates[i] (outer product) states[i], for count <= GRU_BLOCK nodes; `scratch` is a buffer
     * of GRU_BLOCK * 4 * size numbers. */
    void (*outer)(int32_t size, int32_t count, const float *const *gates, const float *const *states, float *scratch,
                  float *grad_w);
    void (*attend_forward)(const gru_attention *, const gru_attention_pair *, const gru_attention_scratch *);
    void (*attend_backward)(const gru_attention *, const gru_attention_pair *, const gru_attention_scratch *);
} gru_kernel;

extern const gru_kernel gru_kernel_plain;
#if defined(__x86_64__)
extern const gru_kernel gru_kernel_avx2, gru_kernel_avx512;
#endif

/* Defined in gru_run.c. */
void gru_in_threads(void (*work)(void *), void *data, int threads);
float *gru_allocate(size_t numbers); /* allocates aligned memory; NULL if there is none */
const gru_kernel *gru_choose_kernel(int most); /* the best kernel of this machine, at most `most`: see gru_forward */

#endif
