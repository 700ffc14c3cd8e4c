/* Filling the templates of a grammar with the names of things: every command once, in the templates' order.
 *
 * With twenty names at hand a grammar gives thirty thousand commands, of which a hundred will be worth a word: they are
 * made, told apart and handed on without ever becoming objects of Python's. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* What is filled in: nothing; a name; a name or "me"; two different names; a name and a side. */
enum { PLAIN, NAME, NAME_OR_ME, TWO_NAMES, NAME_AND_SIDE };

typedef struct {
    const char *text;
    uint32_t length;
} word;

typedef struct {
    char *text;
    uint32_t *starts; /* of the commands in the text, and behind the last one */
    uint16_t *forms;  /* which template each was made from */
    uint8_t *words;
    int32_t count;
    int32_t *table; /* a hash table of the commands: number and 1, 0 for none */
    uint32_t mask;
} filling;

static uint32_t hash_of(const char *text, uint32_t length) {
    uint64_t hash = length, part;
    for (; length >= 8; length -= 8, text += 8) {
        memcpy(&part, text, 8);
        hash = (hash ^ part) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 32;
    }
    part = 0;
    memcpy(&part, text, length);
    hash = (hash ^ part) * 0x9E3779B97F4A7C15u;
    return (uint32_t)(hash >> 32);
}

/* Adds the command that these words make, one after the other; its number, or that of the same command before. */
static int32_t add(filling *f, uint16_t form, const word *words, int count) {
    char *start = f->text + f->starts[f->count], *end = start;
    for (int i = 0; i < count; i++) {
        memcpy(end, words[i].text, words[i].length);
        end += words[i].length;
    }
    uint32_t length = (uint32_t)(end - start), slot = hash_of(start, length) & f->mask;
    *end = 0;
    for (; f->table[slot]; slot = (slot + 1) & f->mask) {
        int32_t other = f->table[slot] - 1;
        if (f->starts[other + 1] - f->starts[other] == length + 1 && !memcmp(f->text + f->starts[other], start, length))
            return other;
    }
    uint8_t spaces = 0;
    for (const char *c = start; c < end; c++) spaces += *c == ' ';
    f->forms[f->count] = form;
    f->words[f->count] = (uint8_t)(spaces + 1);
    f->starts[f->count + 1] = f->starts[f->count] + length + 1;
    f->table[slot] = ++f->count;
    return f->count - 1;
}

static const char *read_word(const char *text, word *w) {
    w->text = text;
    w->length = (uint32_t)strlen(text);
    return text + w->length + 1;
}

/* Fills each template, given as the three parts around its holes, and leaves the commands in `text`, each with a NUL
 * behind it, which must have room for all. `lines` receives, for each template, the number of the command with each name,
 * where there is one; `squares`, for each template for two names, that of the command with each pair of them, -1 for a
 * name with itself. Returns how many commands there are, -1 for no memory. */
int32_t zset_fill(const char *parts, const uint8_t *kinds, int32_t templates, const char *names, int32_t name_count,
                  const char *sides, int32_t side_count, int32_t most, char *text, uint32_t *starts, uint16_t *forms,
                  uint8_t *words, int32_t *lines, int32_t *squares) {
    uint32_t size = 64;
    while (size < 2 * (uint32_t)most) size *= 2;
    word *name = malloc(((size_t)name_count + (size_t)side_count + 1) * sizeof *name), *side = name + name_count;
    filling f = {.text = text, .starts = starts, .forms = forms, .words = words, .mask = size - 1};
    f.table = calloc(size, sizeof *f.table);
    if (!name || !f.table) {
        free(name);
        free(f.table);
        return -1;
    }
    for (int32_t i = 0; i < name_count; i++) names = read_word(names, &name[i]);
    for (int32_t i = 0; i < side_count; i++) sides = read_word(sides, &side[i]);
    starts[0] = 0;
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
            line[1] = (word){"me", 2};
            add(&f, form, line, 3);
        }
    }
    free(name);
    free(f.table);
    return f.count;
}
