/* Vectors, the journal, splitting and merging: the operations on sets of lanes. */
#define _GNU_SOURCE
#include "zset.h"

#include <stdlib.h>
#include <sys/mman.h>

/* --- memory ------------------------------------------------------------------------------------------------- */

/* Ends the run. The caller tries again with fewer lanes. */
void raise_no_memory(engine *e) { longjmp(e->no_memory, 1); }

/* Only address space is reserved; the system allocates memory when it is used. */
int arena_open(arena *a, size_t size) {
    a->top = 0;
    for (a->size = size; a->size >= (size_t)1 << 24; a->size /= 2) {
        a->base = mmap(NULL, a->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (a->base != MAP_FAILED) return 1;
    }
    a->base = NULL;
    return 0;
}

void arena_close(arena *a) {
    if (a->base) munmap(a->base, a->size);
    a->base = NULL;
}

/* Returns memory to the system that a run used beyond the usual size. */
void arena_trim(arena *a) {
    const size_t usual = (size_t)1 << 25;
    if (a->peak > usual) madvise(a->base + usual, a->size - usual, MADV_DONTNEED);
    a->peak = 0;
}

void *arena_take(engine *e, arena *a, size_t bytes) {
    bytes = (bytes + 15) & ~(size_t)15;
    if (bytes > a->size - a->top) raise_no_memory(e);
    void *taken = a->base + a->top;
    a->top += bytes;
    if (a->top > a->peak) a->peak = a->top;
    return taken;
}

/* Returns the array, reallocated if it has less than `need` items. */
void *grow(engine *e, void *array, uint32_t *capacity, size_t need, size_t item) {
    if (need <= *capacity) return array;
    size_t larger = need + need / 2 + 64;
    if (larger > UINT32_MAX / 2) raise_no_memory(e);
    void *moved = realloc(array, larger * item);
    if (!moved) raise_no_memory(e);
    *capacity = (uint32_t)larger;
    return moved;
}

void journal_grow(engine *e) {
    if (e->journal_capacity > (1u << 26)) raise_no_memory(e);
    e->journal = grow(e, e->journal, &e->journal_capacity, (size_t)e->journal_length + 1, sizeof *e->journal);
}

/* --- vectors ------------------------------------------------------------------------------------------------ */

void set_lanes(engine *e, const uint32_t *member, uint32_t count) {
    e->set = lanes_of(member, count);
    e->set.epoch = ++e->epochs;
}

/* Allocates one number for each lane of the current set, indexed by lane. */
static uint16_t *take_lanes(engine *e, arena *a) {
    uint32_t first = e->set.first;
    return (uint16_t *)arena_take(e, a, (size_t)(e->set.last - first + 1) * sizeof(uint16_t)) - first;
}

/* The mask of the lanes between first and last that are members of the current set. */
static const uint16_t *lane_mask(engine *e) {
    lanes *set = &e->set;
    if (!set->mask) {
        uint16_t *mask = take_lanes(e, &e->member_arena);
        memset(mask + set->first, 0, (set->last - set->first + 1) * sizeof *mask);
        for (uint32_t k = 0; k < set->count; k++) mask[set->member[k]] = 0xFFFF;
        set->mask = mask;
    }
    return set->mask;
}

value new_vector(engine *e, int is_byte, uint16_t **lane) {
    if (UNLIKELY(e->vector_count == e->vector_capacity))
        e->vectors = grow(e, e->vectors, &e->vector_capacity, (size_t)e->vector_count + 1, sizeof *e->vectors);
    uint32_t index = e->vector_count++;
    vector *v = &e->vectors[index];
    v->epoch = v->filter_epoch = 0;
    v->is_byte = (uint8_t)is_byte;
    *lane = v->lane = take_lanes(e, &e->lane_arena);
    e->count_lanes += e->set.count;
    return VECTOR | index;
}

/* Whether all members of a dense set have the same number. In pieces, because mostly one of the first differs. */
static int same_in_dense(engine *e, const uint16_t *lane, uint16_t same) {
    enum { PIECE = 128 };
    const uint16_t *mask = lane_mask(e);
    for (uint32_t c = e->set.first, end; c <= e->set.last; c = end) {
        uint16_t differs = 0;
        end = e->set.last - c < PIECE ? e->set.last + 1 : c + PIECE;
        for (uint32_t i = c; i < end; i++) differs |= (lane[i] ^ same) & mask[i];
        if (differs) return 0;
    }
    return 1;
}

value simplify_slowly(engine *e, value v) {
    enum { FEW = 16 };
    vector *x = &e->vectors[vector_index(v)];
    const lanes *set = &e->set;
    const uint16_t *lane = x->lane;
    x->epoch = set->epoch;
    x->same = lane[set->first];
    if (lane[set->last] != x->same) {
        x->uniform = 0;
    } else if (set->contiguous) {
        x->uniform = set->count == 1 ||
                     memcmp(lane + set->first, lane + set->first + 1, (set->count - 1) * sizeof *lane) == 0;
    } else {
        uint32_t k = 1, end = set->dense && set->count > FEW ? FEW : set->count;
        while (k < end && lane[set->member[k]] == x->same) k++;
        x->uniform = k == end && (end == set->count || same_in_dense(e, lane, x->same));
    }
    return x->uniform ? x->same : v;
}

static const uint16_t *lanes_or_null(const engine *e, value v) {
    return is_vector(v) ? e->vectors[vector_index(v)].lane : NULL;
}

/* The byte at an address that a vector may replace, as a value. */
value load_byte_slowly(engine *e, uint32_t address) {
    shadow s = e->shadows[address];
    uint32_t index = shadow_vector(s);
    if (!shadow_is_high(s) && e->vectors[index].is_byte) return simplify(e, VECTOR | index);
    value whole = simplify(e, VECTOR | index);
    int shift = shadow_is_high(s) ? 8 : 0;
    if (!is_vector(whole)) return whole >> shift & 255;
    uint16_t *to;
    value made = new_vector(e, 1, &to);
    const uint16_t *from = e->vectors[index].lane;
    EACH_LANE_OR_BETWEEN(e->set, c, to[c] = from[c] >> shift & 255;);
    return simplify(e, made);
}

value load_word_slowly(engine *e, uint32_t address) {
    shadow high = e->shadows[address], low = e->shadows[address + 1];
    if (high && low && shadow_is_high(high) && low == high - 1) return simplify(e, VECTOR | shadow_vector(high));
    value h = load_byte(e, address), l = load_byte(e, address + 1);
    if (!is_vector(h) && !is_vector(l)) return h << 8 | l;
    uint16_t *to;
    value made = new_vector(e, 0, &to);
    const uint16_t *from_high = lanes_or_null(e, h), *from_low = lanes_or_null(e, l);
    uint16_t same_high = (uint16_t)(h << 8), same_low = (uint16_t)l;
    if (from_high && from_low) {
        EACH_LANE_OR_BETWEEN(e->set, c, to[c] = (uint16_t)(from_high[c] << 8 | from_low[c]););
    } else if (from_high) {
        EACH_LANE_OR_BETWEEN(e->set, c, to[c] = (uint16_t)(from_high[c] << 8 | same_low););
    } else {
        EACH_LANE_OR_BETWEEN(e->set, c, to[c] = same_high | from_low[c];);
    }
    /* Stored, so that the next read of the word finds it, unless its bytes are overwritten. */
    journal_write(e, address, 2);
    e->shadows[address] = shadow_high(vector_index(made));
    e->shadows[address + 1] = shadow_low(vector_index(made));
    return simplify(e, made);
}

void store_word_vector(engine *e, uint32_t address, value v) {
    e->shadows[address] = shadow_high(vector_index(v));
    e->shadows[address + 1] = shadow_low(vector_index(v));
}

void store_byte_vector(engine *e, uint32_t address, value v) { e->shadows[address] = shadow_low(vector_index(v)); }

void begin_journal(engine *e) {
    enum { STEP = 4 }; /* leaves numbers for sizes of 1 and 2 between two generations */
    e->journal_generation += STEP;
    if (e->journal_generation) return;
    memset(e->journaled, 0, MEMORY * sizeof *e->journaled);
    e->journal_generation = STEP;
}

void rollback(engine *e, uint32_t length) {
    begin_journal(e);
    while (e->journal_length > length) {
        const journal_entry *entry = &e->journal[--e->journal_length];
        memcpy(e->memory + entry->address, entry->old, 2);
        memcpy(e->shadows + entry->address, entry->shadows, sizeof entry->shadows);
        e->low_writes -= in_low(e, entry->address);
    }
}

/* --- arithmetic on lanes --------------------------------------------------------------------------------- */

/* The same operation three times, so that the compiler can use vector instructions in each. */
#define CALCULATE(what)                                                        \
    case what:                                                                 \
        if (from_a && from_b) {                                                \
            EACH_LANE_OR_BETWEEN(e->set, c, to[c] = calculate(what, from_a[c], from_b[c]);); \
        } else if (from_a) {                                                   \
            EACH_LANE_OR_BETWEEN(e->set, c, to[c] = calculate(what, from_a[c], same_b);); \
        } else {                                                               \
            EACH_LANE_OR_BETWEEN(e->set, c, to[c] = calculate(what, same_a, from_b[c]);); \
        }                                                                      \
        break;

value lanes_calculate(engine *e, enum arithmetic what, value a, value b) {
    uint16_t *to;
    value made = new_vector(e, 0, &to);
    const uint16_t *from_a = lanes_or_null(e, a), *from_b = lanes_or_null(e, b);
    uint16_t same_a = (uint16_t)a, same_b = (uint16_t)b;
    switch (what) {
        CALCULATE(ADD)
        CALCULATE(SUBTRACT)
        CALCULATE(MULTIPLY)
        CALCULATE(DIVIDE)
        CALCULATE(REMAINDER)
        CALCULATE(AND)
        CALCULATE(OR)
        CALCULATE(LOGICAL_SHIFT)
        CALCULATE(ARITHMETIC_SHIFT)
    }
    return simplify(e, made);
}

/* --- random numbers ------------------------------------------------------------------------------------------ */

void set_random(engine *e, int64_t a) {
    for (int i = 0; i < RANDOM_WORDS; i++) e->stack[RANDOM_WORD + i] = (uint16_t)((uint64_t)a >> 16 * i);
}

int64_t lane_random(const engine *e, uint32_t lane) {
    uint64_t a = 0;
    for (int i = 0; i < RANDOM_WORDS; i++) a |= (uint64_t)lane_value(e, e->stack[RANDOM_WORD + i], lane) << 16 * i;
    return (int64_t)a;
}

static inline uint64_t next_random(uint64_t a) { return 0x015A4E35u * a + 1; }
static inline uint16_t drawn(uint64_t a, uint16_t range) { return (uint16_t)((a >> 16 & 0x7FFF) % range + 1); }

value draw(engine *e, uint16_t range) {
    value *word = e->stack + RANDOM_WORD, made[RANDOM_WORDS];
    int differs = 0;
    for (int i = 0; i < RANDOM_WORDS; i++) {
        if (is_vector(word[i])) word[i] = simplify(e, word[i]);
        differs |= is_vector(word[i]);
    }
    if (!differs) {
        uint64_t a = next_random((uint64_t)lane_random(e, 0));
        set_random(e, (int64_t)a);
        return drawn(a, range);
    }
    const uint16_t *from[RANDOM_WORDS];
    uint16_t *to[RANDOM_WORDS], *result;
    for (int i = 0; i < RANDOM_WORDS; i++) {
        from[i] = lanes_or_null(e, word[i]);
        made[i] = new_vector(e, 0, &to[i]);
    }
    value x = new_vector(e, 0, &result);
    EACH_LANE(e->set, c, {
        uint64_t a = 0;
        for (int i = 0; i < RANDOM_WORDS; i++) a |= (uint64_t)(from[i] ? from[i][c] : (uint16_t)word[i]) << 16 * i;
        a = next_random(a);
        for (int i = 0; i < RANDOM_WORDS; i++) to[i][c] = (uint16_t)(a >> 16 * i);
        result[c] = drawn(a, range);
    });
    memcpy(word, made, sizeof made);
    return simplify(e, x);
}

value lanes_load(engine *e, value base, value index, int word) {
    uint16_t *to;
    value made = new_vector(e, !word, &to);
    const uint16_t *from_base = lanes_or_null(e, base), *from_index = lanes_or_null(e, index);
    int shift = word ? 1 : 0;
    EACH_LANE(e->set, c, {
        uint16_t start = from_base ? from_base[c] : (uint16_t)base;
        uint16_t offset = from_index ? from_index[c] : (uint16_t)index;
        uint16_t address = (uint16_t)(start + (offset << shift));
        to[c] = word ? lane_word(e, address, c) : lane_byte(e, address, c);
    });
    return simplify(e, made);
}

void keys_from(engine *e, value v) {
    const uint16_t *from = e->vectors[vector_index(v)].lane;
    uint16_t *keys = e->keys;
    e->yes_or_no = 0;
    EACH_LANE_OR_BETWEEN(e->set, c, keys[c] = from[c];);
}

static uint32_t filter_bit(uint16_t number) { return number * 40503u >> 6 & 255; }

/* Whether any lane may have a number, by a Bloom filter: mostly none has, and then no lane need be compared. Making the
 * filter costs as much as a few comparisons of all lanes, so it is made only after some. */
static int may_hold(engine *e, value v, uint16_t number) {
    vector *x = &e->vectors[vector_index(v)];
    const uint8_t worth = e->set.dense ? 12 : 2;
    if (x->filter_epoch != e->set.epoch) {
        x->filter_epoch = e->set.epoch;
        x->asked = 0;
    }
    if (x->asked < worth) {
        x->asked++;
        return 1;
    }
    if (x->asked == worth) {
        memset(x->filter, 0, sizeof x->filter);
        uint64_t *filter = x->filter;
        const uint16_t *lane = x->lane;
        EACH_LANE(e->set, c, {
            uint32_t bit = filter_bit(lane[c]);
            filter[bit >> 6] |= (uint64_t)1 << (bit & 63);
        });
        x->asked++;
    }
    uint32_t bit = filter_bit(number);
    return x->filter[bit >> 6] >> (bit & 63) & 1;
}

/* Evaluates a predicate in each lane into e->keys; returns the result if all lanes agree, or -1. */
#define TEST(holds)                           \
    do {                                      \
        uint16_t *keys = e->keys;             \
        uint16_t any = 0, all = 1;            \
        e->yes_or_no = 1;                     \
        EACH_LANE(e->set, c, {                \
            uint16_t yes = (holds);           \
            keys[c] = yes;                    \
            any |= yes;                       \
            all &= yes;                       \
        });                                   \
        return any == all ? any : -1;         \
    } while (0)

/* The same with a predicate that may also be evaluated for the lanes between the members. */
#define TEST_OR_BETWEEN(holds)                                                  \
    do {                                                                        \
        if (e->set.contiguous || !e->set.dense) TEST(holds);                    \
        const uint16_t *mask = lane_mask(e);                                    \
        uint16_t *keys = e->keys;                                               \
        uint16_t any = 0, all = 1;                                              \
        e->yes_or_no = 1;                                                       \
        for (uint32_t c = e->set.first, end = e->set.last + 1; c < end; c++) { \
            uint16_t yes = (holds);                                             \
            keys[c] = yes;                                                      \
            any |= yes & mask[c];                                               \
            all &= yes | (uint16_t)~mask[c];                                    \
        }                                                                       \
        return any == all ? any : -1;                                           \
    } while (0)

int lanes_equal(engine *e, const value *v, int count) {
    int numbers = is_vector(v[0]);
    for (int i = 1; i < count; i++) numbers &= !is_vector(v[i]);
    if (numbers) { /* one vector against constants: by far the usual case */
        uint16_t a[3];
        int left = 0;
        for (int i = 1; i < count && i < 4; i++)
            if (may_hold(e, v[0], (uint16_t)v[i])) a[left++] = (uint16_t)v[i];
        if (!left) return 0;
        const uint16_t *x = e->vectors[vector_index(v[0])].lane;
        uint16_t p = a[0], q = a[left > 1], r = a[left - 1];
        if (left == 1) TEST_OR_BETWEEN(x[c] == p);
        TEST_OR_BETWEEN((x[c] == p) | (x[c] == q) | (x[c] == r));
    }
    if (count == 2) {
        const uint16_t *x = lanes_or_null(e, v[0]), *y = lanes_or_null(e, v[1]);
        if (x && y) TEST_OR_BETWEEN(x[c] == y[c]);
    }
    TEST(({
        uint16_t first = lane_value(e, v[0], c), found = 0;
        for (int i = 1; i < count && i < 4; i++) found |= first == lane_value(e, v[i], c);
        found;
    }));
}

static int compare(enum comparison what, uint16_t a, uint16_t b) {
    return what == LESS ? (int16_t)a < (int16_t)b : what == GREATER ? (int16_t)a > (int16_t)b : (a & b) == b;
}

#define COMPARE(what)                                            \
    do {                                                         \
        if (x && y) TEST_OR_BETWEEN(compare(what, x[c], y[c]));             \
        if (x) TEST_OR_BETWEEN(compare(what, x[c], same_b));                \
        TEST_OR_BETWEEN(compare(what, same_a, y[c]));                       \
    } while (0)

int lanes_compare(engine *e, enum comparison what, value a, value b) {
    const uint16_t *x = lanes_or_null(e, a), *y = lanes_or_null(e, b);
    uint16_t same_a = (uint16_t)a, same_b = (uint16_t)b;
    if (what == LESS) COMPARE(LESS);
    if (what == GREATER) COMPARE(GREATER);
    COMPARE(ALL_BITS);
}

/* --- objects, one for each lane ----------------------------------------------------------------------------- */

static uint32_t most_objects(const engine *e) { return e->version <= 3 ? 255 : 2000; }

int lanes_objects_legal(engine *e, value object) {
    if (!is_vector(object)) return object <= most_objects(e);
    const uint16_t *from = e->vectors[vector_index(object)].lane;
    uint16_t most = (uint16_t)most_objects(e), illegal = 0;
    EACH_LANE(e->set, c, illegal |= from[c] > most;);
    return !illegal;
}

/* The following need legal objects; object 0 has no attributes, relatives and properties. */

int lanes_attribute(engine *e, value object, uint32_t attribute) {
    uint32_t offset = attribute / 8;
    uint16_t mask = 0x80 >> (attribute & 7);
    TEST(({
        uint16_t number = lane_value(e, object, c);
        number && (lane_byte(e, (uint16_t)(object_address(e, number) + offset), c) & mask);
    }));
}

static uint16_t lane_link(const engine *e, uint16_t object, int link, uint32_t c) {
    if (!object) return 0;
    uint32_t address = object_address(e, object);
    return e->version <= 3 ? lane_byte(e, (uint16_t)(address + 4 + (uint32_t)link), c)
                           : lane_word(e, (uint16_t)(address + 6 + 2 * (uint32_t)link), c);
}

int lanes_inside(engine *e, value object, value parent) {
    TEST(({
        uint16_t number = lane_value(e, object, c), in = lane_value(e, parent, c);
        number ? in == lane_link(e, number, 0, c) : in == 0;
    }));
}

value lanes_link(engine *e, value object, int link) {
    uint16_t *to;
    value made = new_vector(e, e->version <= 3, &to);
    EACH_LANE(e->set, c, to[c] = lane_link(e, lane_value(e, object, c), link, c););
    return simplify(e, made);
}

/* The address of the first size byte of an object's property, 0 if it has none; -1 if the list of properties itself
 * differs between lanes, or is damaged. */
static int32_t find_property(const engine *e, uint32_t object, uint32_t property) {
    uint32_t pointer = (uint16_t)(object_address(e, object) + (e->version <= 3 ? 7 : 12));
    if (e->shadows[pointer] | e->shadows[pointer + 1]) return -1;
    uint32_t address = raw_word(e, pointer);
    if (e->shadows[address]) return -1;
    address = (uint16_t)(address + 1 + 2 * e->memory[address]);
    uint32_t mask = e->version <= 3 ? 31 : 63;
    for (int guard = 0; guard < 256; guard++) {
        if (e->shadows[address] | e->shadows[address + 1]) return -1;
        uint32_t size = e->memory[address];
        if ((size & mask) <= property) return (size & mask) == property ? (int32_t)address : 0;
        uint32_t length = e->version <= 3 ? size >> 5 : size >> 6;
        if (e->version > 3 && size & 0x80) {
            length = e->memory[address + 1] & 63;
            length = (length ? length : 64) + 1;
            address = (uint16_t)(address + 1 + length);
        } else {
            address = (uint16_t)(address + 2 + length);
        }
    }
    return -1;
}

uint32_t next_memo_generation(engine *e) {
    if (++e->memo_generation == 0) { /* all generations were used: entries of earlier ones must not match again */
        memset(e->memos, 0, 0x10000 * sizeof *e->memos);
        e->memo_generation = 1;
    }
    return e->memo_generation;
}

/* Returns 0 if some lane's list of properties cannot be read. */
int lanes_property(engine *e, value object, uint32_t property, int address_only, value *result) {
    uint16_t *to;
    value made = new_vector(e, 0, &to);
    uint32_t generation = next_memo_generation(e), failed = 0, small = e->version <= 3;
    EACH_LANE(e->set, c, {
        uint16_t number = lane_value(e, object, c), found = 0;
        memo *known = &e->memos[number];
        if (!number) {
            to[c] = 0;
        } else {
            if (known->generation != generation) {
                int32_t address = find_property(e, number, property);
                failed |= address < 0;
                *known = (memo){generation, (uint16_t)(address < 0 ? 0 : address)};
            }
            found = known->result;
            uint32_t size = e->memory[found];
            if (address_only) {
                to[c] = found ? (uint16_t)(found + 1 + (!small && size & 0x80)) : 0;
            } else if (!found) {
                to[c] = lane_word(e, (uint16_t)(e->objects + 2 * (property - 1)), c);
            } else {
                int is_byte = small ? !(size & 0xe0) : !(size & 0xc0);
                to[c] = is_byte ? lane_byte(e, (uint16_t)(found + 1), c) : lane_word(e, (uint16_t)(found + 1), c);
            }
        }
    });
    *result = simplify(e, made);
    return !failed;
}

value lanes_property_length(engine *e, value address) {
    uint16_t *to;
    value made = new_vector(e, 1, &to);
    EACH_LANE(e->set, c, {
        uint16_t size = lane_byte(e, (uint16_t)(lane_value(e, address, c) - 1), c);
        if (e->version <= 3) size = (size >> 5) + 1;
        else if (!(size & 0x80)) size = (size >> 6) + 1;
        else size = size & 63 ? size & 63 : 64;
        to[c] = size;
    });
    return simplify(e, made);
}

int lanes_scatter(engine *e, const uint16_t *address, const uint8_t *byte) {
    enum { MOST = 64 };
    uint16_t distinct[MOST];
    int count = 0;
    for (uint32_t k = 0; k < e->set.count; k++) {
        int i = 0;
        while (i < count && distinct[i] != address[k]) i++;
        if (i < count) continue;
        if (count == MOST || address[k] < 64 || address[k] >= e->ram_size) return 0;
        distinct[count++] = address[k];
    }
    for (int i = 0; i < count; i++) {
        uint16_t *to;
        value made = new_vector(e, 1, &to);
        for (uint32_t k = 0; k < e->set.count; k++) {
            uint32_t c = e->set.member[k];
            to[c] = address[k] == distinct[i] ? byte[k] : lane_byte(e, distinct[i], c);
        }
        store_byte(e, distinct[i], simplify(e, made));
    }
    return 1;
}

/* --- splitting ---------------------------------------------------------------------------------------------- */

static void add_group(engine *e, uint32_t *member, uint32_t count) {
    e->groups = grow(e, e->groups, &e->group_capacity, (size_t)e->group_count + 1, sizeof *e->groups);
    e->groups[e->group_count++] = (group){member, count};
}

/* Splits the set by keys that are 0 or 1, and both. */
static void make_two_groups(engine *e, uint32_t *member) {
    const uint16_t *keys = e->keys;
    uint16_t first_key = keys[e->set.first];
    uint32_t first = 0, second = 0, *others = e->scratch_lanes;
    EACH_LANE(e->set, c, {
        uint32_t other = keys[c] ^ first_key;
        member[first] = others[second] = c; /* one of the two is overwritten by the next lane */
        first += !other;
        second += other;
    });
    memcpy(member + first, others, second * sizeof *others);
    add_group(e, member, first);
    add_group(e, member + first, second);
}

/* Splits the set by e->keys, each key a group, in the order in which they first occur. */
static void make_groups(engine *e) {
    uint32_t *member = arena_take(e, &e->member_arena, e->set.count * sizeof *member);
    const uint16_t *keys = e->keys;
    if (e->yes_or_no) {
        make_two_groups(e, member);
        return;
    }
    if (++e->key_generations == 0) { /* all generations were used: those of earlier splits must not match again */
        memset(e->key_generation, 0, 0x10000 * sizeof *e->key_generation);
        e->key_generations = 1;
    }
    uint32_t generation = e->key_generations, groups = 0, *counts = e->scratch_lanes;
    EACH_LANE(e->set, c, {
        uint16_t key = keys[c];
        if (e->key_generation[key] != generation) {
            e->key_generation[key] = generation;
            e->key_group[key] = groups;
            counts[groups++] = 0;
        }
        counts[e->key_group[key]]++;
    });
    uint32_t start = 0;
    for (uint32_t g = 0; g < groups; g++) {
        uint32_t count = counts[g];
        add_group(e, member + start, count);
        counts[g] = start;
        start += count;
    }
    EACH_LANE(e->set, c, member[counts[e->key_group[keys[c]]]++] = c;);
}

/* Splits the current set by e->keys; each part executes the instruction e->now.at again. */
void split(engine *e) {
    e->count_splits++;
    e->snapshots = grow(e, e->snapshots, &e->snapshot_capacity, (size_t)e->snapshot_count + 1, sizeof *e->snapshots);
    uint32_t stack_cells = STACK_CELLS - (uint32_t)e->now.sp;
    e->stack_copies = grow(e, e->stack_copies, &e->stack_copy_capacity, (size_t)e->stack_copy_length + stack_cells,
                           sizeof *e->stack_copies);
    uint32_t first_group = e->group_count;
    const instruction *merge_at = e->merging ? find_merge_point(e, e->now.at, e->now.frames) : NULL;
    make_groups(e);
    e->snapshots[e->snapshot_count++] = (snapshot){
        .at = e->now,
        .set = e->set,
        .vectors = e->vector_count,
        .journal = e->journal_length,
        .stack_copy = e->stack_copy_length,
        .stack_cells = stack_cells,
        .first_group = first_group,
        .groups = e->group_count - first_group,
        .first_parked = e->parked_count,
        .waiting = e->parked_count,
        .lane_mark = e->lane_arena.top,
        .member_mark = e->member_arena.top,
        .parked_mark = e->parked_arena.top,
        .join = e->merging ? e->now.frames : -1,
        .merge_at = merge_at,
    };
    memcpy(e->stack_copies + e->stack_copy_length, e->stack + e->now.sp, stack_cells * sizeof(value));
    e->stack_copy_length += stack_cells;
    begin_journal(e);
}

/* --- parking ------------------------------------------------------------------------------------------------ */

/* Stores a cell so that it survives the vectors made since the snapshot: a number, an older vector, or a copy. */
static cell keep_cell(engine *e, const snapshot *s, uint32_t address, int size, value content) {
    cell kept = {address, (uint8_t)size, content, NULL};
    if (is_vector(content) && vector_index(content) >= s->vectors) {
        const uint16_t *from = e->vectors[vector_index(content)].lane;
        uint16_t *to = kept.lane = take_lanes(e, &e->parked_arena);
        EACH_LANE_OR_BETWEEN(e->set, c, to[c] = from[c];);
    }
    return kept;
}

enum { TOUCHED = 1, WORD_STARTS = 2, KEPT = 4, MARKS = 8 };

static uint32_t marks(const engine *e, uint32_t address) {
    uint32_t mark = e->mark[address];
    return mark / MARKS == e->mark_generation ? mark % MARKS : 0;
}

static void add_marks(engine *e, uint32_t address, uint32_t more) {
    e->mark[address] = e->mark_generation * MARKS + (marks(e, address) | more);
}

static void next_marks(engine *e) {
    if (++e->mark_generation < UINT32_MAX / MARKS - 1) return;
    memset(e->mark, 0, MEMORY * sizeof *e->mark);
    e->mark_generation = 1;
}

/* Which bytes were written since the snapshot, and whether as parts of words. */
uint32_t list_touched(engine *e, uint32_t since) {
    uint32_t count = 0;
    next_marks(e);
    for (uint32_t j = since; j < e->journal_length; j++) {
        uint32_t address = e->journal[j].address;
        for (uint32_t a = address; a < address + e->journal[j].size; a++)
            if (!marks(e, a)) {
                add_marks(e, a, TOUCHED);
                e->touched[count++] = a;
            }
        if (e->journal[j].size == 2) add_marks(e, address, WORD_STARTS);
    }
    return count;
}

int was_touched(const engine *e, uint32_t address) { return marks(e, address) != 0; }

static void park_memory(engine *e, const snapshot *s, parked *p) {
    uint32_t count = list_touched(e, s->journal);
    p->cell = arena_take(e, &e->parked_arena, count * sizeof(cell));
    p->cells = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t address = e->touched[i];
        if (marks(e, address) & KEPT) continue;
        /* The second byte of a word that was written: take the word. */
        if (address && (marks(e, address - 1) & (WORD_STARTS | KEPT)) == WORD_STARTS) address--;
        int word = marks(e, address) & WORD_STARTS && !(marks(e, address + 1) & KEPT);
        value content = word ? load_word(e, address) : load_byte(e, address);
        add_marks(e, address, KEPT);
        if (word) add_marks(e, address + 1, KEPT);
        p->cell[p->cells++] = keep_cell(e, s, address, word ? 2 : 1, content);
    }
}

