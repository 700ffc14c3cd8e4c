/* The Z-machine: loading a story, decoding its instructions, and the interpreter.
 *
 * It behaves as Frotz does. Instructions that it does not implement (saving, undo, keyboards), and everything that a
 * correct story does not do (illegal objects, writing outside RAM), end in `give_up`: the command is not judged. */
#include "zset.h"

#include <stdlib.h>

/* --- the story ---------------------------------------------------------------------------------------------- */

void *keep(engine *e, void *allocation) {
    if (!allocation) raise_no_memory(e);
    if (e->allocation_count == e->allocation_capacity) {
        uint32_t capacity = 2 * e->allocation_capacity + 64;
        void **larger = realloc(e->allocations, capacity * sizeof *larger);
        if (!larger) {
            free(allocation);
            raise_no_memory(e);
        }
        e->allocations = larger;
        e->allocation_capacity = capacity;
    }
    return e->allocations[e->allocation_count++] = allocation;
}

int machine_load(engine *e, const uint8_t *story, uint32_t size) {
    if (size < 64) return -1;
    e->version = story[0];
    if (e->version != 3 && e->version != 4 && e->version != 5 && e->version != 8) return -1;
    e->packing = e->version == 3 ? 1 : e->version == 8 ? 3 : 2;
    uint32_t length = ((uint32_t)story[0x1A] << 8 | story[0x1B]) << e->packing;
    e->size = length && length < size ? length : size;
    uint32_t capacity = e->size > 0x10000 ? e->size + 16 : MEMORY;
    e->memory = calloc(1, capacity);
    e->decoded = calloc(e->size, sizeof *e->decoded);
    e->merge_points = calloc(e->size, sizeof *e->merge_points);
    e->strings = calloc(e->size, sizeof *e->strings);
    if (!e->memory || !e->decoded || !e->merge_points || !e->strings) return -2;
    memcpy(e->memory, story, e->size);
    e->dictionary = raw_word(e, 0x08);
    e->objects = raw_word(e, 0x0A);
    e->globals = raw_word(e, 0x0C);
    e->ram_size = raw_word(e, 0x0E);
    e->abbreviations = raw_word(e, 0x18);
    e->alphabet = e->version >= 5 ? raw_word(e, 0x34) : 0;
    if (e->ram_size < 64 || e->ram_size > e->size) return -1;
    return 0;
}

void machine_free(engine *e) {
    for (uint32_t i = 0; i < e->allocation_count; i++) free(e->allocations[i]);
    free(e->allocations);
    free(e->memory);
    free(e->decoded);
    free(e->merge_points);
    free(e->strings);
}

/* --- decoding ----------------------------------------------------------------------------------------------- */

/* UNKNOWN also stands for everything that is not judged. NOTHING takes operands and changes neither memory nor text;
 * FLUSH is the same, but makes Frotz show its buffered word. */
#define OPERATIONS(X) \
    X(UNKNOWN) X(NOTHING) X(FLUSH) X(BUFFER_MODE) X(SHOW_STATUS) \
    X(JE) X(JL) X(JG) X(DEC_CHK) X(INC_CHK) X(JIN) X(TEST_BITS) X(OR_) X(AND_) \
    X(TEST_ATTR) X(SET_ATTR) X(CLEAR_ATTR) X(STORE_) X(INSERT_OBJ) X(LOADW) X(LOADB) X(GET_PROP) \
    X(GET_PROP_ADDR) X(GET_NEXT_PROP) X(ADD_) X(SUB_) X(MUL_) X(DIV_) X(MOD_) X(CALL) X(THROW) X(JZ) \
    X(GET_SIBLING) X(GET_CHILD) X(GET_PARENT) X(GET_PROP_LEN) X(INC) X(DEC) X(PRINT_ADDR) X(REMOVE_OBJ) \
    X(PRINT_OBJ) X(RET) X(JUMP) X(PRINT_PADDR) X(LOAD) X(NOT) X(RTRUE) X(RFALSE) X(PRINT) X(PRINT_RET) \
    X(RET_POPPED) X(POP) X(CATCH) X(NEW_LINE) X(PIRACY) X(STOREW) X(STOREB) X(PUT_PROP) X(READ) X(PRINT_CHAR) \
    X(PRINT_NUM) X(RANDOM_) X(PUSH) X(PULL) X(OUTPUT_STREAM) X(SCAN_TABLE) X(TOKENISE) X(COPY_TABLE) \
    X(PRINT_TABLE) X(CHECK_ARG_COUNT) X(LOG_SHIFT) X(ART_SHIFT) X(SAVE_UNDO) X(PRINT_UNICODE) X(CHECK_UNICODE) \
    X(SET_FONT)

/* Special handlers: AT_MERGE_POINT, and the most frequent operations with a handler for each kind of operands: a
 * constant (C), the stack (S), a local (L) or a global (G). The general handlers test the kind of each operand, a
 * branch that the processor cannot predict. */
#define FOR_KINDS(X, op) X(op##_C) X(op##_S) X(op##_L) X(op##_G)
#define FOR_PAIRS(X, op) FOR_KINDS(X, op##_C) FOR_KINDS(X, op##_S) FOR_KINDS(X, op##_L) FOR_KINDS(X, op##_G)
#define SPECIAL(X) \
    X(AT_MERGE_POINT) FOR_PAIRS(X, JE2) FOR_PAIRS(X, JL2) FOR_PAIRS(X, JG2) FOR_PAIRS(X, ADD2) FOR_PAIRS(X, SUB2) \
    FOR_PAIRS(X, AND2) FOR_PAIRS(X, LOADW2) FOR_PAIRS(X, LOADB2) FOR_KINDS(X, JZ1) FOR_KINDS(X, RET1) \
    FOR_KINDS(X, TO_LOCAL) FOR_KINDS(X, TO_GLOBAL) X(INC_L) X(INC_G) X(DEC_L) X(DEC_G)

#define LISTED(name) name,
enum operation { OPERATIONS(LISTED) SPECIAL(LISTED) HANDLERS };
_Static_assert(HANDLERS <= 256, "a handler's number is one byte");

enum { S = 1, B = 2, T = 4 }; /* stores, branches, is followed by text */

typedef struct {
    uint8_t operation, least, follows; /* least: operands without which Frotz would use those of an instruction before */
} form;

static const form two_operands[32] = {
    [1] = {JE, 1, B}, [2] = {JL, 2, B}, [3] = {JG, 2, B}, [4] = {DEC_CHK, 2, B}, [5] = {INC_CHK, 2, B},
    [6] = {JIN, 2, B}, [7] = {TEST_BITS, 2, B}, [8] = {OR_, 2, S}, [9] = {AND_, 2, S}, [10] = {TEST_ATTR, 2, B},
    [11] = {SET_ATTR, 2, 0}, [12] = {CLEAR_ATTR, 2, 0}, [13] = {STORE_, 2, 0}, [14] = {INSERT_OBJ, 2, 0},
    [15] = {LOADW, 2, S}, [16] = {LOADB, 2, S}, [17] = {GET_PROP, 2, S}, [18] = {GET_PROP_ADDR, 2, S},
    [19] = {GET_NEXT_PROP, 2, S}, [20] = {ADD_, 2, S}, [21] = {SUB_, 2, S}, [22] = {MUL_, 2, S}, [23] = {DIV_, 2, S},
    [24] = {MOD_, 2, S}, [25] = {CALL, 1, S}, [26] = {CALL, 1, 0}, [27] = {FLUSH, 0, 0}, [28] = {THROW, 2, 0},
};

static const form one_operand[16] = {
    {JZ, 1, B}, {GET_SIBLING, 1, S | B}, {GET_CHILD, 1, S | B}, {GET_PARENT, 1, S}, {GET_PROP_LEN, 1, S}, {INC, 1, 0},
    {DEC, 1, 0}, {PRINT_ADDR, 1, 0}, {CALL, 1, S}, {REMOVE_OBJ, 1, 0}, {PRINT_OBJ, 1, 0}, {RET, 1, 0}, {JUMP, 1, 0},
    {PRINT_PADDR, 1, 0}, {LOAD, 1, S}, {CALL, 1, 0}, /* the last is NOT up to version 4 */
};

