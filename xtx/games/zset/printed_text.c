/* Printed text, the automaton that matches patterns in it, and the dictionary.
 *
 * Text printed on the screen is not stored, unless the caller asks for it: the verdicts need only whether certain
 * patterns occur in it. An Aho-Corasick automaton reads the text; its state is a value like any other, so that lanes
 * that printed different texts can be merged. */
#include "zset.h"

#include <stdio.h>
#include <stdlib.h>

enum { LONGEST_TEXT = 1 << 16 };

/* --- the automaton ------------------------------------------------------------------------------------------ */

int text_patterns(engine *e, const char *const *pattern, const uint8_t *hit, int count) {
    size_t capacity = 2;
    for (int i = 0; i < count; i++) capacity += strlen(pattern[i]);
    if (capacity > 0xFFFF) return -1;
    uint16_t *fail = calloc(capacity, sizeof *fail), *queue = calloc(capacity, sizeof *queue);
    e->automaton = calloc(capacity, sizeof *e->automaton);
    e->automaton_hits = calloc(capacity, 1);
    if (!fail || !queue || !e->automaton || !e->automaton_hits) {
        free(fail);
        free(queue);
        return -1;
    }
    uint32_t states = 1, head = 0, tail = 0;
    for (int i = 0; i < count; i++) {
        uint32_t state = 0;
        for (const uint8_t *at = (const uint8_t *)pattern[i]; *at; at++) {
            if (!e->automaton[state][*at]) e->automaton[state][*at] = (uint16_t)states++;
            state = e->automaton[state][*at];
        }
        e->automaton_hits[state] |= hit[i];
    }
    for (int c = 0; c < 256; c++)
        if (e->automaton[0][c]) queue[tail++] = e->automaton[0][c];
    while (head < tail) {
        uint32_t state = queue[head++];
        e->automaton_hits[state] |= e->automaton_hits[fail[state]];
        for (int c = 0; c < 256; c++) {
            uint16_t next = e->automaton[state][c];
            if (next) {
                fail[next] = e->automaton[fail[state]][c];
                queue[tail++] = next;
            } else {
                e->automaton[state][c] = e->automaton[fail[state]][c];
            }
        }
    }
    e->automaton_states = states;
    free(fail);
    free(queue);
    return 0;
}

static uint16_t feed(const engine *e, uint16_t state, const uint8_t *bytes, uint32_t count, uint8_t *hits) {
    for (uint32_t i = 0; i < count; i++) {
        state = e->automaton[state][bytes[i]];
        *hits |= e->automaton_hits[state];
    }
    return state;
}

static void feed_string(const engine *e, uint16_t *state, const string *s, uint8_t *hits) {
    if (*state == 0) {
        *state = s->end_state;
        *hits |= s->end_hits;
    } else {
        *state = feed(e, *state, s->bytes, s->length, hits);
    }
}

/* Adds matched patterns to a lane's history. */
static inline void hit(history *h, uint8_t hits) {
    if ((h->hits | hits) & HIT_CUT && hits & (HIT_TAKEN | HIT_OVER | HIT_WON)) hits |= HIT_ASK;
    h->hits |= hits;
}

static void hit_all(engine *e, uint8_t hits) {
    if (hits) EACH_LANE(e->set, c, hit(&e->histories[c], hits););
}

/* --- encoded text ------------------------------------------------------------------------------------------- */

uint32_t text_end(const engine *e, uint32_t address) {
    for (; address + 1 < e->size; address += 2)
        if (e->memory[address] & 0x80) return address + 2;
    return 0;
}

int text_low(engine *e) {
    enum { ABBREVIATIONS = 96 };
    uint32_t first = e->abbreviations, end = e->abbreviations + 2 * ABBREVIATIONS;
    for (uint32_t i = 0; i < ABBREVIATIONS; i++) {
        uint32_t text = 2 * raw_word(e, (uint16_t)(e->abbreviations + 2 * i)), behind = text_end(e, text);
        if (text >= e->ram_size || !behind) continue;
        if (text < first) first = text;
        if (behind > end) end = behind;
    }
    if (e->alphabet && e->alphabet < first) first = e->alphabet;
    if (e->alphabet && e->alphabet + 78 > end) end = e->alphabet + 78;
    if (end > e->ram_size) end = e->ram_size;
    if (first > end) first = end;
    e->low_first = first;
    e->low_size = end - first;
    e->low = malloc(e->low_size + 1);
    if (!e->low) return -1;
    memcpy(e->low, e->memory + first, e->low_size);
    return 0;
}