/* Writes the words of the stack that differ from the snapshot to e->touched. */
static uint32_t list_pushed(engine *e, const snapshot *s) {
    enum { PIECE = 16 };
    const value *before = e->stack_copies + s->stack_copy;
    uint32_t base = STACK_CELLS - s->stack_cells, w = (uint32_t)e->now.sp, count = 0;
    for (; w < base; w++) e->touched[count++] = w;
    while (w < STACK_CELLS) {
        const value *now = e->stack + w, *then = before + (w - base);
        value differs = 1;
        if (STACK_CELLS - w >= PIECE) {
            differs = 0;
            for (int i = 0; i < PIECE; i++) differs |= now[i] ^ then[i];
        }
        uint32_t end = STACK_CELLS - w < PIECE ? STACK_CELLS : w + PIECE;
        for (; differs && w < end; w++)
            if (e->stack[w] != before[w - base]) e->touched[count++] = w;
        w = end;
    }
    return count;
}

static void park_stack(engine *e, const snapshot *s, parked *p) {
    uint32_t count = p->stack_cells = list_pushed(e, s);
    p->stack_cell = arena_take(e, &e->parked_arena, count * sizeof(cell));
    for (uint32_t i = 0; i < count; i++) {
        value content = e->stack[e->touched[i]];
        if (is_vector(content)) content = simplify(e, content);
        p->stack_cell[i] = keep_cell(e, s, e->touched[i], 2, content);
    }
}

