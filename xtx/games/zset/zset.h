/* Set execution: one run of a Z-machine for very many commands at once. docs/set-execution.md explains the method.
 *
 * A *lane* is one candidate command. All lanes start in the same state and differ only in what was typed, so the
 * machine runs once for a whole set of lanes; a value that differs between them is a *vector* with one number for
 * each lane. Where lanes branch differently the set is split, and the parts run one after the other from the same
 * snapshot; where parts reach the same instruction they are merged again.
 *
 *   interpreter.c    loading, decoding, objects and properties, and the interpreter itself
 *   lane_sets.c      vectors, the journal, splitting and merging of sets
 *   printed_text.c   printed text, the automaton that matches patterns in it, the dictionary
 *   verdicts.c       how a command changed the world, lane by lane; the functions that Python calls
 *   merge_points.c   merge points: the instructions at which parts of a set merge inside a routine that does not return
 *   thread_team.c    a thread team: several engines that share the commands of a state
 *   partition.c      partition of the commands into parts for the team
 *   template_fill.c  candidate commands: the templates of a grammar, filled with names
 *   effects.c        statistics over the verdicts on all commands of a state
 *
 * There are no global variables: an engine belongs to one thread at a time, and there may be many engines. */
#ifndef ZSET_H
#define ZSET_H

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

/* --- values ------------------------------------------------------------------------------------------------- */

/* A 16-bit number that all lanes share, or VECTOR | the index of a vector. */
typedef uint32_t value;
#define VECTOR 0x80000000u
static inline int is_vector(value v) { return (int32_t)v < 0; }
static inline uint32_t vector_index(value v) { return v & ~VECTOR; }

/* One number for each lane. `lane[c]` is only meaningful for the lanes of the set for which the vector was made,
 * and stays so for every part of that set. */
typedef struct {
    uint16_t *lane;
    uint32_t epoch;  /* the set of lanes for which `uniform` was found */
    uint16_t same;   /* the number that all lanes of that set have, if they do */
    uint8_t uniform; /* whether they do */
    uint8_t is_byte; /* no lane exceeds 255 */
    uint8_t asked;   /* how many times a number was searched in the set `filter_epoch` before the filter was made */
    uint32_t filter_epoch;
    uint64_t filter[4]; /* which numbers may occur in that set: a Bloom filter of 256 bits with one hash */
} vector;

/* What replaces a byte of RAM: 0 for nothing, or a byte of a vector. */
typedef uint32_t shadow;
static inline shadow shadow_low(uint32_t vector) { return 2 * vector + 2; }
static inline shadow shadow_high(uint32_t vector) { return 2 * vector + 3; }
static inline uint32_t shadow_vector(shadow s) { return (s - 2) >> 1; }
static inline int shadow_is_high(shadow s) { return s & 1; }

/* --- instructions ------------------------------------------------------------------------------------------- */

enum { CONSTANT, STACK, LOCAL, GLOBAL };
enum { NO_BRANCH, BRANCH_FALSE, BRANCH_TRUE, BRANCH_JUMP }; /* where a branch leads: return 0, return 1, a jump */

typedef struct instruction {
    uint8_t handler; /* the operation, a faster version of it, or AT_MERGE_POINT at a merge point */
    uint8_t operation, opcode, count, has_store, store, branch, branch_when, kind[8];
    uint16_t operand[8]; /* a constant, the number of a local, or the address of a global */
    uint32_t address, next, target, text;
    struct instruction *following, *jump; /* what `next` and `target` decode to; NULL until needed */
} instruction;

/* The merge point of lanes that an instruction has separated. */
typedef struct {
    uint32_t turn_end; /* as in e->turn_ends; 0: not known yet */
    int waits;         /* whether the turn can end in this routine */
    instruction *at;   /* NULL: there is none */
} merge_point;

/* A text in read-only memory, decoded once. */
typedef struct {
    uint32_t length;
    uint16_t end_state; /* of the text automaton, if it was in state 0 before */
    uint8_t end_hits;
    uint8_t bytes[];
} string;

/* --- sets of lanes ------------------------------------------------------------------------------------------ */

