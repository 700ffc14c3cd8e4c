/* Fills the templates of a grammar with the names of things: every command once, in the order of the templates.
 *
 * With twenty names a grammar gives thirty thousand commands, of which about a hundred have an effect. They are made
 * and deduplicated here without a Python object for each. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* What a template is filled with: nothing; a name; a name or "me"; two different names; a name and a side. */
enum { PLAIN, NAME, NAME_OR_ME, TWO_NAMES, NAME_AND_SIDE };

/* The hash of a text is a polynomial in FACTOR, so the hash of a concatenation follows from those of its parts. */
#define FACTOR 0x9E3779B97F4A7C15u

typedef struct {
    const char *text; /* with at least SLACK bytes that may be read from its beginning */
    uint32_t length, spaces;
    uint64_t hash, power; /* FACTOR to the power of its length */
} word;

enum { SLACK = 16 }; /* short words are copied as 16 bytes, so as many may be written behind the last command */

typedef struct {
    char *text;
    uint32_t *starts; /* of the commands in the text, and behind the last one */
    uint16_t *forms;  /* which template each was made from */
    uint8_t *words;
    int32_t count;
    uint64_t *table; /* a hash table of the commands: half of the hash, then number and 1; 0 for none */
    uint32_t mask;
} filling;

/* Adds the concatenation of these words as a command; returns its index, or that of an equal command before. */
static int32_t add(filling *f, uint16_t form, const word *words, int count) {
    char *start = f->text + f->starts[f->count], *end = start;
    uint64_t hash = 0;
    uint32_t spaces = 0;
    for (int i = 0; i < count; i++) {
        if (words[i].length <= SLACK) memcpy(end, words[i].text, SLACK);
        else memcpy(end, words[i].text, words[i].length);
        end += words[i].length;
        hash = hash * words[i].power + words[i].hash;
        spaces += words[i].spaces;
    }
    *end = 0;
    hash ^= hash >> 32;
    hash *= FACTOR;
    const uint32_t length = (uint32_t)(end - start), half = (uint32_t)(hash >> 32);
    uint32_t slot = (uint32_t)hash & f->mask;
    for (; f->table[slot]; slot = (slot + 1) & f->mask) {
        if (f->table[slot] >> 32 != half) continue;
        int32_t other = (int32_t)(uint32_t)f->table[slot] - 1;
        if (f->starts[other + 1] - f->starts[other] == length + 1 && !memcmp(f->text + f->starts[other], start, length))
            return other;
    }
    f->forms[f->count] = form;
    f->words[f->count] = (uint8_t)(spaces + 1);
    f->starts[f->count + 1] = f->starts[f->count] + length + 1;
    f->table[slot] = (uint64_t)half << 32 | (uint32_t)++f->count;
    return f->count - 1;
}

static const char *read_word(const char *text, word *w) {
    *w = (word){.text = text, .power = 1};
    for (; *text; text++) {
        w->hash = w->hash * FACTOR + (uint8_t)*text;
        w->power *= FACTOR;
        w->spaces += *text == ' ';
    }
    w->length = (uint32_t)(text - w->text);
    return text + 1;
}

/* Returns the length of `count` words with a NUL behind each. */
static size_t length_of(const char *words, int32_t count) {
    const char *end = words;
    for (; count-- > 0;) end += strlen(end) + 1;
    return (size_t)(end - words);
}

/* Fills each template, given as the three parts around its slots, and writes the commands to `text`, each with a NUL
 * behind it, from starts[0] on; there must be space for all of them and SLACK bytes more. `lines` receives, for each
 * template, the index of the command with each name, if there is one; `squares`, for each template with two names, that
 * of the command with each pair of names, -1 for a name with itself. Returns the number of commands, -1 if there is no
 * memory. */
int32_t zset_fill(const char *parts, const uint8_t *kinds, int32_t templates, const char *names, int32_t name_count,
                  const char *sides, int32_t side_count, int32_t most, char *text, uint32_t *starts, uint16_t *forms,
                  uint8_t *words, int32_t *lines, int32_t *squares) {
    uint32_t size = 64;
    while (size < (uint32_t)most + (uint32_t)most / 2) size *= 2;
    /* Copies, because SLACK bytes must be readable behind each, and the originals may end at unmapped memory. */
    const size_t part_bytes = length_of(parts, 3 * templates), name_bytes = length_of(names, name_count),
                 side_bytes = length_of(sides, side_count);
    char *copies = malloc(part_bytes + name_bytes + side_bytes + SLACK);
    word *name = malloc(((size_t)name_count + (size_t)side_count + 1) * sizeof *name), *side = name + name_count;
    filling f = {.text = text, .starts = starts, .forms = forms, .words = words, .mask = size - 1};
    f.table = calloc(size, sizeof *f.table);
    if (!copies || !name || !f.table) {
        free(copies);
        free(name);
        free(f.table);
        return -1;
    }
    memcpy(copies, parts, part_bytes);
    memcpy(copies + part_bytes, names, name_bytes);
    memcpy(copies + part_bytes + name_bytes, sides, side_bytes);
    memset(copies + part_bytes + name_bytes + side_bytes, 0, SLACK);
    parts = copies;
    names = copies + part_bytes;
    sides = names + name_bytes;
    for (int32_t i = 0; i < name_count; i++) names = read_word(names, &name[i]);
    for (int32_t i = 0; i < side_count; i++) sides = read_word(sides, &side[i]);
    for (int32_t t = 0; t < templates; t++) {
        word line[5]; /* a part, a name, a part, a name, a part */
        for (int i = 0; i < 5; i += 2) parts = read_word(parts, &line[i]);
        uint16_t form = (uint16_t)t;
        if (kinds[t] == PLAIN) {
            add(&f, form, line, 1);
            continue;
        }
        for (int32_t a = 0; a < name_count; a++) {
            line[1] = name[a];
            if (kinds[t] == TWO_NAMES)
                for (int32_t b = 0; b < name_count; b++) {
                    line[3] = name[b];
                    *squares++ = a == b ? -1 : add(&f, form, line, 5);
                }
            else if (kinds[t] == NAME_AND_SIDE)
                for (int32_t b = 0; b < side_count; b++) {
                    line[3] = side[b];
                    add(&f, form, line, 5);
                }
            else
                lines[t * name_count + a] = add(&f, form, line, 3);
        }
        if (kinds[t] == NAME_OR_ME) {
            static const char me[SLACK] = "me";
            read_word(me, &line[1]);
            add(&f, form, line, 3);
        }
    }
    free(copies);
    free(name);
    free(f.table);
    return f.count;
}