/* Parks the current part of the set until the other parts have reached the merge point. */
void park(engine *e) {
    e->count_parked++;
    const snapshot *s = &e->snapshots[e->snapshot_count - 1];
    e->parked = grow(e, e->parked, &e->parked_capacity, (size_t)e->parked_count + 1, sizeof *e->parked);
    parked *p = &e->parked[e->parked_count++];
    p->at = e->now;
    p->count = e->set.count;
    p->member = arena_take(e, &e->parked_arena, p->count * sizeof *p->member);
    memcpy(p->member, e->set.member, p->count * sizeof *p->member);
    park_memory(e, s, p);
    park_stack(e, s, p);
}

/* --- merging ------------------------------------------------------------------------------------------------ */

static int same_modes(const registers *a, const registers *b) {
    return a->interval == b->interval && a->counter == b->counter && a->silent == b->silent &&
           a->redirections == b->redirections &&
           !memcmp(a->redirection, b->redirection, (size_t)a->redirections * sizeof *a->redirection);
}

static int can_merge(const registers *a, const registers *b) {
    return a->at == b->at && a->sp == b->sp && a->fp == b->fp && a->frames == b->frames && same_modes(a, b);
}

/* Numbers the classes of parked parts that can be merged; returns how many there are. */
static uint32_t classify(engine *e, uint32_t from, uint32_t to) {
    uint32_t classes = 0, *leader = e->scratch_lanes;
    for (uint32_t i = from; i < to; i++) {
        uint32_t k = classes;
        while (k > 0 && !can_merge(&e->parked[leader[k - 1]].at, &e->parked[i].at)) k--;
        if (!k) leader[classes] = i, k = ++classes;
        e->parked[i].class = k - 1;
    }
    return classes;
}