static uint8_t alphabet(const engine *e, int set, uint32_t index) {
    if (e->alphabet) return e->memory[(uint16_t)(e->alphabet + 26 * (uint32_t)set + index)];
    if (set < 2) return (uint8_t)((set ? 'A' : 'a') + index);
    return (uint8_t) " ^0123456789.,!?_#'\"/\\-:()"[index];
}

/* Stores a value that differs between lanes but must not, so that the set is split by it. */
static int fail(engine *e, value v) {
    e->text_differs = v;
    return 0;
}

/* Decodes a text to the end of e->scratch. Returns 0 if it cannot be decoded, or not for all lanes at once. */
static int decode_text(engine *e, uint32_t address, int depth) {
    string *out = e->scratch;
    int shift = 0, status = 0;
    uint32_t before = 0, code;
    do {
        if (address + 1 >= e->size || out->length > LONGEST_TEXT - 8) return 0;
        code = address < e->ram_size ? load_word(e, address) : raw_word(e, address);
        if (is_vector(code)) return fail(e, code);
        address += 2;
        for (int i = 10; i >= 0; i -= 5) {
            uint32_t c = code >> i & 31;
            if (status == 1) {
                uint32_t pointer = (uint16_t)(e->abbreviations + 64 * (before - 1) + 2 * c);
                value packed = load_word(e, pointer);
                if (is_vector(packed)) return fail(e, packed);
                if (depth == 3 || !decode_text(e, 2 * packed, depth + 1)) return 0;
                status = 0;
            } else if (status == 2) {
                status = 3;
            } else if (status == 3) {
                out->bytes[out->length++] = (uint8_t)(before << 5 | c);
                status = 0;
            } else if (c == 4 || c == 5) {
                shift = (int)c - 3;
                before = c;
                continue;
            } else {
                if (shift == 2 && c == 6) status = 2;
                else if (shift == 2 && c == 7) out->bytes[out->length++] = 13;
                else if (c >= 6) out->bytes[out->length++] = alphabet(e, shift, c - 6);
                else if (c == 0) out->bytes[out->length++] = ' ';
                else status = 1;
                shift = 0;
            }
            before = c;
            if (out->length > LONGEST_TEXT - 8) return 0;
        }
    } while (!(code & 0x8000));
    return 1;
}

static void finish_string(engine *e, string *s) {
    s->end_hits = 0;
    s->end_state = feed(e, 0, s->bytes, s->length, &s->end_hits);
}

/* The text at an address, until the next call; NULL if it cannot be read for all lanes at once. */
static const string *string_at(engine *e, uint32_t address) {
    e->text_differs = 0;
    if (address >= e->size) return NULL;
    int as_usual = !(e->low_writes || e->low_differs);
    if (e->strings[address] && as_usual) return e->strings[address];
    e->scratch->length = 0;
    if (!decode_text(e, address, 0)) return NULL;
    finish_string(e, e->scratch);
    if (address < e->ram_size || !as_usual) return e->scratch;
    string *kept = keep(e, malloc(sizeof *kept + e->scratch->length));
    memcpy(kept, e->scratch, sizeof *kept + e->scratch->length);
    return e->strings[address] = kept;
}

/* --- letters beyond ASCII ------------------------------------------------------------------------------------- */

enum { FIRST_EXTRA = 155, LAST_EXTRA = 223 };

/* Latin-1 for the extra characters of ZSCII, as the standard's usual table has them; '?' for two that are not in it. */
static const uint8_t extra_letters[LAST_EXTRA - FIRST_EXTRA + 1] =
    "\xe4\xf6\xfc\xc4\xd6\xdc\xdf\xbb\xab\xeb\xef\xff\xcb\xcf\xe1\xe9\xed\xf3\xfa\xfd\xc1\xc9\xcd\xd3\xda\xdd"
    "\xe0\xe8\xec\xf2\xf9\xc0\xc8\xcc\xd2\xd9\xe2\xea\xee\xf4\xfb\xc2\xca\xce\xd4\xdb\xe5\xc5\xf8\xd8\xe3\xf1"
    "\xf5\xc3\xd1\xd5\xe6\xc6\xe7\xc7\xfe\xf0\xde\xd0\xa3??\xa1\xbf";