typedef struct {
    const uint32_t *member; /* ascending */
    const uint16_t *mask;   /* by lane: 0xFFFF for members and 0 for the lanes between them; NULL until it is needed */
    uint32_t count, first, last, epoch;
    uint8_t contiguous; /* there are no lanes between the members */
    uint8_t dense;      /* there are so few of them that it is quicker to calculate with them as well */
} lanes;

enum { DENSE = 4 }; /* one lane in so many is a member, at least */

static inline lanes lanes_of(const uint32_t *member, uint32_t count) {
    lanes set = {.member = member, .count = count, .first = member[0], .last = member[count - 1]};
    uint32_t range = set.last - set.first + 1;
    set.contiguous = range == count;
    set.dense = range / DENSE <= count;
    return set;
}

#define EACH_LANE(set, c, ...)                                                     \
    do {                                                                           \
        if ((set).contiguous) {                                                    \
            for (uint32_t c = (set).first, end_ = (set).last + 1; c < end_; c++) { __VA_ARGS__ }   \
        } else {                                                                   \
            const uint32_t *member_ = (set).member, *end_ = member_ + (set).count; \
            for (; member_ < end_; member_++) {                                    \
                uint32_t c = *member_;                                             \
                __VA_ARGS__                                                        \
            }                                                                      \
        }                                                                          \
    } while (0)

/* The same, for bodies that may also run for lanes between the members: their numbers have no meaning, but every vector
 * has space for them, and vector instructions process eight lanes in the time of one. */
#define EACH_LANE_OR_BETWEEN(set, c, ...)                                        \
    do {                                                                         \
        if ((set).dense) {                                                       \
            for (uint32_t c = (set).first, end_ = (set).last + 1; c < end_; c++) { __VA_ARGS__ } \
        } else {                                                                 \
            EACH_LANE(set, c, __VA_ARGS__);                                      \
        }                                                                        \
    } while (0)

/* A block of memory that is used like a stack. Its content never moves. */
typedef struct {
    uint8_t *base;
    size_t top, size, peak; /* peak: the highest top since the arena was trimmed */
} arena;

enum {
    STACK_WORDS = 1024,            /* as in Frotz; the stack grows downwards */
    TEXT_STATE = STACK_WORDS,      /* cells behind the stack, which are merged like it: the state of the text automaton, */
    RANDOM_WORD = STACK_WORDS + 1, /* and the state of the random generator, lowest word first */
    RANDOM_WORDS = 4,
    STACK_CELLS = RANDOM_WORD + RANDOM_WORDS,
    STACK_GUARD = 16,              /* words below the stack, so that locals of a damaged story are still in the array */
    MAX_REDIRECTIONS = 16,
    MOST_FRAMES = 32,              /* limits the frames whose `turn_ends` are stored */
    MAX_COMMAND = 198,
    MEMORY = 0x10000 + 16          /* every 16-bit address can be read, a word at 0xFFFF too */
};

typedef struct {
    int64_t a;
    int32_t interval, counter;
} random_state;

/* The state of the machine without memory, stack and lanes. */
typedef struct {
    instruction *at;
    int32_t sp, fp, frames, redirections, silent; /* silent: the story has turned the screen off */
    uint16_t redirection[MAX_REDIRECTIONS];
    int32_t interval, counter; /* of a random generator in counting mode */
    uint64_t instructions;
} registers;

typedef struct {
    uint16_t address;
    uint8_t size; /* bytes written: 1 or 2; the old content of both is stored */
    uint8_t old[2];
    shadow shadows[2];
} journal_entry;

/* A cell of memory or stack in a parked part of the set, where it may differ from the snapshot. */
typedef struct {
    uint32_t address;
    uint8_t size;
    value content;  /* a number, or a vector older than the snapshot */
    uint16_t *lane; /* or the numbers themselves */
} cell;

/* A part of the set that waits to be merged, in the routine that called the one in which the set was split. */
typedef struct {
    registers at;
    uint32_t *member;
    uint32_t count, cells, stack_cells, class;
    cell *cell, *stack_cell;
} parked;

typedef struct {
    uint32_t *member;
    uint32_t count;
} group;

/* The state in which the set was split: everything needed to start each part from it, and to merge the parts. */
typedef struct {
    registers at;
    lanes set;
    uint32_t vectors, journal, stack_copy, stack_cells, first_group, groups, next, first_parked, waiting, end_waiting;
    size_t lane_mark, member_mark, parked_mark;
    int32_t join;  /* a part parks when it returns to fewer frames than these; -1: never */
    const instruction *merge_at; /* or when it reaches this instruction in the same routine; NULL: there is none */
    int32_t level; /* frames of the deepest parked part */
    uint8_t merging; /* the parts are classes of parked parts, not groups of lanes */
} snapshot;