/* Writes the numbers of one parked part to a vector. The first part also writes between its lanes, where others
 * overwrite them. `part`: the whole cell, or its high or low byte. */
enum { WHOLE, HIGH, LOW };
static void fill(const engine *e, uint16_t *to, const parked *p, const cell *from, int part, int first) {
    const uint16_t *lane = from->lane ? from->lane : lanes_or_null(e, from->content);
    int shift = part == HIGH ? 8 : 0;
    uint16_t mask = part == WHOLE ? 0xFFFF : 255, same = (uint16_t)from->content >> shift & mask;
    lanes part_set = lanes_of(p->member, p->count);
    part_set.contiguous |= first & part_set.dense;
    if (!lane) EACH_LANE(part_set, c, to[c] = same;);
    else if (part == WHOLE) EACH_LANE(part_set, c, to[c] = lane[c];);
    else EACH_LANE(part_set, c, to[c] = lane[c] >> shift & mask;);
}

static int part_of(const cell *c, uint32_t address) { return c->size == 1 ? WHOLE : c->address == address ? HIGH : LOW; }

/* Makes a table of the cells of all parked parts: table[slot * count + part]. */
static void make_table(engine *e, parked *const *p, uint32_t count, uint32_t slots, int stack) {
    size_t need = (size_t)slots * count;
    if (need > e->table_capacity) {
        free(e->table);
        e->table = malloc(need * sizeof *e->table);
        e->table_capacity = e->table ? need : 0;
        if (!e->table) raise_no_memory(e);
    }
    if (!need) return;
    memset(e->table, 0, need * sizeof *e->table);
    for (uint32_t i = 0; i < count; i++) {
        const cell *cells = stack ? p[i]->stack_cell : p[i]->cell;
        uint32_t n = stack ? p[i]->stack_cells : p[i]->cells;
        for (uint32_t j = 0; j < n; j++) {
            e->table[(size_t)e->slot[cells[j].address] * count + i] = &cells[j];
            if (!stack && cells[j].size == 2) e->table[(size_t)e->slot[cells[j].address + 1] * count + i] = &cells[j];
        }
    }
}