/* Whether the story has a table of its own for them, in its header's extension. */
static int has_own_letters(const engine *e) {
    uint32_t extension = e->version >= 5 ? raw_word(e, 0x36) : 0;
    return extension && raw_word(e, (uint16_t)extension) >= 3 && raw_word(e, (uint16_t)(extension + 6)) != 0;
}

uint8_t letter_shown(const engine *e, uint8_t zscii) {
    if (zscii >= 32 && zscii <= 126) return zscii;
    return zscii < FIRST_EXTRA || zscii > LAST_EXTRA || has_own_letters(e) ? 0 : extra_letters[zscii - FIRST_EXTRA];
}

uint8_t letter_of_unicode(const engine *e, uint32_t unicode) {
    if (unicode >= 32 && unicode <= 126) return (uint8_t)unicode;
    if (unicode > 255) return '?';
    for (uint32_t i = 0; i < sizeof extra_letters; i++)
        if (extra_letters[i] == unicode && !has_own_letters(e)) return (uint8_t)(FIRST_EXTRA + i);
    return 0;
}

/* --- printing ----------------------------------------------------------------------------------------------- */

static void write_down(const engine *e, uint32_t lane, const string *s) {
    transcript *t = &e->transcripts[e->lane_of[lane]];
    uint32_t left = t->capacity - t->length, count = s->length < left ? s->length : left;
    memcpy(t->bytes + t->length, s->bytes, count);
    t->length += count;
}

void print_flush(engine *e) {
    if (!e->transcripts) return;
    EACH_LANE(e->set, c, {
        transcript *t = &e->transcripts[e->lane_of[c]];
        t->flushed = t->length;
    });
}

/* Prints into memory, for redirected output. */
static int print_to_memory(engine *e, const uint8_t *bytes, uint32_t count) {
    uint32_t table = e->now.redirection[e->now.redirections - 1];
    value size = load_word(e, table);
    if (is_vector(size)) {
        keys_from(e, size);
        return 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t address = (uint16_t)(table + 2 + size + i);
        uint8_t shown = letter_shown(e, bytes[i]); /* Frotz turns letters into Latin-1 and back */
        if (bytes[i] != 13 && (!shown || (shown == '?' && bytes[i] != '?'))) return -1;
        if (address < 64 || address >= e->ram_size) return -1;
        store_byte(e, address, bytes[i]);
    }
    store_word(e, table, (uint16_t)(size + count));
    return 1;
}

static value text_state(engine *e) {
    value state = e->stack[TEXT_STATE];
    return is_vector(state) ? simplify(e, state) : state;
}

static void print_to_screen(engine *e, const string *s) {
    value state = text_state(e);
    if (!is_vector(state)) {
        uint16_t next = (uint16_t)state;
        uint8_t hits = 0;
        feed_string(e, &next, s, &hits);
        e->stack[TEXT_STATE] = next;
        hit_all(e, hits);
    } else {
        uint16_t *to;
        value made = new_vector(e, 0, &to);
        const uint16_t *from = e->vectors[vector_index(state)].lane;
        EACH_LANE(e->set, c, {
            uint8_t hits = 0;
            to[c] = from[c];
            feed_string(e, &to[c], s, &hits);
            hit(&e->histories[c], hits);
        });
        e->stack[TEXT_STATE] = simplify(e, made);
    }
    if (e->transcripts) EACH_LANE(e->set, c, write_down(e, c, s););
}

static int print_string(engine *e, const string *s) {
    if (!s && e->text_differs) keys_from(e, e->text_differs);
    if (!s) return e->text_differs ? 0 : -1;
    e->printed += s->length;
    if (e->now.redirections) return print_to_memory(e, s->bytes, s->length);
    if (!e->now.silent) print_to_screen(e, s);
    return 1;
}

int print_bytes(engine *e, const uint8_t *bytes, uint32_t count) {
    string *s = e->scratch;
    if (count > LONGEST_TEXT) return -1;
    memcpy(s->bytes, bytes, count);
    s->length = count;
    finish_string(e, s);
    return print_string(e, s);
}

int print_string_at(engine *e, uint32_t address) { return print_string(e, string_at(e, address)); }

/* Prints a text that differs between lanes; `text` returns it for a lane's value. */
typedef const string *(*text_of)(engine *e, uint32_t number);