static const form no_operands[16] = {
    {RTRUE, 0, 0}, {RFALSE, 0, 0}, {PRINT, 0, T}, {PRINT_RET, 0, T}, {NOTHING, 0, 0}, {UNKNOWN, 0, 0}, {UNKNOWN, 0, 0},
    {UNKNOWN, 0, 0}, {RET_POPPED, 0, 0}, {CATCH, 0, S}, {UNKNOWN, 0, 0}, {NEW_LINE, 0, 0}, {SHOW_STATUS, 0, 0},
    {UNKNOWN, 0, 0}, {UNKNOWN, 0, 0}, {PIRACY, 0, B}, /* CATCH is POP up to version 4 */
};

static const form many_operands[32] = {
    [0] = {CALL, 1, S}, [1] = {STOREW, 3, 0}, [2] = {STOREB, 3, 0}, [3] = {PUT_PROP, 3, 0}, [4] = {READ, 0, 0},
    [5] = {PRINT_CHAR, 1, 0}, [6] = {PRINT_NUM, 1, 0}, [7] = {RANDOM_, 1, S}, [8] = {PUSH, 1, 0}, [9] = {PULL, 1, 0},
    [10] = {FLUSH, 0, 0}, [11] = {FLUSH, 0, 0}, [12] = {CALL, 1, S}, [13] = {FLUSH, 0, 0}, [14] = {FLUSH, 0, 0},
    [15] = {FLUSH, 0, 0}, [17] = {NOTHING, 0, 0}, [18] = {BUFFER_MODE, 0, 0}, [19] = {OUTPUT_STREAM, 1, 0},
    [21] = {NOTHING, 0, 0}, [22] = {READ, 0, S}, [23] = {SCAN_TABLE, 3, S | B}, [24] = {NOT, 1, S}, [25] = {CALL, 1, 0},
    [26] = {CALL, 1, 0}, [27] = {TOKENISE, 2, 0}, [29] = {COPY_TABLE, 3, 0}, [30] = {PRINT_TABLE, 2, 0},
    [31] = {CHECK_ARG_COUNT, 1, B},
};

static const form extended[32] = {
    [2] = {LOG_SHIFT, 2, S}, [3] = {ART_SHIFT, 2, S}, [9] = {SAVE_UNDO, 0, S}, [11] = {PRINT_UNICODE, 1, 0},
    [4] = {SET_FONT, 1, S}, [12] = {CHECK_UNICODE, 1, S},
};

typedef struct {
    const engine *e;
    uint32_t at;
    int beyond; /* the instruction does not end inside the story */
} reader;

static uint32_t next_byte(reader *r) {
    if (r->at < r->e->size) return r->e->memory[r->at++];
    r->beyond = 1;
    return 0;
}

static form form_of(const engine *e, uint32_t opcode, reader *r) {
    if (opcode == 0xBE && e->version >= 5) {
        uint32_t number = next_byte(r);
        return number < 32 ? extended[number] : (form){UNKNOWN, 0, 0};
    }
    if (opcode < 0x80 || (opcode >= 0xC0 && opcode < 0xE0)) return two_operands[opcode & 31];
    if (opcode < 0xB0) return opcode % 16 == 15 && e->version <= 4 ? (form){NOT, 1, S} : one_operand[opcode & 15];
    if (opcode < 0xC0) return opcode == 0xB9 && e->version <= 4 ? (form){POP, 0, 0} : no_operands[opcode & 15];
    if (opcode == 228 && e->version >= 5) return (form){READ, 0, S};
    return many_operands[opcode & 31];
}

/* The types of the operands that one byte describes: added to those that are there. */
static int read_types(uint32_t byte, uint8_t *type, int count) {
    for (int shift = 6; shift >= 0 && (byte >> shift & 3) != 3; shift -= 2) type[count++] = byte >> shift & 3;
    return count;
}

static void read_operand(reader *r, instruction *in, int i, int type) {
    if (type & 2) {
        uint32_t variable = next_byte(r);
        in->kind[i] = variable == 0 ? STACK : variable < 16 ? LOCAL : GLOBAL;
        in->operand[i] = (uint16_t)(variable < 16 ? variable : r->e->globals + 2 * (variable - 16));
    } else {
        in->kind[i] = CONSTANT;
        in->operand[i] = (uint16_t)next_byte(r);
        if (type == 0) in->operand[i] = (uint16_t)(in->operand[i] << 8 | next_byte(r));
    }
}

static void read_branch(reader *r, instruction *in) {
    uint32_t first = next_byte(r);
    in->branch_when = first >> 7;
    int32_t offset = first & 63;
    if (!(first & 64)) {
        offset = offset << 8 | (int32_t)next_byte(r);
        if (offset & 0x2000) offset -= 0x4000;
    }
    in->branch = offset == 0 ? BRANCH_FALSE : offset == 1 ? BRANCH_TRUE : BRANCH_JUMP;
    in->target = r->at + (uint32_t)offset - 2;
}

/* The special handler for an instruction's operands, or its operation if there is none. Handlers are in the order of
 * the kinds. */
static uint8_t handler_of(const instruction *in) {
    uint32_t first = in->kind[0], second = in->kind[1], variable = in->operand[0];
    /* Whether the first operand names a local or a global: 0 is the stack. */
    int local = first == CONSTANT && variable > 0 && variable < 16, global = first == CONSTANT && variable >= 16;
    if (in->count == 1) {
        switch (in->operation) {
        case JZ: return (uint8_t)(JZ1_C + first);
        case RET: return (uint8_t)(RET1_C + first);
        case INC: return local ? INC_L : global ? INC_G : INC;
        case DEC: return local ? DEC_L : global ? DEC_G : DEC;
        }
    } else if (in->count == 2) {
        uint32_t pair = 4 * first + second;
        switch (in->operation) {
        case JE: return (uint8_t)(JE2_C_C + pair);
        case JL: return (uint8_t)(JL2_C_C + pair);
        case JG: return (uint8_t)(JG2_C_C + pair);
        case ADD_: return (uint8_t)(ADD2_C_C + pair);
        case SUB_: return (uint8_t)(SUB2_C_C + pair);
        case AND_: return (uint8_t)(AND2_C_C + pair);
        case LOADW: return (uint8_t)(LOADW2_C_C + pair);
        case LOADB: return (uint8_t)(LOADB2_C_C + pair);
        case STORE_: return local ? (uint8_t)(TO_LOCAL_C + second) : global ? (uint8_t)(TO_GLOBAL_C + second) : STORE_;
        }
    }
    return in->operation;
}

/* The instruction at an address, or NULL. Code in RAM, which could change, is not judged. */
instruction *decode(engine *e, uint32_t address) {
    if (address < e->ram_size || address >= e->size) return NULL;
    if (e->decoded[address]) return e->decoded[address];
    if (!e->pool_left) {
        const size_t line = 64, size = 1024 * sizeof *e->pool; /* each is in one line of the processor's cache */
        void *pool = aligned_alloc(line, size);
        e->pool = keep(e, pool ? memset(pool, 0, size) : NULL);
        e->pool_left = 1024;
    }
    instruction *in = e->pool++;
    e->pool_left--;
    reader r = {e, address, 0};
    uint32_t opcode = next_byte(&r);
    form f = form_of(e, opcode, &r);
    uint8_t type[8];
    int count = 0;
    if (opcode < 0x80) {
        type[count++] = opcode & 0x40 ? 2 : 1;
        type[count++] = opcode & 0x20 ? 2 : 1;
    } else if (opcode < 0xB0) {
        type[count++] = opcode >> 4 & 3;
    } else if (opcode >= 0xC0 || (opcode == 0xBE && e->version >= 5)) {
        uint32_t types = next_byte(&r), more = opcode == 0xEC || opcode == 0xFA ? next_byte(&r) : 255;
        count = read_types(more, type, read_types(types, type, 0));
    }
    for (int i = 0; i < count; i++) read_operand(&r, in, i, type[i]);
    in->address = address;
    in->opcode = (uint8_t)opcode;
    in->count = (uint8_t)count;
    if (f.follows & T) {
        in->text = r.at;
        r.at = text_end(e, r.at);
        if (!r.at) r.beyond = 1;
    }
    if (f.follows & S) {
        in->has_store = 1;
        in->store = (uint8_t)next_byte(&r);
    }
    if (f.follows & B) read_branch(&r, in);
    in->next = r.at;
    if (f.operation == JUMP) in->target = r.at + (uint32_t)(int16_t)in->operand[0] - 2;
    in->operation = r.beyond || count < f.least ? UNKNOWN : f.operation;
    in->handler = handler_of(in);
    return e->decoded[address] = in;
}