static uint32_t add_slot(engine *e, uint32_t address, uint32_t count) {
    if (marks(e, address)) return count;
    add_marks(e, address, TOUCHED);
    e->slot[address] = count;
    e->touched[count] = address;
    return count + 1;
}

/* Whether all parked parts have the same number or the same older vector in a cell; `base` for parts without the
 * cell. */
static const cell *same_in_all(const cell *const *row, uint32_t count, const cell *base) {
    const cell *first = row[0] ? row[0] : base;
    for (uint32_t i = 0; i < count; i++) {
        const cell *one = row[i] ? row[i] : base;
        if (one->lane || one->content != first->content) return NULL;
    }
    return first;
}

static int whole_words(const cell *const *high, const cell *const *low, uint32_t count, uint32_t address) {
    for (uint32_t i = 0; i < count; i++)
        if (high[i] != low[i] || (high[i] && (high[i]->size != 2 || high[i]->address != address))) return 0;
    return 1;
}

/* Stores a merged word, and marks it so that it is not merged again. */
static void merged_word(engine *e, uint32_t address, value v) {
    journal_push(e, address, 2);
    put_word(e, address, v);
}

static void merge_word(engine *e, uint32_t address, const cell *const *row, parked *const *p, uint32_t count) {
    cell base = {address, 2, load_word(e, address), NULL};
    const cell *same = same_in_all(row, count, &base);
    if (same) {
        if (same->content != base.content) merged_word(e, address, same->content);
        return;
    }
    uint16_t *to;
    value made = new_vector(e, 0, &to);
    for (uint32_t i = 0; i < count; i++) fill(e, to, p[i], row[i] ? row[i] : &base, WHOLE, i == 0);
    merged_word(e, address, made);
}