/* --- verdicts ----------------------------------------------------------------------------------------------- */

/* Of a lane that is UNJUDGED because only Jericho's functions can say what its text means, END_OPEN is set as well. */
enum { CHANGED = 1, TAKEN = 2, RANDOM = 4, STOPPED = 8, EVENT = 16, END_OPEN = 64, UNJUDGED = 128 };
/* What Jericho says of a text and the memory with it: ENDS_TAKEN may be set beside one of the others. */
enum { ENDS_NOT, ENDS_OVER, ENDS_WON, ENDS_TAKEN = 4 };
/* What a printed text says: that something was taken, that Jericho must be asked whether the game has ended, that it is
 * over, that it is won; and that Jericho may cut the text off here, so that it does not see what is said after it. */
enum { HIT_TAKEN = 1, HIT_ASK = 2, HIT_OVER = 4, HIT_WON = 8, HIT_CUT = 16 };
enum { MOVED, SET, CLEARED, EVENT_KINDS, EVENT_SLOTS = 16 };

/* The definition of a change of the world; the same as in frotz_bridge.c. */
typedef struct {
    const uint8_t *set_mask, *clear_mask;
    const uint16_t *wanderers;
    int32_t wanderer_count;
    uint32_t first_object;
    int32_t small;
    int32_t object_count;
    int32_t score_address, score_size;
} world;

typedef int (*ignores)(uint16_t object, uint16_t other);

/* What happened in one lane so far. It only grows, and no lane executes an instruction twice, so it needs no journal.
*/
typedef struct {
    uint64_t events;
    uint8_t seen[EVENT_KINDS], kept[EVENT_KINDS], hits;
} history;

/* Debug mode: the state of one lane after a merge, which must occur again when its command runs alone. */
typedef struct {
    uint32_t lane, number; /* number: index of the merge */
    uint32_t address;      /* of the next instruction */
    int32_t sp, frames;
    uint64_t state; /* a hash of all of it */
} check;

/* A state to start from, as xtx.games.emulator.frotz.Snapshot has it. */
typedef struct {
    const uint8_t *ram;
    const uint16_t *stack; /* from sp on */
    int32_t stack_words, pc, sp, fp, frames, opcode;
    int64_t random_a;
    int32_t random_interval, random_counter;
} start_state;

/* --- the engine --------------------------------------------------------------------------------------------- */

typedef struct {
    uint32_t generation;
    uint16_t result;
} memo;

typedef struct {
    uint8_t length;
    uint8_t known;
    uint16_t address;
    char text[28];
} cached_word;

/* The text that a command prints. Frotz buffers the last word until a space, a new line or an instruction flushes it;
 * `flushed` is the length up to the last such instruction. */
typedef struct {
    uint8_t *bytes;
    uint32_t length, capacity, flushed;
} transcript;