int follows(const instruction *in, uint32_t next[2]) {
    switch (in->operation) {
    case UNKNOWN: case RET: case RET_POPPED: case RTRUE: case RFALSE: case PRINT_RET: case THROW: case READ: return 0;
    case JUMP: next[0] = in->target; return in->kind[0] == CONSTANT;
    }
    next[0] = in->next;
    next[1] = in->target;
    return in->branch == BRANCH_JUMP ? 2 : 1;
}

void wait_at(instruction *in) { in->handler = AT_MERGE_POINT; }

/* --- objects ------------------------------------------------------------------------------------------------ */

enum { PARENT, SIBLING, CHILD };

uint32_t object_address(const engine *e, uint32_t object) {
    return (uint16_t)(e->version <= 3 ? e->objects + 62 + (object - 1) * 9 : e->objects + 126 + (object - 1) * 14);
}

static int legal_object(const engine *e, uint32_t object) { return object <= (e->version <= 3 ? 255u : 2000u); }

static uint32_t link_address(const engine *e, uint32_t object, int link) {
    uint32_t address = object_address(e, object);
    return (uint16_t)(e->version <= 3 ? address + 4 + (uint32_t)link : address + 6 + 2 * (uint32_t)link);
}

static value get_link(engine *e, uint32_t object, int link) {
    uint32_t address = link_address(e, object, link);
    return e->version <= 3 ? load_byte(e, address) : load_word(e, address);
}

static int can_write(const engine *e, uint32_t address, uint32_t bytes) {
    return address >= 64 && address + bytes <= e->ram_size;
}

/* The caller has checked that the object can be written. */
static void set_link(engine *e, uint32_t object, int link, uint32_t to) {
    uint32_t address = link_address(e, object, link);
    if (e->version <= 3) store_byte(e, address, to & 255);
    else store_word(e, address, to);
}

static int object_writable(const engine *e, uint32_t object) {
    return object && legal_object(e, object) && can_write(e, object_address(e, object), e->version <= 3 ? 9 : 14);
}

/* Reads everything that removing an object from its parent needs. Returns 1, with the object's parent in *parent and
 * the child before it in *before (0 if it is the first); 0 if a link differs between lanes, which is then in *differs;
 * -1 if it cannot be done. */
static int find_place(engine *e, uint32_t object, uint32_t *parent, uint32_t *before, value *differs) {
    *before = 0;
    if (!object_writable(e, object)) return -1;
    value in = get_link(e, object, PARENT), next = get_link(e, object, SIBLING);
    if (is_vector(*differs = in) || is_vector(*differs = next)) return 0;
    *parent = in;
    if (!in) return 1;
    if (!object_writable(e, in)) return -1;
    value child = get_link(e, in, CHILD);
    for (int guard = 0; guard < 3000; guard++) {
        if (is_vector(*differs = child)) return 0;
        if (child == object) return 1;
        if (!object_writable(e, child)) return -1;
        *before = child;
        child = get_link(e, child, SIBLING);
    }
    return -1;
}

static void take_out(engine *e, uint32_t object, uint32_t parent, uint32_t before) {
    if (!parent) return;
    uint32_t next = get_link(e, object, SIBLING);
    set_link(e, object, PARENT, 0);
    set_link(e, object, SIBLING, 0);
    if (before) set_link(e, before, SIBLING, next);
    else set_link(e, parent, CHILD, next);
}

/* The following give the address of a property's size byte. They give 0 if the list of properties is broken, or if it
 * differs between lanes: then *differs is what does. */

static uint32_t first_property(engine *e, uint32_t object, value *differs) {
    value name = load_word(e, (uint16_t)(object_address(e, object) + (e->version <= 3 ? 7 : 12)));
    value length = is_vector(*differs = name) ? 0 : load_byte(e, name);
    if (is_vector(name) || is_vector(*differs = length)) return 0;
    *differs = 0;
    return (uint16_t)(name + 1 + 2 * length);
}

static uint32_t next_property(engine *e, uint32_t address, value *differs) {
    value size = load_byte(e, address), second = 0;
    if (is_vector(*differs = size)) return 0;
    if (e->version <= 3) return (uint16_t)(address + 2 + (size >> 5));
    if (!(size & 0x80)) return (uint16_t)(address + 2 + (size >> 6));
    second = load_byte(e, (uint16_t)(address + 1));
    if (is_vector(*differs = second)) return 0;
    return (uint16_t)(address + 2 + (second & 63 ? second & 63 : 64));
}

/* The property with the highest number that is not above `property`; its size byte in *size. */
static uint32_t seek_property(engine *e, uint32_t object, uint32_t property, value *size, value *differs) {
    uint32_t address = first_property(e, object, differs), mask = e->version <= 3 ? 31 : 63;
    for (int guard = 0; address && guard < 256; guard++) {
        if (is_vector(*differs = *size = load_byte(e, address))) return 0;
        if ((*size & mask) <= property) return address;
        address = next_property(e, address, differs);
    }
    return 0;
}

static uint32_t property_length(const engine *e, uint32_t size) {
    if (e->version <= 3) return (size >> 5) + 1;
    if (!(size & 0x80)) return (size >> 6) + 1;
    return size & 63 ? size & 63 : 64;
}

/* --- the interpreter ---------------------------------------------------------------------------------------- */

/* Values in local variables are always simplified: a vector really differs between lanes of the current set. */
#define SIMPLE(v) (UNLIKELY(is_vector(v)) ? simplify(e, v) : (v))

#define GIVE_UP goto cannot
/* Splits the set by a value if the lanes do not agree on it. */
#define AGREE(v)                 \
    do {                         \
        if (UNLIKELY(is_vector(v))) { \
            keys_from(e, v);     \
            goto divide;         \
        }                        \
    } while (0)
/* The same for the result of a predicate on lanes: -1 stands for "it differs, see e->keys". */
#define AGREED(answer)               \
    do {                             \
        if ((yes = (answer)) < 0) goto divide; \
    } while (0)

#define PUSH_VALUE(v)                             \
    do {                                          \
        if (UNLIKELY(sp <= e->stack)) GIVE_UP;    \
        *--sp = (v);                              \
    } while (0)
/* A routine must not pop its own locals or the frames of others. */
#define CHECK_POP                              \
    do {                                       \
        if (UNLIKELY(sp >= bottom)) GIVE_UP;   \
    } while (0)

/* A local by number. Beyond a routine's own locals is old data of other routines, which a correct story does not read,
 * and which differs between a set and a single command. */
#define LOCAL_PLACE(number)                        \
    (*({                                           \
        value *place_ = fp - (int)(number);        \
        if (UNLIKELY(place_ < bottom)) GIVE_UP;    \
        place_;                                    \
    }))
/* The local that an operand is, or names. */
#define LOCAL_OPERAND(i) LOCAL_PLACE(in->operand[i])