static int print_lanes(engine *e, value v, text_of text) {
    if (e->now.redirections) {
        keys_from(e, v);
        return 0;
    }
    if (e->now.silent) return 1;
    value state = text_state(e);
    uint16_t *to;
    value made = new_vector(e, 0, &to);
    const uint16_t *number = e->vectors[vector_index(v)].lane;
    const string *s = NULL;
    uint32_t last = UINT32_MAX, failed = 0;
    EACH_LANE(e->set, c, {
        if (number[c] != last) s = text(e, last = number[c]);
        if (s) {
            uint8_t hits = 0;
            to[c] = lane_value(e, state, c);
            feed_string(e, &to[c], s, &hits);
            /* If some lane has no text the set is split and this is repeated, which does no harm. */
            hit(&e->histories[c], hits);
        } else {
            failed = 1;
        }
    });
    if (failed) {
        keys_from(e, v);
        return 0;
    }
    if (e->transcripts) EACH_LANE(e->set, c, write_down(e, c, text(e, number[c])););
    e->stack[TEXT_STATE] = simplify(e, made);
    return 1;
}

static const string *text_at(engine *e, uint32_t address) { return string_at(e, address); }
static const string *text_at_packed(engine *e, uint32_t address) { return string_at(e, address << e->packing); }

int print_strings_at(engine *e, value v, int packed) {
    if (is_vector(v)) return print_lanes(e, v, packed ? text_at_packed : text_at);
    return print_string_at(e, packed ? v << e->packing : v);
}

static const string *text_of_number(engine *e, uint32_t number) {
    string *s = e->scratch;
    s->length = (uint32_t)snprintf((char *)s->bytes, 8, "%d", (int16_t)number);
    finish_string(e, s);
    return s;
}

int print_number(engine *e, value number) {
    return is_vector(number) ? print_lanes(e, number, text_of_number) : print_string(e, text_of_number(e, number));
}

static const string *text_of_object(engine *e, uint32_t object) {
    e->text_differs = 0;
    if (object > (e->version <= 3 ? 255u : 2000u)) return NULL; /* Frotz reads a name for object 0 too, from whatever is there */
    value name = load_word(e, (uint16_t)(object_address(e, object) + (e->version <= 3 ? 7 : 12)));
    value length = is_vector(name) ? name : load_byte(e, name);
    value first = is_vector(length) ? length : load_word(e, (uint16_t)(name + 1));
    if (is_vector(first)) {
        fail(e, first);
        return NULL;
    }
    if (length == 0 || first == 0x94A5) { /* Frotz has a default name for objects without one */
        string *s = e->scratch;
        s->length = (uint32_t)snprintf((char *)s->bytes, 16, "object#%d", (int16_t)object);
        finish_string(e, s);
        return s;
    }
    return string_at(e, name + 1);
}

int print_object(engine *e, value object) {
    return is_vector(object) ? print_lanes(e, object, text_of_object) : print_string(e, text_of_object(e, object));
}

static const string *text_of_character(engine *e, uint32_t character) {
    string *s = e->scratch;
    s->length = (character & 255) != 0;
    s->bytes[0] = (uint8_t)character;
    finish_string(e, s);
    return s;
}

int print_character(engine *e, value zscii) {
    if (!is_vector(zscii)) return print_string(e, text_of_character(e, zscii));
    if (!e->now.redirections) return print_lanes(e, zscii, text_of_character);
    /* One character for each lane, at the same address. */
    const uint16_t *lane = e->vectors[vector_index(zscii)].lane;
    uint32_t table = e->now.redirection[e->now.redirections - 1], odd = 0;
    value size = load_word(e, table);
    EACH_LANE(e->set, c, odd |= lane[c] < 32 || lane[c] > 126;);
    if (odd || is_vector(size)) {
        keys_from(e, odd ? zscii : size);
        return 0;
    }
    uint32_t address = (uint16_t)(table + 2 + size);
    if (address < 64 || address >= e->ram_size) return -1;
    store_byte(e, address, zscii);
    store_word(e, table, (uint16_t)(size + 1));
    return 1;
}