typedef struct {
    /* the story */
    uint8_t *memory; /* RAM and everything behind it */
    uint32_t size, ram_size, packing;
    int version;
    uint32_t globals, objects, dictionary, abbreviations, alphabet;
    instruction **decoded; /* by address */
    merge_point *merge_points;      /* by address of the instruction that separates lanes */
    instruction *pool;
    uint32_t pool_left;
    void **allocations; /* pools and strings, freed with the engine */
    uint32_t allocation_count, allocation_capacity;
    string **strings; /* by address */
    /* Abbreviations and alphabet, as far as they are in RAM. Decoded texts are cached, which is valid while these are
     * unchanged. */
    uint32_t low_first, low_size;
    uint8_t *low;        /* the story's content there */
    uint32_t low_writes; /* entries of the journal that concern them */
    int low_differs;     /* the state to start from has something else there */
    /* The dictionary, as far as it lies in RAM: words are looked up once, which holds while it is what it was. */
    uint32_t changeable_words;
    uint8_t *own_words;
    string *scratch;
    uint32_t printed; /* bytes printed since it was last reset */
    value text_differs; /* the value that differs between lanes because of which the last text could not be read, or 0
    */

    /* patterns in the text */
    uint16_t (*automaton)[256];
    uint8_t *automaton_hits;
    uint32_t automaton_states;

    /* the definition of a change */
    world world;
    uint8_t *interesting; /* by address: whether the byte takes part in the verdict */
    uint16_t *special;    /* Jericho's special RAM, in its order */
    int32_t special_count;
    uint16_t *final; /* bytes on which Jericho's end of the game depends */
    int32_t final_count;
    ignores ignored[EVENT_KINDS];

    /* the machine */
    shadow *shadows; /* by address */
    value stack_[STACK_GUARD + STACK_CELLS + 1];
    value *stack;
    lanes set;
    uint32_t epochs;
    registers now;
    int32_t prompt_frames; /* number of routines on the stack at the prompt: they may not return in this turn */
    uint32_t turn_ends[MOST_FRAMES]; /* the return address in each of them: behind the call that led to the prompt */
    uint64_t limit;

    /* sets */
    vector *vectors;
    uint32_t vector_count, vector_capacity;
    arena lane_arena, member_arena, parked_arena;
    journal_entry *journal;
    uint32_t journal_length, journal_capacity;
    uint32_t *journaled, journal_generation; /* by address: the generation when it was last stored, plus the number of bytes */
    snapshot *snapshots;
    uint32_t snapshot_count, snapshot_capacity;
    group *groups;
    uint32_t group_count, group_capacity;
    value *stack_copies;
    uint32_t stack_copy_length, stack_copy_capacity;
    parked *parked;
    uint32_t parked_count, parked_capacity;
    uint16_t *keys; /* by lane: the group into which a split puts it */
    int yes_or_no;  /* the keys are answers of a predicate: 1 or 0 */
    uint32_t *scratch_lanes;
    memo *memos;
    uint32_t memo_generation;
    uint32_t *mark, mark_generation;   /* by address */
    uint32_t *slot;               /* by address */
    uint32_t *touched, *key_generation, *key_group, key_generations;
    const cell **table;
    size_t table_capacity;
    cached_word *words;
    uint8_t separates[256]; /* whether a character is a word of its own */

    /* one run */
    uint32_t lane_count, lane_capacity; /* lane_count: of the present run */
    history *histories;
    uint8_t *flags;
    uint64_t *diffs, *hashes; /* `hashes` of each lane's whole final state, for proof; or NULL */
    uint64_t *differences;    /* a hash of what Jericho calls a lane's world difference, for proof; or NULL */
    const uint8_t *watched;   /* masks, by address: bits that are watched beside; or NULL */
    int32_t watched_masks;
    uint64_t *watches;        /* a hash of how those of each mask changed in each lane: mask after mask */
    const uint8_t *endings;   /* by command: what Jericho says of it, if it was asked; or NULL */
    uint8_t *finals;          /* by command: RAM after it, in rows of ram_size that begin as the state's RAM; or NULL */
    uint8_t *start_ram, *base_ram;
    uint16_t *moved; /* addresses in which those differ */
    uint32_t moved_count;
    random_state start_random;
    const int64_t *randoms; /* or several start states, used in turn */
    uint32_t random_count;  /* 0 for none */
    const uint32_t *lane_of; /* the commands in the lanes */
    transcript *transcripts; /* of the commands, if their texts are stored; or NULL */
    int stay;                /* whether the state after the run is needed */
    int merging;
    jmp_buf no_memory;

    /* debug mode */
    int checking;
    check *checks;
    uint32_t check_count, check_capacity;
    const check *expected, *expected_end; /* while one command runs alone */
    uint64_t check_seed;
    uint32_t merge_number, fault; /* fault: the number of a merge that is corrupted on purpose; 0: none */
    int64_t checks_passed, wrong_command, wrong_address; /* -1: nothing is wrong; the end of the turn */

    uint64_t count_instructions, count_splits, count_parked, count_merges, count_lanes, count_leaves;
} engine;

/* --- interpreter.c ---------------------------------------------------------------------------------------------- */