#define OPERAND(i, to)                                           \
    do {                                                         \
        switch (in->kind[i]) {                                   \
        case CONSTANT: to = in->operand[i]; break;               \
        case LOCAL: to = LOCAL_OPERAND(i); to = SIMPLE(to); break; \
        case GLOBAL: to = load_word(e, in->operand[i]); break;   \
        default:                                                 \
            CHECK_POP;                                           \
            to = SIMPLE(*sp);                                    \
            sp++;                                                \
        }                                                        \
    } while (0)

/* Variables by number, as stored to by an instruction: 0 is a push. */
#define STORE_TO(variable, v)                                                    \
    do {                                                                         \
        uint32_t to_ = (variable);                                               \
        value what_ = (v);                                                       \
        if (to_ == 0) PUSH_VALUE(what_);                                         \
        else if (to_ < 16) LOCAL_PLACE(to_) = what_;                             \
        else {                                                                   \
            uint32_t address_ = (uint16_t)(e->globals + 2 * (to_ - 16));         \
            if (UNLIKELY(!can_write(e, address_, 2))) GIVE_UP;                   \
            store_word(e, address_, what_);                                      \
        }                                                                        \
    } while (0)
#define RESULT(v) STORE_TO(in->store, v)

/* Variables by number, as named by an operand: 0 is the top of the stack, in place. */
#define READ_NAMED(variable, to)                                                       \
    do {                                                                               \
        if ((variable) == 0) {                                                         \
            CHECK_POP;                                                                 \
            to = SIMPLE(*sp);                                                          \
        } else if ((variable) < 16) {                                                  \
            to = LOCAL_PLACE(variable);                                                \
            to = SIMPLE(to);                                                           \
        }                                                                              \
        else to = load_word(e, (uint16_t)(e->globals + 2 * ((variable) - 16)));        \
    } while (0)
#define WRITE_NAMED(variable, v)                                  \
    do {                                                          \
        if ((variable) == 0) {                                    \
            CHECK_POP;                                            \
            *sp = (v);                                            \
        } else STORE_TO(variable, v);                             \
    } while (0)

/* Every handler jumps to the next one itself: so the processor can predict which operation follows which. */
#define EXECUTE                                            \
    do {                                                   \
        sp_before = sp;                                    \
        if (UNLIKELY(!in)) GIVE_UP;                        \
        if (UNLIKELY(++executed > limit)) GIVE_UP;           \
        goto *doing[in->handler];                          \
    } while (0)
/* Writes the registers that are kept in local variables back to the engine. */
#define LEAVE_REGISTERS                             \
    do {                                            \
        e->now.at = in;                             \
        e->now.sp = (int32_t)(sp - e->stack);       \
        e->now.fp = (int32_t)(fp - e->stack);       \
    } while (0)
#define COUNT_EXECUTED                                            \
    do {                                                          \
        e->count_instructions += executed - e->now.instructions;  \
        e->now.instructions = executed;                           \
    } while (0)
#define DO(name) do_##name:
#define DOING(name) &&do_##name,

#define NEXT                                                       \
    do {                                                           \
        if (UNLIKELY(!in->following)) in->following = decode(e, in->next); \
        in = in->following;                                        \
        EXECUTE;                                              \
    } while (0)
#define BRANCH(condition)                                                         \
    do {                                                                          \
        if (((condition) != 0) != in->branch_when) NEXT;                          \
        if (in->branch != BRANCH_JUMP) {                                          \
            a = in->branch == BRANCH_TRUE;                                        \
            goto give_back;                                                       \
        }                                                                         \
        if (UNLIKELY(!in->jump)) in->jump = decode(e, in->target);                \
        in = in->jump;                                                            \
        EXECUTE;                                                                  \
    } while (0)

#define CALCULATE_WITH(what)                                                                                     \
    do {                                                                                                         \
        OPERAND(0, a);                                                                                           \
        OPERAND(1, b);                                                                                           \
        RESULT(LIKELY(!is_vector(a | b)) ? calculate(what, (uint16_t)a, (uint16_t)b) : lanes_calculate(e, what, a, b)); \
        NEXT;                                                                                                    \
    } while (0)
#define COMPARE_WITH(what, scalar)                                             \
    do {                                                                       \
        OPERAND(0, a);                                                         \
        OPERAND(1, b);                                                         \
        if (LIKELY(!is_vector(a | b))) BRANCH(scalar);                         \
        AGREED(lanes_compare(e, what, a, b));                                  \
        BRANCH(yes);                                                           \
    } while (0)
/* Printing functions return whether they could print. Long operations count as many instructions, so that a damaged
 * story reaches its limit in time. */
#define CHARGE(work) executed += (work) / 16
#define PRINTED(answer)              \
    do {                             \
        yes = (answer);              \
        if (yes < 0) GIVE_UP;        \
        if (yes == 0) goto divide;   \
        CHARGE(e->printed);          \
        e->printed = 0;              \
    } while (0)

/* The handlers for each kind of operands. They do not simplify vectors: for those the general operation starts
 * again. */
#define QUICK_OPERAND(kind_, i, to, general)                                       \
    do {                                                                           \
        if (kind_ == CONSTANT) {                                                   \
            to = in->operand[i];                                                   \
        } else if (kind_ == LOCAL) {                                               \
            to = LOCAL_OPERAND(i);                                                 \
        } else if (kind_ == GLOBAL) {                                              \
            uint32_t at_ = in->operand[i];                                         \
            to = UNLIKELY(e->shadows[at_] | e->shadows[at_ + 1]) ? VECTOR : raw_word(e, at_); \
        } else {                                                                   \
            CHECK_POP;                                                             \
            to = *sp++;                                                            \
        }                                                                          \
        if (kind_ != CONSTANT && UNLIKELY(is_vector(to))) {                        \
            sp = sp_before;                                                        \
            goto do_##general;                                                     \
        }                                                                          \
    } while (0)
#define QUICK_PAIR(label, first, second, general) \
    DO(label)                                     \
        QUICK_OPERAND(first, 0, a, general);      \
        QUICK_OPERAND(second, 1, b, general);
#define QUICK_BRANCH(label, first, second, general, condition) \
    QUICK_PAIR(label, first, second, general) BRANCH(condition);
#define QUICK_RESULT(label, first, second, general, result) \
    QUICK_PAIR(label, first, second, general) RESULT(result); NEXT;
#define QUICK_BRANCH_IF_ZERO(label, kind_, general, condition) \
    DO(label) QUICK_OPERAND(kind_, 0, a, general); BRANCH(condition);