static void merge_byte(engine *e, uint32_t address, const cell *const *row, parked *const *p, uint32_t count) {
    cell base = {address, 1, load_byte(e, address), NULL};
    uint16_t *to;
    value made = new_vector(e, 1, &to);
    for (uint32_t i = 0; i < count; i++) {
        const cell *from = row[i] ? row[i] : &base;
        fill(e, to, p[i], from, from->size == 1 ? LOW : part_of(from, address), i == 0);
    }
    journal_push(e, address, 1);
    put_byte(e, address, simplify(e, made));
}

static void merge_memory(engine *e, parked *const *p, uint32_t count) {
    uint32_t slots = 0;
    next_marks(e);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t j = 0; j < p[i]->cells; j++) {
            slots = add_slot(e, p[i]->cell[j].address, slots);
            if (p[i]->cell[j].size == 2) slots = add_slot(e, p[i]->cell[j].address + 1, slots);
        }
    make_table(e, p, count, slots, 0);
    uint32_t *list = e->touched;
    for (uint32_t u = 0; u < slots; u++) {
        uint32_t address = list[u];
        if (marks(e, address) & KEPT) continue;
        const cell *const *row = e->table + (size_t)u * count;
        if (marks(e, address + 1) == TOUCHED && /* touched and not merged yet */
            whole_words(row, e->table + (size_t)e->slot[address + 1] * count, count, address)) {
            add_marks(e, address + 1, KEPT);
            merge_word(e, address, row, p, count);
        } else if (!(address && marks(e, address - 1) == TOUCHED &&
                     whole_words(e->table + (size_t)e->slot[address - 1] * count, row, count, address - 1))) {
            merge_byte(e, address, row, p, count);
        } else {
            continue; /* the second byte of a word that comes later in the list */
        }
        add_marks(e, address, KEPT);
    }
}

