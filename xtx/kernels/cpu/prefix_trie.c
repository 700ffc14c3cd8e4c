/* Builds a plan from rows of words: the distinct prefixes, level by level, in chunks. */
#include <stdlib.h>
#include <string.h>

#include "gru.h"

/* The least nodes of a chunk that justify a thread, and the size up to which chunks grow. There are as few chunks as
 * possible, because wide levels are faster than narrow ones; their number is a power of two, as that of threads often
 * is. */
#define SMALL_CHUNK 160
#define LARGE_CHUNK 1024
#define MAX_CHUNKS 16

typedef struct {
    uint64_t key; /* the first two words: decides most comparisons without reading the row */
    const int32_t *words;
    int32_t length, row;
} entry;

static int32_t shared(const entry *a, const entry *b) {
    int32_t least = a->length < b->length ? a->length : b->length, i = 0;
    while (i < least && a->words[i] == b->words[i]) i++;
    return i;
}

static int in_order(const entry *a, const entry *b) {
    if (a->key != b->key) return a->key < b->key;
    int32_t i = shared(a, b);
    if (i == b->length) return i == a->length;
    return i == a->length || a->words[i] < b->words[i];
}

/* Merge sort: stable, unlike qsort. */
static void sort(entry *e, entry *scratch, int32_t n) {
    if (n < 2) return;
    int32_t half = n / 2, a = 0, b = half;
    sort(e, scratch, half);
    sort(e + half, scratch, n - half);
    if (in_order(&e[half - 1], &e[half])) return;
    memcpy(scratch, e, half * sizeof *e);
    for (int32_t i = 0; a < half; i++) e[i] = b == n || in_order(&scratch[a], &e[b]) ? scratch[a++] : e[b++];
}

/* Chooses where the sorted rows are split: cut[0] = 0 < cut[1] < ... < cut[chunks] = n. fresh[i] is the number of nodes
 * of the rows before i; the cost of a split at i is the number of duplicated nodes plus the imbalance of the parts. */
static int32_t choose_cuts(const int32_t *common, const int64_t *fresh, int32_t n, int32_t *cut) {
    int64_t total = fresh[n], wanted = total < 2 * SMALL_CHUNK ? 1 : 2;
    while (wanted < MAX_CHUNKS && total > wanted * LARGE_CHUNK) wanted *= 2;
    int32_t chunks = 0, i = 1;
    cut[0] = 0;
    for (int64_t c = 1; c < wanted; c++) {
        int64_t target = total * c / wanted, least = total / wanted / 2;
        int32_t best = 0;
        for (; i < n; i++) {
            int64_t off = fresh[i] < target ? target - fresh[i] : fresh[i] - target;
            if (fresh[i] > target && off >= least) break;
            if (off + common[i] < least) least = off + common[i], best = i;
        }
        if (!best) continue;
        cut[++chunks] = best;
        i = best + 1;
    }
    cut[++chunks] = n;
    return chunks;
}

typedef struct {
    int32_t *chunk_level, *level_node, *level_end, *parent, *word, *end_row, *row_node, *word_start, *word_node, *words;
} arrays;

/* Writes the levels of one chunk, rows a to b in sorted order. `cursor` is a buffer of two numbers for each level. */
static void lay_out(const entry *e, int32_t *common, int32_t a, int32_t b, gru_plan *p, const arrays *to, int32_t *cursor) {
    int32_t depth = 0, first = p->levels;
    common[a] = 0; /* a chunk shares nothing with the one before */
    for (int32_t i = a; i < b; i++) depth = e[i].length > depth ? e[i].length : depth;
    int32_t *node = cursor, *end = cursor + depth;
    memset(cursor, 0, 2 * (size_t)depth * sizeof *cursor);
    for (int32_t i = a; i < b; i++) {
        for (int32_t d = common[i]; d < e[i].length; d++) node[d]++;
        end[e[i].length - 1]++;
    }
    for (int32_t d = 0; d < depth; d++) {
        to->level_node[p->levels] = p->nodes;
        to->level_end[p->levels++] = p->rows;
        p->nodes += node[d];
        p->rows += end[d];
        node[d] = to->level_node[first + d];
        end[d] = to->level_end[first + d];
    }
    for (int32_t i = a; i < b; i++) {
        for (int32_t d = common[i]; d < e[i].length; d++) {
            /* In this order, a row's prefix is always the latest node of its level. */
            to->parent[node[d]] = d ? node[d - 1] - 1 - to->level_node[first + d - 1] : -1;
            to->word[node[d]++] = e[i].words[d];
        }
        int32_t last = e[i].length - 1;
        to->row_node[e[i].row] = node[last] - 1;
        to->end_row[end[last]++] = e[i].row;
    }
}