int print_table(engine *e, uint32_t address, uint32_t width, uint32_t height, uint32_t skip) {
    uint32_t length = 0;
    uint8_t *bytes = arena_take(e, &e->lane_arena, LONGEST_TEXT);
    for (uint32_t row = 0; row < height; row++) {
        for (uint32_t i = 0; i <= width; i++) {
            if (length == LONGEST_TEXT) return -1;
            if (i == width) break;
            value one = load_byte(e, (uint16_t)(address + i));
            if (is_vector(one)) {
                keys_from(e, one);
                return 0;
            }
            if (answering(e) && one > 126) return -1; /* Frotz takes what is in a table for Latin-1 */
            bytes[length++] = (uint8_t)one;
        }
        address = (uint16_t)(address + width + skip);
    }
    /* Frotz moves the cursor between rows, and prints nothing there. */
    if (answering(e) && height > 1) return -1;
    print_flush(e);
    return print_bytes(e, bytes, length);
}

/* --- the dictionary ----------------------------------------------------------------------------------------- */

/* Encodes a word as in the dictionary: 4 or 6 bytes in `encoded`, as 2 or 3 numbers. */
static void encode(const engine *e, const uint8_t *word, uint32_t length, uint16_t encoded[3]) {
    uint32_t parts = e->version <= 3 ? 2 : 3, count = 0, at = 0;
    uint8_t code[16];
    if (length > 3 * parts) length = 3 * parts;
    while (count < 3 * parts) {
        if (at >= length || !word[at]) {
            code[count++] = 5;
            at = length;
            continue;
        }
        uint8_t c = word[at++];
        int found = 0;
        for (int set = 0; set < 3 && !found; set++)
            for (uint32_t index = 0; index < 26 && !found; index++)
                if (alphabet(e, set, index) == c) {
                    if (set) code[count++] = (uint8_t)(3 + set);
                    code[count++] = (uint8_t)(index + 6);
                    found = 1;
                }
        if (found) continue;
        code[count++] = 5;
        code[count++] = 6;
        code[count++] = c >> 5;
        code[count++] = c & 31;
    }
    for (uint32_t i = 0; i < parts; i++)
        encoded[i] = (uint16_t)(code[3 * i] << 10 | code[3 * i + 1] << 5 | code[3 * i + 2]);
    encoded[parts - 1] |= 0x8000;
}

static uint16_t look_up(const engine *e, const uint8_t *word, uint32_t length) {
    uint16_t encoded[3];
    encode(e, word, length, encoded);
    uint32_t at = (uint16_t)(e->dictionary + 1 + e->memory[e->dictionary]), size = e->memory[at];
    int32_t entries = (int16_t)raw_word(e, (uint16_t)(at + 1)), parts = e->version <= 3 ? 2 : 3;
    int sorted = entries >= 0;
    uint32_t first = at + 3;
    int32_t lower = 0, upper = (sorted ? entries : -entries) - 1;
    while (lower <= upper) {
        int32_t middle = sorted ? (lower + upper) / 2 : lower;
        uint32_t entry = (uint16_t)(first + (uint32_t)middle * size);
        int32_t i = 0;
        while (i < parts && encoded[i] == raw_word(e, (uint16_t)(entry + 2 * (uint32_t)i))) i++;
        if (i == parts) return (uint16_t)entry;
        if (!sorted) lower++;
        else if (encoded[i] > raw_word(e, (uint16_t)(entry + 2 * (uint32_t)i))) lower = middle + 1;
        else upper = middle - 1;
    }
    return 0;
}

enum { CACHED_WORDS = 8192 };

static uint16_t look_up_cached(engine *e, const uint8_t *word, uint32_t length) {
    if (length > sizeof e->words->text) return look_up(e, word, length);
    uint32_t hash = 2166136261u;
    for (uint32_t i = 0; i < length; i++) hash = (hash ^ word[i]) * 16777619u;
    cached_word *w = &e->words[(hash ^ hash >> 15) % CACHED_WORDS];
    if (!w->known || w->length != length || memcmp(w->text, word, length) != 0) {
        w->known = 1;
        w->length = (uint8_t)length;
        memcpy(w->text, word, length);
        w->address = look_up(e, word, length);
    }
    return w->address;
}