int machine_load(engine *e, const uint8_t *story, uint32_t size);
void machine_free(engine *e);
instruction *decode(engine *e, uint32_t address);
void *keep(engine *e, void *allocation);
/* Runs the current set from e->now until every lane has reached the end of its turn or was given up. */
void machine_run(engine *e);
uint32_t object_address(const engine *e, uint32_t object);
/* Writes the addresses of the instructions of the same routine that may follow one; returns their number. */
int follows(const instruction *in, uint32_t next[2]);
/* Makes an instruction a merge point: from now on the interpreter checks there whether a part of the set must wait. */
void wait_at(instruction *in);

/* --- merge_points.c ------------------------------------------------------------------------------------------------- */

/* Stores the return addresses of the routines on the stack at the prompt. */
void note_turn_ends(engine *e, const instruction *read, int32_t fp, int32_t frames);
/* The merge point of the parts of a set that this instruction separates, inside the routine; NULL: there is none. */
const instruction *find_merge_point(engine *e, const instruction *in, int32_t frames);

/* --- lane_sets.c ------------------------------------------------------------------------------------------------- */

void raise_no_memory(engine *e) __attribute__((noreturn));
int arena_open(arena *a, size_t size);
void arena_close(arena *a);
void arena_trim(arena *a);
void *arena_take(engine *e, arena *a, size_t bytes);
void *grow(engine *e, void *array, uint32_t *capacity, size_t need, size_t item);

void set_lanes(engine *e, const uint32_t *member, uint32_t count);
value new_vector(engine *e, int is_byte, uint16_t **lane);
/* The random generator: sets its state in all lanes, returns it for one lane, and draws numbers from 1 to `range`. */
void set_random(engine *e, int64_t a);
int64_t lane_random(const engine *e, uint32_t lane);
value draw(engine *e, uint16_t range);
value simplify_slowly(engine *e, value v);
value load_word_slowly(engine *e, uint32_t address);
value load_byte_slowly(engine *e, uint32_t address);
void store_word_vector(engine *e, uint32_t address, value v);
void store_byte_vector(engine *e, uint32_t address, value v);
/* From here on every address that is written is journaled again; called before the journal's length is stored for a
 * rollback. */
void begin_journal(engine *e);
void rollback(engine *e, uint32_t length);
void journal_grow(engine *e);

enum arithmetic { ADD, SUBTRACT, MULTIPLY, DIVIDE, REMAINDER, AND, OR, LOGICAL_SHIFT, ARITHMETIC_SHIFT };
enum comparison { LESS, GREATER, ALL_BITS };
static inline uint16_t calculate(enum arithmetic what, uint16_t a, uint16_t b) {
    int16_t x = (int16_t)a, y = (int16_t)b;
    switch (what) {
    case ADD: return (uint16_t)(a + b);
    case SUBTRACT: return (uint16_t)(a - b);
    case MULTIPLY: return (uint16_t)((int32_t)x * y);
    case DIVIDE: return (uint16_t)(y ? x / y : 0);
    case REMAINDER: return (uint16_t)(y ? x % y : 0);
    case AND: return a & b;
    case OR: return a | b;
    case LOGICAL_SHIFT: return (uint16_t)(y > 15 || y < -15 ? 0 : y > 0 ? a << y : a >> -y);
    case ARITHMETIC_SHIFT: return (uint16_t)(y > 15 ? 0 : y < -15 ? x >> 15 : y > 0 ? (int32_t)x * (1 << y) : x >> -y);
    }
    return 0;
}

value lanes_calculate(engine *e, enum arithmetic what, value a, value b);
value lanes_load(engine *e, value base, value index, int word);
/* Predicates return 0 or 1 if all lanes agree; otherwise -1, with each lane's result in e->keys. */
int lanes_equal(engine *e, const value *v, int count);
int lanes_compare(engine *e, enum comparison what, value a, value b);
int lanes_attribute(engine *e, value object, uint32_t attribute);
int lanes_inside(engine *e, value object, value parent);
/* Objects, one for each lane. */
int lanes_objects_legal(engine *e, value object);
value lanes_link(engine *e, value object, int link);
/* A number that no entry of e->memos holds. */
uint32_t next_memo_generation(engine *e);
int lanes_property(engine *e, value object, uint32_t property, int address_only, value *result);
value lanes_property_length(engine *e, value address);
/* One byte for each lane, each to its own address; 0 if there are too many addresses or some cannot be written. */
int lanes_scatter(engine *e, const uint16_t *address, const uint8_t *byte);
void keys_from(engine *e, value v);

