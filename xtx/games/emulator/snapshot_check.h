/* Checks a saved state of a Z-machine before any byte of it is used. The only place where this is decided;
 * frotz_bridge.c and games/zset/verdicts.c both include it.
 *
 * A state may come from a file, and its checksum is no secret, so every number in it can have been chosen by anybody.
 * A state that passes has registers and a chain of stack frames with which the machine stays inside its stack when
 * routines return, and it waits at an instruction of the story that reads input. The contents of RAM are free, but for
 * the header. What a story's own code does with odd contents is limited elsewhere: by the interpreter's bounds in
 * zset, by the guards of frotz_bridge.c, and last by the process in which Frotz runs. */
#ifndef SNAPSHOT_CHECK_H
#define SNAPSHOT_CHECK_H

#include <stddef.h>
#include <stdint.h>

enum {
    SNAPSHOT_STACK_WORDS = 1024, /* Frotz's stack; it grows downwards, and frames are addressed from its lowest word */
    SNAPSHOT_FRAME_WORDS = 4,    /* of a routine's frame: kind of call and counts, caller's frame, return address */
    SNAPSHOT_MAX_LOCALS = 15,
    SNAPSHOT_HEADER = 64,
    SNAPSHOT_MAX_INTERVAL = 1000, /* Frotz counts instead of drawing random numbers after a seed below this */
    SNAPSHOT_READ_LINE = 228,
    SNAPSHOT_READ_KEY = 246
};

/* A state as xtx.games.emulator.frotz.Snapshot has it. Lengths are in bytes. */
typedef struct {
    const uint8_t *ram, *stack; /* the stack from sp on, in 16-bit words of this machine's byte order */
    size_t ram_length, stack_length;
    int64_t pc, sp, fp, frames, opcode, random_interval, random_counter;
} snapshot_view;

/* The story that it must belong to. Of `memory` only what lies behind dynamic memory is read, so it may be the memory of
 * a machine that runs. `header` may be NULL for a machine that never looks at the header in RAM. */
typedef struct {
    const uint8_t *header, *memory;
    size_t size, ram_length;
} snapshot_story;

static inline unsigned snapshot_word(const snapshot_view *s, int64_t index) {
    const uint8_t *at = s->stack + 2 * (index - s->sp);
    uint16_t word;
    __builtin_memcpy(&word, at, 2);
    return word;
}

static inline int snapshot_reads_input(int64_t opcode) {
    return opcode == SNAPSHOT_READ_LINE || opcode == SNAPSHOT_READ_KEY;
}

/* Whether no story and no interpreter may change a byte of the header while a story runs. */
static inline int snapshot_header_is_fixed(unsigned address) {
    static const uint64_t fixed = 1ull << 0x00 | 3ull << 0x02 | 3ull << 0x04 | 3ull << 0x06 | 3ull << 0x08 | 3ull << 0x0A |
                                  3ull << 0x0C | 3ull << 0x0E | 0x3Full << 0x12 | 3ull << 0x18 | 3ull << 0x1A |
                                  3ull << 0x1C | 0xFull << 0x28 | 3ull << 0x2E | 3ull << 0x34 | 3ull << 0x36;
    return fixed >> address & 1;
}

/* Walks from the present routine's frame to the outermost. Every caller's frame must lie above the one that it called,
 * with space for its locals between them, and every return address behind dynamic memory, where a story's code is. */
static inline const char *find_frame_fault(const snapshot_view *s, const snapshot_story *story) {
    int64_t fp = s->fp, lowest = s->sp, frames = 0;
    while (fp < SNAPSHOT_STACK_WORDS) {
        if (fp > SNAPSHOT_STACK_WORDS - SNAPSHOT_FRAME_WORDS) return "a frame reaches beyond the stack";
        if (fp - (int64_t)(snapshot_word(s, fp) >> 8 & 15) < lowest) return "a routine's locals are not on the stack";
        lowest = fp + SNAPSHOT_FRAME_WORDS;
        uint32_t pc = (uint32_t)snapshot_word(s, fp + 3) << 9 | (snapshot_word(s, fp + 2) & 0x1FF);
        if (snapshot_word(s, fp + 2) > 0x1FF || pc < story->ram_length || pc >= story->size)
            return "a return address is not in the story's code";
        int64_t caller = 1 + (int64_t)snapshot_word(s, fp + 1);
        if (caller < fp + SNAPSHOT_FRAME_WORDS || caller > SNAPSHOT_STACK_WORDS) return "the chain of frames is broken";
        fp = caller;
        frames++;
    }
    return frames == s->frames ? NULL : "the number of frames is wrong";
}

/* What is wrong with a state, in a few words; NULL if nothing is. */
static inline const char *find_snapshot_fault(const snapshot_view *s, const snapshot_story *story) {
    if (s->ram_length != story->ram_length) return "its memory has another size";
    for (unsigned i = 0; story->header && i < SNAPSHOT_HEADER && i < s->ram_length; i++)
        if (s->ram[i] != story->header[i] && snapshot_header_is_fixed(i)) return "its header is another story's";
    if (s->sp < 0 || s->sp > SNAPSHOT_STACK_WORDS) return "the stack pointer is outside the stack";
    if (s->stack_length != 2 * (size_t)(SNAPSHOT_STACK_WORDS - s->sp)) return "the stack has another size";
    if (s->fp < s->sp || s->fp > SNAPSHOT_STACK_WORDS) return "the frame pointer is outside the stack";
    /* A routine's locals lie below its frame, and how many its code uses is not known here. */
    if (s->fp < SNAPSHOT_MAX_LOCALS) return "the stack is full";
    if (s->frames < 0 || s->frames > SNAPSHOT_STACK_WORDS / SNAPSHOT_FRAME_WORDS) return "the number of frames is wrong";
    if (!snapshot_reads_input(s->opcode)) return "it does not wait for input";
    /* pc is behind the opcode, which was fetched already. */
    if (s->pc <= (int64_t)story->ram_length || s->pc >= (int64_t)story->size ||
        !snapshot_reads_input(story->memory[s->pc - 1]))
        return "it does not wait at an instruction of the story that reads input";
    if (s->random_interval < 0 || s->random_interval > SNAPSHOT_MAX_INTERVAL || s->random_counter < 0 ||
        s->random_counter > SNAPSHOT_MAX_INTERVAL)
        return "the random generator's numbers are out of range";
    return find_frame_fault(s, story);
}

#endif
