/* Where the words of many rows lie, word by word: gradients of words are added up in that order. */
#include <stdint.h>
#include <string.h>

/* Rows of words, one behind the other: row `text` has lengths[text] words from flat[starts[text]] on. */
typedef struct {
    const int32_t *flat;
    const int64_t *starts, *lengths;
} table;

/* For `rows` rows, each a text of the table (or none: negative) and one of `groups` groups: at[row] is the place of its
 * first word among the `room` places of its group, which the rows take up in their order (-1 for no text). places[k]
 * are the places of all words, by word, then by group, then in the rows' order; those of a word and group begin at
 * first[word * groups + group]. 0, or -1 if a group has no room or a word is not below `words`. */
int gru_order(const int32_t *text, const int32_t *group, int32_t rows, const table *t, int32_t words, int32_t groups,
              int32_t room, int32_t *at, int32_t *first, int32_t *places) {
    int32_t used[64], keys = words * groups;
    if (groups < 1 || groups > 64) return -1;
    memset(used, 0, sizeof used);
    memset(first, 0, ((size_t)keys + 1) * sizeof *first);
    for (int32_t r = 0; r < rows; r++) {
        at[r] = -1;
        if (text[r] < 0) continue;
        const int32_t g = group[r], *word = t->flat + t->starts[text[r]];
        const int64_t length = t->lengths[text[r]];
        if (g < 0 || g >= groups || length > room - used[g]) return -1;
        at[r] = g * room + used[g];
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
    /* every entry has come to where the next one begins */
    memmove(first + 1, first, (size_t)keys * sizeof *first);
    first[0] = 0;
    return 0;
}