/* Numbers the words in the order of their first nodes, and lists the nodes of each. Returns 0, or -1 if there is no
* memory. */
static int number_words(gru_plan *p, const arrays *to) {
    uint32_t mask = 15;
    while (mask < 2 * (uint32_t)p->nodes) mask = 2 * mask + 1;
    int32_t *table = calloc(mask + (size_t)1, sizeof *table); /* a word's number, plus one */
    if (!table) return -1;
    memset(to->word_start, 0, ((size_t)p->nodes + 1) * sizeof *to->word_start);
    for (int32_t i = 0; i < p->nodes; i++) {
        uint32_t at = ((uint32_t)to->word[i] * 2654435761u) >> 7 & mask;
        while (table[at] && to->words[table[at] - 1] != to->word[i]) at = (at + 1) & mask;
        if (!table[at]) {
            to->words[p->words++] = to->word[i];
            table[at] = p->words;
        }
        to->word[i] = table[at] - 1;
        to->word_start[to->word[i] + 1]++;
    }
    free(table);
    for (int32_t w = 0; w < p->words; w++) to->word_start[w + 1] += to->word_start[w];
    for (int32_t i = 0; i < p->nodes; i++) to->word_node[to->word_start[to->word[i]]++] = i;
    memmove(to->word_start + 1, to->word_start, (size_t)p->words * sizeof *to->word_start);
    to->word_start[0] = 0;
    return 0;
}

/* Fills a plan, whose arrays must have one element more than there are words in all rows. Each of `rows` rows has at
 * least one word. Returns 0, or -1 if there is no memory. */
int gru_make_plan(const int32_t *flat, const int64_t *offsets, int32_t rows, gru_plan *p, int32_t *words) {
    arrays to = {
        (int32_t *)p->chunk_level, (int32_t *)p->level_node, (int32_t *)p->level_end,  (int32_t *)p->parent,
        (int32_t *)p->word,        (int32_t *)p->end_row,    (int32_t *)p->row_node,   (int32_t *)p->word_start,
        (int32_t *)p->word_node,   words,
    };
    size_t n = (size_t)rows, longest = 0;
    entry *e = malloc(2 * n * sizeof *e);
    int64_t *fresh = malloc((n + 1) * sizeof *fresh);
    int32_t *common = malloc(n * sizeof *common), *cursor = NULL, cut[MAX_CHUNKS + 1], result = -1;
    if (!e || !fresh || !common) goto end;
    for (int32_t i = 0; i < rows; i++) {
        const int32_t *first = flat + offsets[i];
        size_t length = (size_t)(offsets[i + 1] - offsets[i]);
        e[i] = (entry){(uint64_t)first[0] << 32 | (length > 1 ? (uint32_t)first[1] + 1 : 0), first, (int32_t)length, i};
        longest = length > longest ? length : longest;
    }
    cursor = malloc(2 * longest * sizeof *cursor);
    if (!cursor) goto end;
    sort(e, e + rows, rows);
    fresh[0] = 0;
    for (int32_t i = 0; i < rows; i++) {
        common[i] = i ? shared(&e[i - 1], &e[i]) : 0;
        fresh[i + 1] = fresh[i] + e[i].length - common[i];
    }
    p->chunks = choose_cuts(common, fresh, rows, cut);
    p->levels = p->nodes = p->rows = p->words = 0;
    for (int32_t c = 0; c < p->chunks; c++) {
        to.chunk_level[c] = p->levels;
        lay_out(e, common, cut[c], cut[c + 1], p, &to, cursor);
    }
    to.chunk_level[p->chunks] = p->levels;
    to.level_node[p->levels] = p->nodes;
    to.level_end[p->levels] = p->rows;
    result = number_words(p, &to);
end:
    free(e), free(fresh), free(common), free(cursor);
    return result;
}