#define QUICK_RETURN(label, kind_, general, unused) DO(label) QUICK_OPERAND(kind_, 0, a, general); goto give_back;
#define QUICK_STORE(label, kind_, general, store) DO(label) QUICK_OPERAND(kind_, 1, a, general); store; NEXT;
#define EACH_KIND(handle, op, general, what) \
    handle(op##_C, CONSTANT, general, what) handle(op##_S, STACK, general, what) handle(op##_L, LOCAL, general, what) \
    handle(op##_G, GLOBAL, general, what)
#define EACH_SECOND(handle, op, first, general, what) \
    handle(op##_C, first, CONSTANT, general, what) handle(op##_S, first, STACK, general, what) \
    handle(op##_L, first, LOCAL, general, what) handle(op##_G, first, GLOBAL, general, what)
#define EACH_PAIR(handle, op, general, what) \
    EACH_SECOND(handle, op##_C, CONSTANT, general, what) EACH_SECOND(handle, op##_S, STACK, general, what) \
    EACH_SECOND(handle, op##_L, LOCAL, general, what) EACH_SECOND(handle, op##_G, GLOBAL, general, what)

/* Gets parent, sibling or child of an object, for all lanes. */
static int relative(engine *e, value object, int link, value *result) {
    if (!lanes_objects_legal(e, object)) return 0;
    *result = is_vector(object) ? lanes_link(e, object, link) : object ? get_link(e, object, link) : 0;
    return 1;
}

/* Sets or clears an attribute of one object or of one in each lane. As the printing functions: 1, 0 or -1. */
static int change_attribute(engine *e, value object, uint32_t attribute, int set) {
    uint32_t offset = attribute / 8, bit = 0x80u >> (attribute & 7);
    if (attribute > (e->version <= 3 ? 31u : 47u)) return -1;
    if (!is_vector(object)) {
        if (object && !object_writable(e, object)) return -1;
        event(e, set ? SET : CLEARED, object, attribute);
        if (!object) return 1;
        uint32_t address = object_address(e, object) + offset;
        value old = load_byte(e, address);
        uint32_t operand = set ? bit : 255 & ~bit;
        enum arithmetic what = set ? OR : AND;
        value changed = is_vector(old) ? lanes_calculate(e, what, old, operand) : calculate(what, (uint16_t)old, (uint16_t)operand);
        store_byte(e, address, changed);
        return 1;
    }
    if (!lanes_objects_legal(e, object)) {
        keys_from(e, object);
        return 0;
    }
    uint16_t *address = arena_take(e, &e->lane_arena, e->set.count * sizeof *address);
    uint8_t *byte = arena_take(e, &e->lane_arena, e->set.count);
    int some_zero = 0;
    for (uint32_t k = 0; k < e->set.count; k++) {
        uint32_t c = e->set.member[k];
        uint16_t number = lane_value(e, object, c);
        some_zero |= !number;
        address[k] = (uint16_t)(object_address(e, number) + offset);
        uint16_t old = lane_byte(e, address[k], c);
        byte[k] = (uint8_t)(set ? old | bit : old & ~bit);
    }
    if (some_zero || !lanes_scatter(e, address, byte)) {
        keys_from(e, object);
        return 0;
    }
    event(e, set ? SET : CLEARED, object, attribute);
    return 1;
}

/* Writes to an address that differs between lanes. Returns 1, or 0 if the lanes must be split. */
static int store_scattered(engine *e, value base, value index, value what, int word) {
    uint32_t count = e->set.count;
    uint16_t *address = arena_take(e, &e->lane_arena, count * sizeof *address);
    uint8_t *byte = arena_take(e, &e->lane_arena, count);
    for (int half = word; half >= 0; half--) {
        for (uint32_t k = 0; k < count; k++) {
            uint32_t c = e->set.member[k];
            uint16_t at = (uint16_t)(lane_value(e, base, c) + (lane_value(e, index, c) << word));
            address[k] = (uint16_t)(at + (word && !half));
            byte[k] = (uint8_t)(lane_value(e, what, c) >> 8 * half);
            /* Checked before anything is written. */
            if (at < 64 || at + (uint32_t)word >= e->ram_size) return 0;
        }
        /* There are as many addresses of second bytes as of first bytes. */
        if (!lanes_scatter(e, address, byte)) return 0;
    }
    return 1;
}

/* The header may only be written where Frotz does nothing special. */
static int can_store(const engine *e, uint32_t address, uint32_t bytes, value what) {
    if (address + bytes > e->ram_size) return 0;
    if (address >= 64) return 1;
    int flags = bytes == 2 ? address == 0x10 : address == 0x11;
    return flags && !is_vector(what) && !(what & 1) && !(e->memory[0x11] & 1);
}

static void scan_table(engine *e, value wanted, uint32_t address, uint32_t count, uint32_t type, value *result) {
    uint32_t step = type & 127, word = type & 128, shadowed = 0, at = address;
    for (uint32_t i = 0; i < count && !shadowed; i++, at = (uint16_t)(at + step))
        shadowed = e->shadows[at] || (word && e->shadows[at + 1]);
    at = address;
    if (!is_vector(wanted) && !shadowed) {
        for (uint32_t i = 0; i < count; i++, at = (uint16_t)(at + step))
            if ((word ? raw_word(e, at) : e->memory[at]) == wanted) {
                *result = at;
                return;
            }
        *result = 0;
        return;
    }
    uint16_t *to;
    value made = new_vector(e, 0, &to);
    if (!shadowed) { /* the table is read once for all lanes */
        const uint16_t *lane = e->vectors[vector_index(wanted)].lane;
        uint32_t generation = next_memo_generation(e);
        for (uint32_t i = 0; i < count; i++, at = (uint16_t)(at + step)) {
            memo *first = &e->memos[word ? raw_word(e, at) : e->memory[at]];
            if (first->generation != generation) *first = (memo){generation, (uint16_t)at};
        }
        EACH_LANE(e->set, c, to[c] = e->memos[lane[c]].generation == generation ? e->memos[lane[c]].result : 0;);
        *result = simplify(e, made);
        return;
    }
    EACH_LANE(e->set, c, {
        uint16_t number = lane_value(e, wanted, c);
        uint32_t where = address, found = 0;
        for (uint32_t i = 0; i < count && !found; i++, where = (uint16_t)(where + step))
            if ((word ? lane_word(e, (uint16_t)where, c) : lane_byte(e, (uint16_t)where, c)) == number) {
                found = 1;
                break;
            }
        to[c] = found ? (uint16_t)where : 0;
    });
    *result = simplify(e, made);
}

static int copy_table(engine *e, uint32_t from, uint32_t to, uint32_t size) {
    int32_t count = (int16_t)size < 0 ? -(int16_t)size : (int32_t)size;
    if (to == 0) {
        for (uint32_t i = 0; i < size; i++) {
            uint32_t address = (uint16_t)(from + i);
            if (!can_write(e, address, 1)) return 0;
            store_byte(e, address, 0);
        }
        return 1;
    }
    int forwards = (int16_t)size < 0 || from > to;
    for (int32_t i = 0; i < count; i++) {
        uint32_t offset = (uint32_t)(forwards ? i : count - 1 - i), address = (uint16_t)(to + offset);
        if (!can_write(e, address, 1)) return 0;
        uint32_t source = (uint16_t)(from + offset);
        /* Shadows are copied as they are, so that words stay words. */
        uint8_t byte = e->memory[source];
        shadow over = e->shadows[source];
        journal_write(e, address, 1);
        e->memory[address] = byte;
        e->shadows[address] = over;
    }
    return 1;
}

/* The end of the part of the stack that the current routine may use: its locals begin there. */
static value *stack_bottom(engine *e, value *fp) {
    return fp >= e->stack + STACK_WORDS ? e->stack + STACK_WORDS : fp - (fp[0] >> 8 & 15);
}

void machine_run(engine *e) {
    value *sp = e->stack + e->now.sp, *fp = e->stack + e->now.fp, *sp_before = sp, *bottom = stack_bottom(e, fp);
    instruction *in = e->now.at;
    value a = 0, b = 0, x, many[8] = {0};
    uint32_t address;
    uint64_t executed = e->now.instructions, limit = e->limit;
    int yes, count;
    static const void *const doing[] = {OPERATIONS(DOING) SPECIAL(DOING)};

    EXECUTE;
    DO(UNKNOWN) GIVE_UP;
    DO(NOTHING)
        for (int i = 0; i < in->count; i++) OPERAND(i, a);
        NEXT;
    DO(FLUSH)
        for (int i = 0; i < in->count; i++) OPERAND(i, a);
        print_flush(e);
        NEXT;
    DO(SET_FONT) /* dumb Frotz has the usual font alone: 1 is the font before, 0 that there is no such font */
        OPERAND(0, a);
        AGREE(a);
        print_flush(e);
        RESULT(a <= 1);
        NEXT;
    DO(BUFFER_MODE) /* without one, Frotz breaks long lines */
        a = 1;
        for (int i = 0; i < in->count; i++) OPERAND(i, a);
        if (answering(e) && a != 1) GIVE_UP;
        print_flush(e);
        NEXT;
    DO(SHOW_STATUS) /* Frotz writes the line among what is printed */
        if (answering(e)) GIVE_UP;
        NEXT;

    /* comparing */
    DO(JE)
        if (LIKELY(in->count == 2)) {
            OPERAND(0, a);
            OPERAND(1, b);
            if (LIKELY(!is_vector(a | b))) BRANCH(a == b);
            many[0] = is_vector(a) ? a : b;
            many[1] = is_vector(a) ? b : a;
            AGREED(lanes_equal(e, many, 2));
            BRANCH(yes);
        }
        b = 0;
        for (int i = 0; i < in->count; i++) {
            OPERAND(i, many[i]);
            b |= many[i];
        }
        if (is_vector(b)) {
            AGREED(lanes_equal(e, many, in->count));
        } else {
            yes = 0;
            for (int i = 1; i < in->count && i < 4; i++) yes |= many[0] == many[i];
        }
        BRANCH(yes);
    DO(JZ)
        OPERAND(0, many[0]);
        if (LIKELY(!is_vector(many[0]))) BRANCH(many[0] == 0);
        many[1] = 0;
        AGREED(lanes_equal(e, many, 2));
        BRANCH(yes);
    DO(JL) COMPARE_WITH(LESS, (int16_t)a < (int16_t)b);
    DO(JG) COMPARE_WITH(GREATER, (int16_t)a > (int16_t)b);
    DO(TEST_BITS) COMPARE_WITH(ALL_BITS, (a & b) == b);
    DO(INC_CHK)
    DO(DEC_CHK)
        OPERAND(0, a);
        AGREE(a);
        OPERAND(1, b);
        READ_NAMED(a, x);
        {
            int down = in->operation == DEC_CHK;
            enum arithmetic what = down ? SUBTRACT : ADD;
            if (LIKELY(!is_vector(x | b))) {
                x = calculate(what, (uint16_t)x, 1);
                yes = down ? (int16_t)x < (int16_t)b : (int16_t)x > (int16_t)b;
            } else {
                x = is_vector(x) ? lanes_calculate(e, what, x, 1) : calculate(what, (uint16_t)x, 1);
                if (is_vector(x | b)) AGREED(lanes_compare(e, down ? LESS : GREATER, x, b));
                else yes = down ? (int16_t)x < (int16_t)b : (int16_t)x > (int16_t)b;
            }
        }
        WRITE_NAMED(a, x);
        BRANCH(yes);

    /* calculating */
    DO(ADD_) CALCULATE_WITH(ADD);
    DO(SUB_) CALCULATE_WITH(SUBTRACT);
    DO(MUL_) CALCULATE_WITH(MULTIPLY);
    DO(AND_) CALCULATE_WITH(AND);
    DO(OR_) CALCULATE_WITH(OR);
    DO(DIV_)
    DO(MOD_)
        OPERAND(0, a);
        OPERAND(1, b);
        AGREE(b); /* some lane might divide by 0 */
        if (b == 0) GIVE_UP;
        x = in->operation == DIV_ ? DIVIDE : REMAINDER;
        RESULT(is_vector(a) ? lanes_calculate(e, x, a, b) : calculate(x, (uint16_t)a, (uint16_t)b));
        NEXT;
    DO(LOG_SHIFT)
    DO(ART_SHIFT)
        OPERAND(0, a);
        OPERAND(1, b);
        AGREE(b);
        if ((int16_t)b > 15 || (int16_t)b < -15) GIVE_UP; /* undefined in C */
        x = in->operation == LOG_SHIFT ? LOGICAL_SHIFT : ARITHMETIC_SHIFT;
        RESULT(is_vector(a) ? lanes_calculate(e, x, a, b) : calculate(x, (uint16_t)a, (uint16_t)b));
        NEXT;
    DO(NOT)
        OPERAND(0, a);
        RESULT(is_vector(a) ? lanes_calculate(e, SUBTRACT, 0xFFFF, a) : (uint16_t)~a);
        NEXT;
    DO(RANDOM_)
        OPERAND(0, a);
        AGREE(a);
        if ((int16_t)a <= 0) {
            int seed = -(int16_t)a;
            if (seed == 0) GIVE_UP; /* the time of day */
            if (seed < 1000) {
                e->now.counter = 0;
                e->now.interval = seed;
            } else {
                set_random(e, seed);
                e->now.interval = 0;
            }
            x = 0;
        } else if (e->now.interval) {
            x = (uint16_t)((uint16_t)e->now.counter++ % a + 1);
            if (e->now.counter == e->now.interval) e->now.counter = 0;
        } else {
            x = draw(e, (uint16_t)a);
        }
        RESULT(x);
        NEXT;

    /* variables and tables */
    DO(INC)
    DO(DEC)
        OPERAND(0, a);
        AGREE(a);
        READ_NAMED(a, x);
        {
            enum arithmetic what = in->operation == INC ? ADD : SUBTRACT;
            x = is_vector(x) ? lanes_calculate(e, what, x, 1) : calculate(what, (uint16_t)x, 1);
        }
        WRITE_NAMED(a, x);
        NEXT;
    DO(LOAD)
        OPERAND(0, a);
        AGREE(a);
        READ_NAMED(a, x);
        RESULT(x);
        NEXT;
    DO(STORE_)
        OPERAND(0, a);
        AGREE(a);
        OPERAND(1, b);
        WRITE_NAMED(a, b);
        NEXT;
    DO(PUSH)
        OPERAND(0, a);
        PUSH_VALUE(a);
        NEXT;
    DO(PULL)
        OPERAND(0, a);
        AGREE(a);
        CHECK_POP;
        x = SIMPLE(*sp);
        sp++;
        WRITE_NAMED(a, x);
        NEXT;
    DO(POP)
        CHECK_POP;
        sp++;
        NEXT;
    DO(LOADW)
        OPERAND(0, a);
        OPERAND(1, b);
        RESULT(LIKELY(!is_vector(a | b)) ? load_word(e, (uint16_t)(a + 2 * b)) : lanes_load(e, a, b, 1));
        NEXT;
    DO(LOADB)
        OPERAND(0, a);
        OPERAND(1, b);
        RESULT(LIKELY(!is_vector(a | b)) ? load_byte(e, (uint16_t)(a + b)) : lanes_load(e, a, b, 0));
        NEXT;
    DO(STOREW)
    DO(STOREB)
        OPERAND(0, a);
        OPERAND(1, b);
        OPERAND(2, x);
        {
            int word = in->operation == STOREW;
            if (is_vector(a | b)) {
                if (store_scattered(e, a, b, x, word)) NEXT;
                AGREE(a);
                AGREE(b);
            }
            address = (uint16_t)(a + (b << word));
            if (!can_store(e, address, word ? 2 : 1, x)) GIVE_UP;
            if (word) store_word(e, address, x);
            else store_byte(e, address, is_vector(x) ? x : x & 255);
        }
        NEXT;
    DO(SCAN_TABLE)
        many[3] = 0x82;
        for (int i = 0; i < in->count && i < 4; i++) OPERAND(i, many[i]);
        for (int i = 1; i < 4; i++) AGREE(many[i]);
        scan_table(e, many[0], many[1], many[2], many[3], &x);
        CHARGE(many[2]);
        goto store_and_branch;
    DO(COPY_TABLE)
        for (int i = 0; i < 3; i++) OPERAND(i, many[i]);
        for (int i = 0; i < 3; i++) AGREE(many[i]);
        if (!copy_table(e, many[0], many[1], many[2])) GIVE_UP;
        CHARGE(many[2]);
        NEXT;
    DO(TOKENISE)
        many[2] = many[3] = 0;
        for (int i = 0; i < in->count && i < 4; i++) OPERAND(i, many[i]);
        for (int i = 0; i < 4; i++) AGREE(many[i]);
        if ((many[2] && many[2] != e->dictionary) || many[3] || e->version < 5) GIVE_UP;
        PRINTED(tokenise_buffer(e, many[0], many[1]));
        NEXT;

    /* objects */
    DO(JIN)
        OPERAND(0, a);
        OPERAND(1, b);
        if (!lanes_objects_legal(e, a)) {
            AGREE(a);
            GIVE_UP;
        }
        if (!is_vector(a | b)) {
            x = a ? get_link(e, a, PARENT) : 0;
            if (!is_vector(x)) BRANCH(x == b);
        }
        AGREED(lanes_inside(e, a, b));
        BRANCH(yes);
    DO(TEST_ATTR)
        OPERAND(0, a);
        OPERAND(1, b);
        AGREE(b);
        if (b > (e->version <= 3 ? 31u : 47u)) GIVE_UP;
        if (LIKELY(!is_vector(a))) {
            if (a == 0) BRANCH(0);
            if (!legal_object(e, a)) GIVE_UP;
            address = (uint16_t)(object_address(e, a) + b / 8);
            if (LIKELY(!e->shadows[address])) BRANCH(e->memory[address] & 0x80 >> (b & 7));
        } else if (!lanes_objects_legal(e, a)) {
            AGREE(a);
        }
        AGREED(lanes_attribute(e, a, b));
        BRANCH(yes);
    DO(SET_ATTR)
    DO(CLEAR_ATTR)
        OPERAND(0, a);
        OPERAND(1, b);
        AGREE(b);
        PRINTED(change_attribute(e, a, b, in->operation == SET_ATTR));
        NEXT;
    DO(INSERT_OBJ)
    DO(REMOVE_OBJ)
        OPERAND(0, a);
        AGREE(a);
        b = 0;
        if (in->operation == INSERT_OBJ) {
            OPERAND(1, b);
            AGREE(b);
        }
        {
            uint32_t parent = 0, before = 0;
            int moves = a && (b || in->operation == REMOVE_OBJ);
            if (moves) {
                yes = find_place(e, a, &parent, &before, &x);
                if (yes < 0) GIVE_UP;
                if (yes == 0) AGREE(x);
                if (b) {
                    if (!object_writable(e, b)) GIVE_UP;
                    x = get_link(e, b, CHILD);
                    AGREE(x);
                }
            }
            if (in->operation == INSERT_OBJ) event(e, MOVED, a, b);
            if (moves) take_out(e, a, parent, before);
            if (moves && b) {
                set_link(e, a, PARENT, b);
                x = get_link(e, b, CHILD);
                set_link(e, b, CHILD, a);
                set_link(e, a, SIBLING, x);
            }
        }
        NEXT;
    DO(GET_PARENT)
    DO(GET_SIBLING)
    DO(GET_CHILD)
        OPERAND(0, a);
        if (!relative(e, a, in->operation == GET_PARENT ? PARENT : in->operation == GET_SIBLING ? SIBLING : CHILD, &x)) {
            AGREE(a);
            GIVE_UP;
        }
        if (in->operation != GET_PARENT) goto store_and_branch;
        RESULT(x);
        NEXT;
    DO(GET_PROP)
    DO(GET_PROP_ADDR)
        OPERAND(0, a);
        OPERAND(1, b);
        AGREE(b);
        if (UNLIKELY(is_vector(a))) {
            if (!lanes_objects_legal(e, a) || !lanes_property(e, a, b, in->operation == GET_PROP_ADDR, &x)) AGREE(a);
        } else if (a == 0) {
            x = 0;
        } else {
            if (!legal_object(e, a)) GIVE_UP;
            value size, small = e->version <= 3;
            address = seek_property(e, a, b, &size, &x);
            if (!address) AGREE(x);
            if (!address) GIVE_UP;
            int found = (size & (small ? 31 : 63)) == b;
            if (in->operation == GET_PROP_ADDR) x = found ? (uint16_t)(address + 1 + (!small && size & 0x80)) : 0;
            else if (!found) x = load_word(e, (uint16_t)(e->objects + 2 * (b - 1)));
            else if (!(size & (small ? 0xE0 : 0xC0))) x = load_byte(e, (uint16_t)(address + 1));
            else x = load_word(e, (uint16_t)(address + 1));
        }
        RESULT(x);
        NEXT;
    DO(GET_NEXT_PROP)
        OPERAND(0, a);
        OPERAND(1, b);
        AGREE(a);
        AGREE(b);
        x = 0;
        if (a) {
            if (!legal_object(e, a)) GIVE_UP;
            value size = 0, mask = e->version <= 3 ? 31 : 63;
            address = b ? seek_property(e, a, b, &size, &x) : first_property(e, a, &x);
            if (address && b) {
                if ((size & mask) != b) GIVE_UP;
                address = next_property(e, address, &x);
            }
            if (!address) AGREE(x);
            if (!address) GIVE_UP;
            x = load_byte(e, address);
            AGREE(x);
            x &= mask;
        }
        RESULT(x);
        NEXT;
    DO(GET_PROP_LEN)
        OPERAND(0, a);
        if (!is_vector(a) && !e->shadows[(uint16_t)(a - 1)]) x = property_length(e, e->memory[(uint16_t)(a - 1)]);
        else x = lanes_property_length(e, a);
        RESULT(x);
        NEXT;
    DO(PUT_PROP)
        OPERAND(0, a);
        OPERAND(1, b);
        OPERAND(2, x);
        AGREE(a);
        AGREE(b);
        if (a) {
            if (!legal_object(e, a)) GIVE_UP;
            value size = 0, small = e->version <= 3, differs;
            address = seek_property(e, a, b, &size, &differs);
            if (!address) AGREE(differs);
            if (!address || (size & (small ? 31 : 63)) != b) GIVE_UP;
            int word = (size & (small ? 0xE0 : 0xC0)) != 0;
            if (!can_write(e, address + 1, word ? 2 : 1)) GIVE_UP;
            if (word) store_word(e, address + 1, x);
            else store_byte(e, address + 1, is_vector(x) ? x : x & 255);
        }
        NEXT;

    /* routines */
    DO(CALL)
        count = in->count;
        for (int i = 0; i < count; i++) OPERAND(i, many[i]);
        AGREE(many[0]);
        if (many[0] == 0) {
            if (in->has_store) RESULT(0);
            NEXT;
        }
        {
            uint32_t pc = in->has_store ? in->next - 1 : in->next, routine = many[0] << e->packing;
            if (routine < e->ram_size || routine >= e->size) GIVE_UP;
            int locals = e->memory[routine++];
            if (locals > 15 || sp - e->stack < 4 + locals) GIVE_UP;
            if (e->version <= 4 && routine + 2 * (uint32_t)locals > e->size) GIVE_UP;
            *--sp = pc >> 9;
            *--sp = pc & 0x1FF;
            *--sp = (uint16_t)(fp - e->stack - 1);
            *--sp = (uint32_t)(count - 1) | (in->has_store ? 0u : 1u << 12) | (uint32_t)locals << 8;
            fp = sp;
            e->now.frames++;
            for (int i = 0; i < locals; i++) {
                value initial = 0;
                if (e->version <= 4) {
                    initial = raw_word(e, routine);
                    routine += 2;
                }
                *--sp = i < count - 1 ? many[i + 1] : initial;
            }
            bottom = sp;
            in = routine < e->size && e->decoded[routine] ? e->decoded[routine] : decode(e, routine);
        }
        EXECUTE;
    DO(THROW)
        OPERAND(0, a);
        OPERAND(1, b);
        AGREE(b);
        if ((int32_t)b > e->now.frames || b == 0) GIVE_UP;
        {
            int32_t frames = e->now.frames;
            value *frame = fp;
            for (; frames > (int32_t)b; frames--) {
                if (frame >= e->stack + STACK_WORDS - 4 || is_vector(frame[1]) || frame[1] >= STACK_WORDS) GIVE_UP;
                frame = e->stack + 1 + frame[1];
            }
            fp = frame;
            e->now.frames = frames;
        }
        goto give_back;
    DO(CATCH)
        RESULT((uint16_t)e->now.frames);
        NEXT;
    DO(CHECK_ARG_COUNT)
        OPERAND(0, a);
        AGREE(a);
        if (fp == e->stack + STACK_WORDS) BRANCH(a == 0);
        if (is_vector(*fp)) GIVE_UP;
        BRANCH(a <= (*fp & 255));
    DO(RET)
        OPERAND(0, a);
        goto give_back;
    DO(RET_POPPED)
        CHECK_POP;
        a = SIMPLE(*sp);
        sp++;
        goto give_back;
    DO(RTRUE)
        a = 1;
        goto give_back;
    DO(RFALSE)
        a = 0;
        goto give_back;
    DO(JUMP)
        if (in->kind[0] != CONSTANT) GIVE_UP;
        if (UNLIKELY(!in->jump)) in->jump = decode(e, in->target);
        in = in->jump;
        EXECUTE;
    DO(PIRACY) BRANCH(1);

    /* text */
    DO(PRINT)
        PRINTED(print_string_at(e, in->text));
        NEXT;
    DO(PRINT_RET)
        PRINTED(print_string_at(e, in->text));
        PRINTED(print_character(e, 13));
        a = 1;
        goto give_back;
    DO(NEW_LINE)
        PRINTED(print_character(e, 13));
        NEXT;
    DO(PRINT_ADDR)
    DO(PRINT_PADDR)
        OPERAND(0, a);
        PRINTED(print_strings_at(e, a, in->operation == PRINT_PADDR));
        NEXT;
    DO(PRINT_OBJ)
        OPERAND(0, a);
        PRINTED(print_object(e, a));
        NEXT;
    DO(PRINT_CHAR)
        OPERAND(0, a);
        PRINTED(print_character(e, a));
        NEXT;
    DO(PRINT_UNICODE)
        OPERAND(0, a);
        AGREE(a);
        a = letter_of_unicode(e, a);
        if (!a) GIVE_UP;
        PRINTED(print_character(e, a));
        NEXT;
    DO(PRINT_NUM)
        OPERAND(0, a);
        PRINTED(print_number(e, a));
        NEXT;
    DO(PRINT_TABLE)
        many[2] = 1;
        many[3] = 0;
        for (int i = 0; i < in->count && i < 4; i++) OPERAND(i, many[i]);
        for (int i = 0; i < 4; i++) AGREE(many[i]);
        PRINTED(print_table(e, many[0], many[1], many[2], many[3]));
        NEXT;
    DO(CHECK_UNICODE)
        OPERAND(0, a);
        AGREE(a);
        RESULT((a >= 0x20 && a <= 0x7E) || (a >= 0xA1 && a <= 0xFF) ? 3 : a == 0xA0);
        NEXT;
    DO(OUTPUT_STREAM)
        count = in->count < 4 ? in->count : 4;
        for (int i = 0; i < count; i++) OPERAND(i, many[i]);
        for (int i = 0; i < count; i++) AGREE(many[i]);
        print_flush(e);
        switch ((int16_t)many[0]) {
        case 3:
            if (count != 2 || e->now.redirections == MAX_REDIRECTIONS || !can_write(e, many[1], 2)) GIVE_UP;
            store_word(e, many[1], 0);
            e->now.redirection[e->now.redirections++] = (uint16_t)many[1];
            break;
        case -3:
            if (e->now.redirections) e->now.redirections--;
            break;
        case 1: e->now.silent = 0; break;
        case -1: e->now.silent = 1; break;
        case 0: break;
        default: GIVE_UP;
        }
        NEXT;

    DO(SAVE_UNDO) /* Jericho's Frotz has no memory for undo */
        RESULT(0xFFFF);
        NEXT;

    /* Special handlers for each kind of operands; if one of the values is a vector they use the general operation. */
    EACH_PAIR(QUICK_BRANCH, JE2, JE, a == b)
    EACH_PAIR(QUICK_BRANCH, JL2, JL, (int16_t)a < (int16_t)b)
    EACH_PAIR(QUICK_BRANCH, JG2, JG, (int16_t)a > (int16_t)b)
    EACH_PAIR(QUICK_RESULT, ADD2, ADD_, (uint16_t)(a + b))
    EACH_PAIR(QUICK_RESULT, SUB2, SUB_, (uint16_t)(a - b))
    EACH_PAIR(QUICK_RESULT, AND2, AND_, a & b)
    EACH_PAIR(QUICK_RESULT, LOADW2, LOADW, load_word(e, (uint16_t)(a + 2 * b)))
    EACH_PAIR(QUICK_RESULT, LOADB2, LOADB, load_byte(e, (uint16_t)(a + b)))
    EACH_KIND(QUICK_BRANCH_IF_ZERO, JZ1, JZ, a == 0)
    EACH_KIND(QUICK_RETURN, RET1, RET, )
    EACH_KIND(QUICK_STORE, TO_LOCAL, STORE_, LOCAL_OPERAND(0) = a)
    EACH_KIND(QUICK_STORE, TO_GLOBAL, STORE_, STORE_TO(in->operand[0], a))
    DO(INC_L)
    DO(DEC_L)
        a = LOCAL_OPERAND(0);
        if (UNLIKELY(is_vector(a))) goto do_INC;
        LOCAL_OPERAND(0) = (uint16_t)(in->operation == INC ? a + 1 : a - 1);
        NEXT;
    DO(INC_G)
    DO(DEC_G)
        address = (uint16_t)(e->globals + 2 * (in->operand[0] - 16u));
        if (UNLIKELY(e->shadows[address] | e->shadows[address + 1] || !can_write(e, address, 2))) goto do_INC;
        a = raw_word(e, address);
        store_word(e, address, (uint16_t)(in->operation == INC ? a + 1 : a - 1));
        NEXT;

    /* Not an instruction of the story: a merge point, where parts of a set may have to wait for each other. */
    DO(AT_MERGE_POINT)
        if (e->snapshot_count) {
            const snapshot *s = &e->snapshots[e->snapshot_count - 1];
            if (s->merge_at != in || s->at.frames != e->now.frames) goto *doing[in->operation];
            executed--; /* it is executed after the merge */
            goto wait;
        }
        if (UNLIKELY(e->expected != NULL)) {
            LEAVE_REGISTERS;
            recognise_merge(e);
        }
        goto *doing[in->operation];

    DO(READ) /* the end of the turn */
        LEAVE_REGISTERS;
        COUNT_EXECUTED;
        if (!judge(e)) goto divide;
        goto next_part;

store_and_branch: /* the result x, which is also the condition */
    if (is_vector(x)) {
        many[0] = x;
        many[1] = 0;
        AGREED(lanes_equal(e, many, 2));
        yes = !yes;
    } else {
        yes = x != 0;
    }
    RESULT(x);
    BRANCH(yes);

give_back: /* return a */
    if (sp > fp || fp >= e->stack + STACK_WORDS - 3) GIVE_UP;
    {
        value *frame = fp;
        if (is_vector(frame[0] | frame[1] | frame[2] | frame[3]) || frame[1] >= STACK_WORDS) GIVE_UP;
        uint32_t kind = frame[0] >> 12, pc = frame[3] << 9 | frame[2];
        value *caller = e->stack + 1 + frame[1];
        if (kind > 1 || caller < frame + 4 || pc >= e->size) GIVE_UP;
        sp = frame + 4;
        fp = caller;
        bottom = stack_bottom(e, fp);
        e->now.frames--;
        if (kind == 0) STORE_TO(e->memory[pc++], a);
        in = pc < e->size && e->decoded[pc] ? e->decoded[pc] : decode(e, pc);
        if (in && (e->snapshot_count ? e->now.frames < e->snapshots[e->snapshot_count - 1].join : e->expected != NULL)) {
            if (LIKELY(e->snapshot_count)) goto wait;
            LEAVE_REGISTERS;
            recognise_merge(e);
        }
    }
    EXECUTE;

wait: /* for the other parts, before this instruction */
    LEAVE_REGISTERS;
    COUNT_EXECUTED;
    park(e);
    goto next_part;

cannot:
    e->count_instructions += executed - e->now.instructions;
    give_up(e);
    goto next_part;

divide: /* every part executes this instruction again */
    executed--;
    sp = sp_before;
    LEAVE_REGISTERS;
    COUNT_EXECUTED;
    split(e);

next_part:
    if (!resume(e)) return;
    in = e->now.at;
    sp = e->stack + e->now.sp;
    fp = e->stack + e->now.fp;
    bottom = stack_bottom(e, fp);
    executed = e->now.instructions;
    EXECUTE;
}