int text_dictionary(engine *e) {
    uint32_t at = (uint16_t)(e->dictionary + 1 + e->memory[e->dictionary]);
    int32_t entries = (int16_t)raw_word(e, (uint16_t)(at + 1));
    uint64_t end = at + 3 + (uint64_t)(entries < 0 ? -entries : entries) * e->memory[at];
    if (end > e->ram_size) end = e->ram_size;
    e->changeable_words = end > e->dictionary ? (uint32_t)end - e->dictionary : 0;
    e->own_words = malloc(e->changeable_words + 1);
    if (!e->own_words) return -1;
    memcpy(e->own_words, e->memory + e->dictionary, e->changeable_words);
    return 0;
}

void text_separators(engine *e) {
    for (int c = 0; c < 256; c++) {
        uint32_t at = e->dictionary;
        uint8_t left = e->memory[at], separator;
        do separator = e->memory[(uint16_t)++at]; /* an empty list is read as one of 256, as by Frotz */
        while (c != separator && --left != 0);
        e->separates[c] = left != 0;
    }
}

int tokenise(engine *e, const uint8_t *line, uint32_t length, uint32_t offset, token *tokens, int capacity) {
    int count = 0;
    uint32_t word = UINT32_MAX;
    for (uint32_t i = 0;; i++) {
        uint8_t c = i < length ? line[i] : 0;
        int separates = e->separates[c];
        if (!separates && c != ' ' && c != 0) {
            if (word == UINT32_MAX) word = i;
        } else if (word != UINT32_MAX) {
            if (count < capacity)
                tokens[count++] = (token){look_up_cached(e, line + word, i - word), (uint8_t)(i - word),
                                          (uint8_t)(word + offset)};
            word = UINT32_MAX;
        }
        if (separates && count < capacity) {
            uint8_t one = c;
            tokens[count++] = (token){look_up_cached(e, &one, 1), 1, (uint8_t)(i + offset)};
        }
        if (c == 0) return count;
    }
}

int tokenise_buffer(engine *e, uint32_t text, uint32_t parse) {
    uint32_t lanes_here = e->set.count;
    value capacity = load_byte(e, parse);
    if (is_vector(capacity)) {
        keys_from(e, capacity);
        return 0;
    }
    if (e->dictionary < e->ram_size || parse < 64 || parse + 2 + 4 * capacity > e->ram_size) return -1;
    token *tokens = arena_take(e, &e->lane_arena, (size_t)lanes_here * (capacity ? capacity : 1) * sizeof *tokens);
    uint8_t *counts = arena_take(e, &e->lane_arena, lanes_here);
    for (uint32_t k = 0; k < lanes_here; k++) {
        uint32_t c = e->set.member[k];
        uint8_t line[256];
        uint32_t length = lane_byte(e, (uint16_t)(text + 1), c);
        for (uint32_t i = 0; i < length; i++) line[i] = (uint8_t)lane_byte(e, (uint16_t)(text + 2 + i), c);
        counts[k] = (uint8_t)tokenise(e, line, length, 2, tokens + (size_t)k * capacity, (int)capacity);
    }
    write_tokens(e, parse, tokens, capacity, counts);
    return 1;
}

/* Writes every lane's tokens into the parse buffer; the rest of the buffer is unchanged. */
void write_tokens(engine *e, uint32_t parse, const token *tokens, uint32_t capacity, const uint8_t *counts) {
    uint32_t most = 0;
    uint16_t *to, *lengths, *positions;
    value made = new_vector(e, 1, &to);
    for (uint32_t k = 0; k < e->set.count; k++) {
        to[e->set.member[k]] = counts[k];
        if (counts[k] > most) most = counts[k];
    }
    store_byte(e, parse + 1, simplify(e, made));
    for (uint32_t i = 0; i < most; i++) {
        uint32_t at = parse + 2 + 4 * i;
        value words = new_vector(e, 0, &to), length = new_vector(e, 1, &lengths), position = new_vector(e, 1, &positions);
        for (uint32_t k = 0; k < e->set.count; k++) {
            uint32_t c = e->set.member[k];
            const token *t = &tokens[(size_t)k * capacity + i];
            int there = i < counts[k];
            to[c] = there ? t->address : lane_word(e, (uint16_t)at, c);
            lengths[c] = there ? t->length : lane_byte(e, (uint16_t)(at + 2), c);
            positions[c] = there ? t->position : lane_byte(e, (uint16_t)(at + 3), c);
        }
        store_word(e, at, simplify(e, words));
        store_byte(e, at + 2, simplify(e, length));
        store_byte(e, at + 3, simplify(e, position));
    }
}