static void merge_stack(engine *e, const snapshot *s, parked *const *p, uint32_t count) {
    const value *before = e->stack_copies + s->stack_copy;
    uint32_t base_sp = STACK_CELLS - s->stack_cells, slots = 0;
    memcpy(e->stack + base_sp, before, s->stack_cells * sizeof *before);
    next_marks(e);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t j = 0; j < p[i]->stack_cells; j++) slots = add_slot(e, p[i]->stack_cell[j].address, slots);
    make_table(e, p, count, slots, 1);
    for (uint32_t u = 0; u < slots; u++) {
        uint32_t w = e->touched[u];
        cell base = {w, 2, w >= base_sp ? before[w - base_sp] : 0, NULL};
        const cell *const *row = e->table + (size_t)u * count, *same = same_in_all(row, count, &base);
        if (same) {
            e->stack[w] = same->content;
            continue;
        }
        uint16_t *to;
        e->stack[w] = new_vector(e, 0, &to);
        for (uint32_t i = 0; i < count; i++) fill(e, to, p[i], row[i] ? row[i] : &base, WHOLE, i == 0);
    }
}

static void merge_lanes(engine *e, const snapshot *s, parked *const *p, uint32_t count) {
    uint32_t total = 0;
    for (uint32_t i = 0; i < count; i++) total += p[i]->count;
    if (total == s->set.count) { /* all lanes: what was found about this set is valid again */
        e->set = s->set;
        return;
    }
    uint32_t *member = arena_take(e, &e->member_arena, total * sizeof *member);
    if (count == 1) {
        memcpy(member, p[0]->member, total * sizeof *member);
    } else {
        uint16_t *in = e->keys;
        for (uint32_t k = 0; k < s->set.count; k++) in[s->set.member[k]] = 0;
        for (uint32_t i = 0; i < count; i++)
            for (uint32_t k = 0; k < p[i]->count; k++) in[p[i]->member[k]] = 1;
        uint32_t n = 0;
        for (uint32_t k = 0; k < s->set.count && n < total; k++) {
            member[n] = s->set.member[k];
            n += in[member[n]];
        }
    }
    set_lanes(e, member, total);
}