/* Writes the addresses that were written since the journal had a length to e->touched; returns their number. */
uint32_t list_touched(engine *e, uint32_t since);
int was_touched(const engine *e, uint32_t address);

void split(engine *e);
void park(engine *e);
/* Continues with the next part of the set; returns 0 if there is none. */
int resume(engine *e);

/* The second byte of the word at 0xFFFF is the one behind it, as in Frotz; addresses do not wrap there. */
static inline uint16_t lane_byte(const engine *e, uint32_t address, uint32_t c) {
    shadow s = e->shadows[address];
    if (LIKELY(!s)) return e->memory[address];
    uint16_t v = e->vectors[shadow_vector(s)].lane[c];
    return shadow_is_high(s) ? v >> 8 : v & 255;
}

static inline uint16_t lane_word(const engine *e, uint16_t address, uint32_t c) {
    return (uint16_t)(lane_byte(e, address, c) << 8 | lane_byte(e, address + 1u, c));
}

static inline uint16_t lane_value(const engine *e, value v, uint32_t c) {
    return is_vector(v) ? e->vectors[vector_index(v)].lane[c] : (uint16_t)v;
}

/* Replaces a vector by a number if all lanes of the current set have the same. */
static inline value simplify(engine *e, value v) {
    const vector *x = &e->vectors[vector_index(v)];
    if (LIKELY(x->epoch == e->set.epoch)) return x->uniform ? x->same : v;
    return simplify_slowly(e, v);
}

static inline uint32_t raw_word(const engine *e, uint32_t address) {
    return (uint32_t)e->memory[address] << 8 | e->memory[address + 1];
}

static inline value load_word(engine *e, uint32_t address) {
    if (UNLIKELY(e->shadows[address] | e->shadows[address + 1])) return load_word_slowly(e, address);
    return raw_word(e, address);
}

static inline value load_byte(engine *e, uint32_t address) {
    if (UNLIKELY(e->shadows[address])) return load_byte_slowly(e, address);
    return e->memory[address];
}

static inline uint32_t in_low(const engine *e, uint32_t address) {
    return address + 1 - e->low_first < e->low_size + 1;
}

/* Stores in the journal what is about to be overwritten. */
static inline void journal_push(engine *e, uint32_t address, int size) {
    if (UNLIKELY(e->journal_length == e->journal_capacity)) journal_grow(e);
    journal_entry *entry = &e->journal[e->journal_length++];
    entry->address = (uint16_t)address;
    entry->size = (uint8_t)size;
    memcpy(entry->old, e->memory + address, 2);
    memcpy(entry->shadows, e->shadows + address, sizeof entry->shadows);
    e->low_writes += in_low(e, address);
}

/* The same, but only once between two calls of begin_journal, because loops write the same variables repeatedly. */
static inline void journal_write(engine *e, uint32_t address, int size) {
    uint32_t generation = e->journal_generation + (uint32_t)size;
    if (e->journaled[address] == generation) return;
    e->journaled[address] = generation;
    journal_push(e, address, size);
}

static inline void put_word(engine *e, uint32_t address, value v) {
    if (UNLIKELY(is_vector(v))) {
        store_word_vector(e, address, v);
        return;
    }
    e->memory[address] = (uint8_t)(v >> 8);
    e->memory[address + 1] = (uint8_t)v;
    e->shadows[address] = e->shadows[address + 1] = 0;
}

static inline void put_byte(engine *e, uint32_t address, value v) {
    if (UNLIKELY(is_vector(v))) {
        store_byte_vector(e, address, v);
        return;
    }
    e->memory[address] = (uint8_t)v;
    e->shadows[address] = 0;
}

/* The caller has checked that the address may be written. */
static inline void store_word(engine *e, uint32_t address, value v) {
    journal_write(e, address, 2);
    put_word(e, address, v);
}

static inline void store_byte(engine *e, uint32_t address, value v) {
    journal_write(e, address, 1);
    put_byte(e, address, v);
}

/* --- printed_text.c ------------------------------------------------------------------------------------------------- */

int text_patterns(engine *e, const char *const *pattern, const uint8_t *hit, int count);
/* The end of an encoded text, or 0 if it has none inside the story. */
uint32_t text_end(const engine *e, uint32_t address);
/* Each prints to the screen or into memory. Returns 1, 0 if the lanes must first be split by e->keys, or -1 if they
 * cannot be judged. */
