/* Sorts the positions of words in many rows by word: the order in which gradients of words are summed. */
#include <stdint.h>
#include <string.h>

/* Rows of words in one array: row `text` has lengths[text] words from flat[starts[text]] on. */
typedef struct {
    const int32_t *flat;
    const int64_t *starts, *lengths;
} table;

/* Each of `rows` rows is a text of the table (negative: none) and belongs to one of `groups` groups, each of which has
 * `scratch` positions that its rows fill in their order. at[row] becomes the position of the row's first word (-1 for no
 * text). `places` becomes the positions of all words, ordered by word, then group, then row; those of a word and group
 * begin at first[word * groups + group]. Returns 0, or -1 if a group is full or a word is not below `words`. */
int gru_order(const int32_t *text, const int32_t *group, int32_t rows, const table *t, int32_t words, int32_t groups,
              int32_t scratch, int32_t *at, int32_t *first, int32_t *places) {
    int32_t used[64], keys = words * groups;
    if (groups < 1 || groups > 64) return -1;
    memset(used, 0, sizeof used);
    memset(first, 0, ((size_t)keys + 1) * sizeof *first);
    for (int32_t r = 0; r < rows; r++) {
        at[r] = -1;
        if (text[r] < 0) continue;
        const int32_t g = group[r], *word = t->flat + t->starts[text[r]];
        const int64_t length = t->lengths[text[r]];
        if (g < 0 || g >= groups || length > scratch - used[g]) return -1;
        at[r] = g * scratch + used[g];
        used[g] += (int32_t)length;
        for (int64_t i = 0; i < length; i++) {
            if (word[i] < 0 || word[i] >= words) return -1;
            first[word[i] * groups + g + 1]++;
        }
    }
    for (int32_t k = 0; k < keys; k++) first[k + 1] += first[k];
    for (int32_t r = 0; r < rows; r++) {
        if (text[r] < 0) continue;
        const int32_t g = group[r], *word = t->flat + t->starts[text[r]];
        for (int32_t i = 0, length = (int32_t)t->lengths[text[r]]; i < length; i++)
            places[first[word[i] * groups + g]++] = at[r] + i;
    }
    /* every entry was advanced to the beginning of the next one */
    memmove(first + 1, first, (size_t)keys * sizeof *first);
    first[0] = 0;
    return 0;
}