/* The first part is written fastest. */
static void put_largest_first(parked **p, uint32_t count) {
    uint32_t largest = 0;
    for (uint32_t i = 1; i < count; i++)
        if (p[i]->count > p[largest]->count) largest = i;
    parked *first = p[largest];
    p[largest] = p[0];
    p[0] = first;
}

/* Merges the parked parts of a class into one set; memory is in the state of the snapshot. */
static void merge(engine *e, uint32_t from, uint32_t to, uint32_t class) {
    const snapshot *s = &e->snapshots[e->snapshot_count - 1];
    uint32_t count = 0;
    for (uint32_t i = from; i < to; i++) count += e->parked[i].class == class;
    parked **p = arena_take(e, &e->lane_arena, count * sizeof *p);
    count = 0;
    uint64_t instructions = 0;
    for (uint32_t i = from; i < to; i++)
        if (e->parked[i].class == class) {
            p[count++] = &e->parked[i];
            if (e->parked[i].at.instructions > instructions) instructions = e->parked[i].at.instructions;
        }
    put_largest_first(p, count);
    e->count_merges++;
    merge_lanes(e, s, p, count);
    e->now = p[0]->at;
    e->now.instructions = instructions;
    merge_memory(e, p, count);
    merge_stack(e, s, p, count);
    if (UNLIKELY(e->checking)) note_merge(e);
}

/* --- scheduling of the parts ---------------------------------------------------------------------------------- */

static void pop_snapshot(engine *e) {
    const snapshot *s = &e->snapshots[--e->snapshot_count];
    e->stack_copy_length = s->stack_copy;
    e->group_count = s->first_group;
    e->parked_count = s->first_parked;
    e->parked_arena.top = s->parked_mark;
}

static void start_group(engine *e, snapshot *s) {
    const group *g = &e->groups[s->first_group + s->next++];
    e->now = s->at;
    memcpy(e->stack + s->at.sp, e->stack_copies + s->stack_copy, s->stack_cells * sizeof(value));
    set_lanes(e, g->member, g->count);
}

/* Whether another class could still be merged with this one further on. */
static int can_rejoin(const engine *e, const snapshot *s, uint32_t class) {
    const registers *own = NULL;
    for (uint32_t i = s->waiting; i < s->end_waiting && !own; i++)
        if (e->parked[i].class == class) own = &e->parked[i].at;
    for (uint32_t i = s->waiting; i < s->end_waiting; i++)
        if (e->parked[i].class != class && own && same_modes(own, &e->parked[i].at)) return 1;
    return 0;
}

/* Merges the parked parts as far as possible, when all parts have parked or ended. */
static void begin_merging(engine *e, snapshot *s) {
    s->waiting = s->merging ? s->end_waiting : s->first_parked;
    s->end_waiting = e->parked_count;
    s->merging = 1;
    s->next = 0;
    s->groups = classify(e, s->waiting, s->end_waiting);
    s->level = 0;
    for (uint32_t i = s->waiting; i < s->end_waiting; i++)
        if (e->parked[i].at.frames > s->level) s->level = e->parked[i].at.frames;
}

int resume(engine *e) {
    while (e->snapshot_count) {
        snapshot *s = &e->snapshots[e->snapshot_count - 1];
        rollback(e, s->journal);
        e->vector_count = s->vectors;
        e->lane_arena.top = s->lane_mark;
        e->member_arena.top = s->member_mark;
        if (s->next == s->groups) {
            if (e->parked_count == (s->merging ? s->end_waiting : s->first_parked)) {
                pop_snapshot(e);
                continue;
            }
            begin_merging(e, s);
        }
        if (!s->merging) {
            start_group(e, s);
            return 1;
        }
        uint32_t class = s->next++, from = s->waiting, to = s->end_waiting;
        s->join = can_rejoin(e, s, class) ? s->level : -1;
        s->merge_at = NULL;
        merge(e, from, to, class);
        if (s->groups == 1) pop_snapshot(e); /* only its vectors are still needed, and they stay */
        /* A class with fewer frames than others waits for them at once. */
        if (e->snapshot_count && e->now.frames < e->snapshots[e->snapshot_count - 1].join) {
            park(e);
            continue;
        }
        return 1;
    }
    return 0;
}