int print_bytes(engine *e, const uint8_t *bytes, uint32_t count);
int print_character(engine *e, value zscii);
int print_number(engine *e, value number);
int print_string_at(engine *e, uint32_t address);
int print_strings_at(engine *e, value v, int packed);
int print_object(engine *e, value object);
/* Whether texts are stored as Frotz would show them. */
static inline int answering(const engine *e) { return e->transcripts && !e->stay; }
/* Records that an instruction made Frotz show all that was printed. */
void print_flush(engine *e);
/* The Latin-1 letter that Frotz shows for a character of ZSCII; 0 where it is not known here. */
uint8_t letter_shown(const engine *e, uint8_t zscii);
/* The character of ZSCII that stands for one of Unicode; 0 if there is none, and Frotz shows it all the same. */
uint8_t letter_of_unicode(const engine *e, uint32_t unicode);
int print_table(engine *e, uint32_t address, uint32_t width, uint32_t height, uint32_t skip);

typedef struct {
    uint16_t address;
    uint8_t length, position;
} token;
enum { MAX_TOKENS = 255 };
/* Finds the abbreviations in RAM. Returns -1 if there is no memory. */
int text_low(engine *e);
/* Notes which part of the dictionary lies in RAM; -1 if there is no memory. */
int text_dictionary(engine *e);
/* Finds out which characters separate words; before the first line is cut. */
void text_separators(engine *e);
/* Splits a line into words as Frotz does; returns the number of tokens, at most `capacity`. */
int tokenise(engine *e, const uint8_t *line, uint32_t length, uint32_t offset, token *tokens, int capacity);
/* The opcode `tokenise`: from a text buffer into a parse buffer. Returns as the print functions do. */
int tokenise_buffer(engine *e, uint32_t text, uint32_t parse);
/* Writes tokens[k * space ...], counts[k] of them, for the k-th lane of the present set. */
void write_tokens(engine *e, uint32_t parse, const token *tokens, uint32_t capacity, const uint8_t *counts);

/* --- verdicts.c ---------------------------------------------------------------------------------------------- */

void event(engine *e, int kind, value object, value other);
/* Judges the current set, which is at the end of its turn. Returns 0 if it must first be split by e->keys. */
int judge(engine *e);
/* Marks the lanes of the current set as not judged. */
void give_up(engine *e);
/* Debug mode: stores the state of a random lane of the set that was just merged. */
void note_merge(engine *e);
/* Debug mode: compares the state of a command that runs alone with the one that was stored. */
void recognise_merge(engine *e);

enum { ALONE = 0, SPLITTING = 1, MERGING = 2, CHECKING = 3 };
int zset_filter(engine *e, const start_state *s, const int64_t *randoms, int32_t random_count, int32_t first_alone,
                const char *commands, int32_t count, uint64_t limit, int32_t mode, uint8_t *flags, uint64_t *diffs,
                uint64_t *hashes, uint64_t *differences, const uint8_t *watched, int32_t masks, uint64_t *watches,
                transcript *transcripts);

/* --- partition.c -------------------------------------------------------------------------------------------------- */

/* Some commands in a row. */
typedef struct {
    uint32_t first, count;
    float expected; /* estimated relative cost */
    uint64_t cost;  /* measured cost in instructions */
} job;

enum { KINDS = 1024 };

/* The average cost of each kind of commands, learned from earlier searches. */
typedef struct {
    float price[KINDS];
} prices;

/* The commands to partition. */
typedef struct {
    const char *const *commands;
    const uint16_t *groups; /* by command: equal for neighbours made from one template; NULL if not known */
    uint32_t count;
} cutting;

/* Initialises the prices. */
void cut_begin(prices *p);
/* Splits the commands, each with `each` lanes, into jobs of about `least` lanes or more for a number of engines, the
 * most expensive first. Returns the number of jobs, 0 if there is no memory. The caller frees *jobs. */
uint32_t cut(const prices *p, const cutting *c, uint32_t each, uint32_t engines, uint32_t least, job **jobs);
/* Updates the prices by the measured costs of jobs. */
void cut_learn(prices *p, const cutting *c, const job *jobs, uint32_t count);

static inline uint64_t scramble(uint64_t x) {
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

#endif
