/* The part of the emulator that must not be written in Python: running one command, or very many candidate commands,
 * inside Jericho's own emulator (libfrotz.so), with a limit on Z-machine instructions.
 *
 * Jericho's step() and filter_candidate_actions() run "until the story wants input"; a story that never does
 * hangs the process. Here the same loop counts instructions, so that a hang becomes a verdict that is the same
 * on every machine. Nothing of libfrotz is linked: its functions and variables are looked up in the copy of the
 * library that the caller loaded, one `bridge` for each copy. Called through ctypes, which releases the GIL.
 *
 * Nothing here keeps global state; libfrotz itself does, so one process must not use one copy from two threads.
 *
 * What a story, or a state that was made by hand, may do to libfrotz:
 *   - a state is checked before any of it is copied (snapshot_check.h);
 *   - stack, frame and program counter are looked at after every instruction, and the story's memory is large enough for
 *     every address that an instruction can name, so that a story which leaves its stack or its code is halted, as Frotz
 *     halts one that it sees doing so;
 *   - libfrotz notices a division by zero, but divides all the same: here it does not, and the command ends (CRASHED);
 *   - SIGSEGV and SIGBUS are not caught. Something was overwritten or is missing then, and nothing that this process
 *     says afterwards could be believed. The process dies; its parent replaces it. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot_check.h"

enum { OPCODE_READ = SNAPSHOT_READ_LINE, OPCODE_READ_CHAR = SNAPSHOT_READ_KEY };
enum { OPCODE_QUIT = 186 };
enum { DONE = 0, HALTED = 1, LIMIT = 2, CRASHED = 3 };
enum { OPERATION_DIV = 0x17, OPERATION_MOD = 0x18 }; /* places in libfrotz's table of operations */
enum { CHANGED = 1, TAKEN = 2, RANDOM = 4, STOPPED = 8, EVENT = 16 };
enum { COMMAND_MAX = 198, DIFF_WORDS = 128, WORLD_SIZE = 8192 };
static const uint64_t SCORE = (uint64_t)1 << 40; /* in a hash, tells the score from a byte of memory */

/* Lies in memory shared with the supervising process: after a crash or a kill it says what was being tried. */
typedef struct {
    uint64_t progress;
    char command[COMMAND_MAX + 2];
} trace;

typedef struct {
    void (*zstep)(void);
    void (*set_next_action)(char *);
    char *(*get_screen)(void);
    void (*clear_screen)(void);
    char *(*clean_observation)(char *);
    void (*update_special_ram)(void);
    void (*update_ram_diff)(void);
    void (*get_cleaned_world_diff)(uint16_t *, uint16_t *);
    int (*world_changed)(void);
    int (*game_over)(void);
    int (*victory)(void);
    long (*getRngA)(void);
    int (*getRngCounter)(void);
    int (*getRngInterval)(void);
    void (*setRng)(long, int, int);
    int (*getRAMSize)(void);
    void (*getRAM)(unsigned char *);
    void (*setRAM)(unsigned char *);
    int (*getStackSize)(void);
    void (*getStack)(unsigned char *);
    void (*setStack)(unsigned char *);
    int (*getPC)(void);
    void (*setPC)(int);
    int (*getSP)(void);
    void (*setSP)(int);
    int (*getFP)(void);
    void (*setFP)(int);
    int (*getFrameCount)(void);
    void (*setFrameCount)(int);
    unsigned char *next_opcode;
    int *halted;
    int *move_diff_cnt, *attr_diff_cnt, *attr_clr_cnt, *ram_diff_cnt;
    unsigned char **zmp, **pcp;
    long *story_size;
    uint16_t *stack, **sp, **fp;
    char *world;
    trace *trace;
    snapshot_story story;
    void (**operations)(void), (*divide)(void), (*modulo)(void);
    uint16_t *zargs; /* an operation's arguments */
    int crashed;     /* the present command divided by zero */
    int quit;        /* it asked the interpreter to quit, of which libfrotz takes no notice */
    int *to_memory, *to_screen, *to_script, *to_record, *from_file; /* which streams are on */
    void (*memory_close)(void);
} bridge;

/* libfrotz asks this function of its own for a name before it opens a transcript or a list of commands. This library is
 * loaded before it, for all to see (RTLD_GLOBAL), so that it finds this one instead: no story writes or reads files,
 * whatever is typed. The name is one that cannot be opened, should what is returned not be looked at. Saved games: see
 * opens_file. */
int os_read_file_name(char *file_name, const char *default_name, int flag) {
    (void)default_name, (void)flag;
    strcpy(file_name, "/dev/null/none");
    return 0;
}

static int look_up(void *library, const char *name, void *slot) {
    void *found = dlsym(library, name);
    memcpy(slot, &found, sizeof found);
    return found != NULL;
}

void bridge_close(bridge *d) { free(d); }

/* A bridge to the loaded library, or NULL if it lacks something: another version of Jericho. */
bridge *bridge_open(void *library, trace *shared) {
    bridge *d = calloc(1, sizeof *d);
    int ok = d != NULL;
    if (!ok) return NULL;
    ok &= look_up(library, "zstep", &d->zstep);
    ok &= look_up(library, "dumb_set_next_action", &d->set_next_action);
    ok &= look_up(library, "dumb_get_screen", &d->get_screen);
    ok &= look_up(library, "dumb_clear_screen", &d->clear_screen);
    ok &= look_up(library, "clean_observation", &d->clean_observation);
    ok &= look_up(library, "update_special_ram", &d->update_special_ram);
    ok &= look_up(library, "update_ram_diff", &d->update_ram_diff);
    ok &= look_up(library, "get_cleaned_world_diff", &d->get_cleaned_world_diff);
    ok &= look_up(library, "world_changed", &d->world_changed);
    ok &= look_up(library, "game_over", &d->game_over);
    ok &= look_up(library, "victory", &d->victory);
    ok &= look_up(library, "getRngA", &d->getRngA);
    ok &= look_up(library, "getRngCounter", &d->getRngCounter);
    ok &= look_up(library, "getRngInterval", &d->getRngInterval);
    ok &= look_up(library, "setRng", &d->setRng);
    ok &= look_up(library, "getRAMSize", &d->getRAMSize);
    ok &= look_up(library, "getRAM", &d->getRAM);
    ok &= look_up(library, "setRAM", &d->setRAM);
    ok &= look_up(library, "getStackSize", &d->getStackSize);
    ok &= look_up(library, "getStack", &d->getStack);
    ok &= look_up(library, "setStack", &d->setStack);
    ok &= look_up(library, "getPC", &d->getPC);
    ok &= look_up(library, "setPC", &d->setPC);
    ok &= look_up(library, "getSP", &d->getSP);
    ok &= look_up(library, "setSP", &d->setSP);
    ok &= look_up(library, "getFP", &d->getFP);
    ok &= look_up(library, "setFP", &d->setFP);
    ok &= look_up(library, "getFrameCount", &d->getFrameCount);
    ok &= look_up(library, "setFrameCount", &d->setFrameCount);
    ok &= look_up(library, "next_opcode", &d->next_opcode);
    ok &= look_up(library, "emulator_halted", &d->halted);
    ok &= look_up(library, "move_diff_cnt", &d->move_diff_cnt);
    ok &= look_up(library, "attr_diff_cnt", &d->attr_diff_cnt);
    ok &= look_up(library, "attr_clr_cnt", &d->attr_clr_cnt);
    ok &= look_up(library, "ram_diff_cnt", &d->ram_diff_cnt);
    ok &= look_up(library, "zmp", &d->zmp);
    ok &= look_up(library, "pcp", &d->pcp);
    ok &= look_up(library, "story_size", &d->story_size);
    ok &= look_up(library, "stack", &d->stack);
    ok &= look_up(library, "sp", &d->sp);
    ok &= look_up(library, "fp", &d->fp);
    ok &= look_up(library, "world", &d->world);
    ok &= look_up(library, "var_opcodes", &d->operations);
    ok &= look_up(library, "z_div", &d->divide);
    ok &= look_up(library, "z_mod", &d->modulo);
    ok &= look_up(library, "zargs", &d->zargs);
    ok &= look_up(library, "ostream_memory", &d->to_memory);
    ok &= look_up(library, "ostream_screen", &d->to_screen);
    ok &= look_up(library, "ostream_script", &d->to_script);
    ok &= look_up(library, "ostream_record", &d->to_record);
    ok &= look_up(library, "istream_replay", &d->from_file);
    ok &= look_up(library, "memory_close", &d->memory_close);
    d->trace = shared;
    if (ok && d->operations[OPERATION_DIV] == d->divide && d->operations[OPERATION_MOD] == d->modulo) return d;
    free(d);
    return NULL;
}

/* --- division by zero ----------------------------------------------------------------------------------------- */

/* The bridge whose command runs in this thread: libfrotz's operations have no arguments. */
static __thread bridge *running;

static void divide(void (*operation)(void)) {
    if (running->zargs[1]) {
        operation();
    } else {
        running->crashed = 1;
        *running->halted = 1; /* ends the command after this instruction */
    }
}

static void checked_div(void) { divide(running->divide); }
static void checked_mod(void) { divide(running->modulo); }

/* Between these two, libfrotz asks us to divide. */
static void begin_command(bridge *d) {
    running = d;
    d->crashed = 0;
    d->operations[OPERATION_DIV] = checked_div;
    d->operations[OPERATION_MOD] = checked_mod;
}

static void end_command(bridge *d) {
    d->operations[OPERATION_DIV] = d->divide;
    d->operations[OPERATION_MOD] = d->modulo;
    running = NULL;
}

/* --- states --------------------------------------------------------------------------------------------------- */

enum {
    LOWEST_SP = SNAPSHOT_FRAME_WORDS + SNAPSHOT_MAX_LOCALS, /* one call needs as much */
    PACKED_REACH = 8 * 0x10000, /* packed addresses lead so far at most */
    MAX_REDIRECTIONS = 1 << 16, /* libfrotz counts them, also those for which it has no space */
    JUMP_REACH = 0x10000,       /* and a jump so far behind the end */
    TEXT_END = 0x80             /* a word of such bytes ends every text */
};

/* Must be called before every set-up of the emulator: that does not touch the streams, and a story that was cut off
 * while it printed into its memory would print there for ever. */
void bridge_reset_streams(const bridge *d) {
    for (int i = 0; *d->to_memory && i < MAX_REDIRECTIONS; i++) d->memory_close();
    *d->to_screen = 1;
    *d->to_memory = *d->to_script = *d->to_record = *d->from_file = 0;
}

/* Must be called after every set-up of the emulator. Makes the story's memory so large that every address which an
 * instruction can name lies in it: libfrotz notices an address behind the story's end, but goes on and uses it. 0 if
 * there is no memory, or libfrotz holds another story. `story` must stay where it is. */
int bridge_adopt(bridge *d, const uint8_t *story, uint64_t length) {
    size_t size = (size_t)*d->story_size; /* there may be padding behind it */
    size_t ram = (size_t)d->getRAMSize(), capacity = (size > PACKED_REACH ? size : PACKED_REACH) + JUMP_REACH;
    ptrdiff_t pc = *d->pcp - *d->zmp;
    if (size > length || size < SNAPSHOT_HEADER || ram < SNAPSHOT_HEADER || ram > size || pc < 0 || (size_t)pc > size) return 0;
    unsigned char *memory = realloc(*d->zmp, capacity);
    if (!memory) return 0;
    memset(memory + size, TEXT_END, capacity - size);
    *d->zmp = memory;
    *d->pcp = memory + pc;
    d->story = (snapshot_story){.header = story, .memory = story, .size = size, .ram_length = ram};
    return 1;
}

/* Puts the emulator into a state. Returns NULL, or what is wrong with the state, of which nothing was used then. */
const char *bridge_restore(bridge *d, const uint8_t *ram, uint64_t ram_length, const uint8_t *stack, uint64_t stack_length,
                         int64_t pc, int64_t sp, int64_t fp, int64_t frames, int64_t opcode, int64_t random_a,
                         int64_t random_interval, int64_t random_counter, const char *narration,
                         uint64_t narration_length) {
    snapshot_view view = {ram, stack, ram_length, stack_length, pc, sp, fp, frames, opcode, random_interval, random_counter};
    const char *fault = find_snapshot_fault(&view, &d->story);
    if (fault) return fault;
    if (sp < LOWEST_SP) return "the stack is full";
    if (narration_length >= WORLD_SIZE) return "its text is too long";
    d->setRng((long)random_a, (int)random_interval, (int)random_counter);
    memcpy(*d->zmp, ram, ram_length);
    memcpy(d->stack + sp, stack, stack_length);
    *d->pcp = *d->zmp + pc;
    *d->sp = d->stack + sp;
    *d->fp = d->stack + fp;
    d->setFrameCount((int)frames);
    *d->next_opcode = (unsigned char)opcode;
    memcpy(d->world, narration, narration_length);
    d->world[narration_length] = 0;
    return NULL;
}

/* Whether libfrotz's registers are where the next instruction can use them. */
static inline int is_inside(const bridge *d) {
    return (size_t)(*d->sp - d->stack - LOWEST_SP) <= SNAPSHOT_STACK_WORDS - LOWEST_SP &&
           (size_t)(*d->fp - d->stack - SNAPSHOT_MAX_LOCALS) <= SNAPSHOT_STACK_WORDS - SNAPSHOT_MAX_LOCALS &&
           (size_t)(*d->pcp - *d->zmp) <= d->story.size;
}

/* Whether the next instruction saves the game to a file or restores it from one. libfrotz would do so in the present
 * folder, with the story's name, and asks nothing. From version 5 on both are extended instructions, behind a byte
 * 0xBE. */
static inline int opens_file(const bridge *d) {
    enum { SAVE = 181, RESTORE = 182, EXTENDED = 190 };
    unsigned char opcode = *d->next_opcode;
    return opcode == SAVE || opcode == RESTORE || (opcode == EXTENDED && **d->pcp <= 1);
}

/* --- commands ------------------------------------------------------------------------------------------------- */

static int run_command(bridge *d, const char *command, uint64_t limit, uint64_t *instructions) {
    char line[COMMAND_MAX + 2];
    /* Where the story wants a key it gets one: libfrotz would keep the others for later, whatever is restored. */
    size_t length = strnlen(command, *d->next_opcode == OPCODE_READ_CHAR ? 1 : COMMAND_MAX);
    memcpy(line, command, length);
    memcpy(line + length, "\n", 2);
    *d->move_diff_cnt = *d->attr_diff_cnt = *d->attr_clr_cnt = *d->ram_diff_cnt = 0;
    d->update_special_ram();
    d->set_next_action(line);
    uint64_t count = 0;
    d->quit = 0;
    do {
        if (count >= limit) {
            *instructions = count;
            d->clear_screen(); /* else what it printed would stand before the next text */
            return LIMIT;
        }
        if (*d->next_opcode == OPCODE_QUIT) d->quit = 1;
        d->zstep();
        count++;
        if (!is_inside(d))
            *d->halted = 1;
        else if (opens_file(d))
            limit = 0; /* no story writes or reads files: as if it never ended */
    } while (*d->halted <= 0 && *d->next_opcode != OPCODE_READ && *d->next_opcode != OPCODE_READ_CHAR);
    *instructions = count;
    d->update_ram_diff();
    strcpy(d->world, d->clean_observation(d->get_screen()));
    d->clear_screen();
    return *d->halted > 0 ? HALTED : DONE;
}

/* Types one command and runs until the story waits for the next one. The narration is in libfrotz's `world`. After
 * anything but DONE the emulator must be set up anew. */
int bridge_step(bridge *d, const char *command, uint64_t limit, uint64_t *instructions) {
    if (d->trace) {
        strncpy(d->trace->command, command, COMMAND_MAX);
        d->trace->progress++;
    }
    *instructions = 0;
    if (*d->halted > 0) return HALTED;
    begin_command(d);
    int status = run_command(d, command, limit, instructions);
    end_command(d);
    return d->crashed ? CRASHED : status;
}

/* Whether the story asked to quit at the last command. */
int bridge_has_quit(const bridge *d) { return d->quit; }

/* The state that commands are tried from. */
typedef struct {
    unsigned char *ram, *stack;
    size_t ram_size, stack_size;
    int pc, sp, fp, frames, interval, counter;
    long rng;
    unsigned char opcode;
} start;

/* Keeps the present state, and `more` bytes of space behind it; 0 if there is no memory. */
static int keep(const bridge *d, start *s, size_t more) {
    s->ram_size = (size_t)d->getRAMSize();
    s->stack_size = (size_t)d->getStackSize();
    s->ram = malloc(s->ram_size + s->stack_size + more);
    if (!s->ram) return 0;
    s->stack = s->ram + s->ram_size;
    d->getRAM(s->ram);
    d->getStack(s->stack);
    s->pc = d->getPC();
    s->sp = d->getSP();
    s->fp = d->getFP();
    s->frames = d->getFrameCount();
    s->opcode = *d->next_opcode;
    s->rng = d->getRngA();
    s->interval = d->getRngInterval();
    s->counter = d->getRngCounter();
    return 1;
}

static void put_back(const bridge *d, const start *s) {
    d->setRng(s->rng, s->interval, s->counter);
    d->setRAM(s->ram);
    d->setStack(s->stack);
    d->setPC(s->pc);
    d->setSP(s->sp);
    d->setFP(s->fp);
    d->setFrameCount(s->frames);
    *d->next_opcode = s->opcode;
}

/* Hashes are sums, with a summand for each thing that is different, so that games/zset/verdicts.c can make the same ones
 * without looking at all of memory. */
static uint64_t scramble(uint64_t x) {
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

/* What counts as a change of the world: which bits of RAM, when they are set and when they are cleared, and
 * which objects wander about by themselves, so that where they are does not count. */
typedef struct {
    const uint8_t *set_mask, *clear_mask;
    const uint16_t *wanderers;
    int32_t wanderer_count;
    uint32_t first_object;
    int32_t small; /* objects have the layout of versions 1 to 3 */
    int32_t object_count;
    int32_t score_address, score_size; /* a big-endian number of which the difference counts; size 0: none */
} world;

enum { PARENT, SIBLING, CHILD };

static unsigned link_address(const world *w, unsigned object, int link) {
    return w->small ? w->first_object + (object - 1) * 9 + 4 + (unsigned)link
                    : w->first_object + (object - 1) * 14 + 6 + 2 * (unsigned)link;
}

static unsigned get_link(const world *w, const uint8_t *ram, unsigned object, int link) {
    if (object < 1 || object > (unsigned)w->object_count) return 0;
    unsigned address = link_address(w, object, link);
    return w->small ? ram[address] : (unsigned)ram[address] << 8 | ram[address + 1];
}

static void set_link(const world *w, uint8_t *ram, unsigned object, int link, unsigned value) {
    if (object < 1 || object > (unsigned)w->object_count) return;
    unsigned address = link_address(w, object, link);
    if (!w->small) ram[address++] = (uint8_t)(value >> 8);
    ram[address] = (uint8_t)value;
}

/* Takes the wanderers out of the object tree, so that two trees can be compared without them. */
static void remove_wanderers(const world *w, uint8_t *ram) {
    for (int i = 0; i < w->wanderer_count; i++) {
        unsigned object = w->wanderers[i], next = get_link(w, ram, object, SIBLING);
        unsigned parent = get_link(w, ram, object, PARENT), at = get_link(w, ram, parent, CHILD);
        if (at == object) {
            set_link(w, ram, parent, CHILD, next);
        } else {
            for (int guard = 0; at && guard < w->object_count; guard++) {
                unsigned after = get_link(w, ram, at, SIBLING);
                if (after == object) {
                    set_link(w, ram, at, SIBLING, next);
                    break;
                }
                at = after;
            }
        }
        set_link(w, ram, object, PARENT, 0);
        set_link(w, ram, object, SIBLING, 0);
    }
}

/* A hash of how the score changed; 0 if it did not. */
static uint64_t score_difference(const world *w, const uint8_t *now, const uint8_t *before) {
    int32_t score = 0;
    for (int i = 0; i < w->score_size; i++)
        score = score * 256 + now[w->score_address + i] - before[w->score_address + i];
    return score ? scramble(SCORE | (uint32_t)score) : 0;
}

/* A hash of the bits in which two memories differ, of those that count when they are set and when they are cleared;
 * 0 if there are none. */
static uint64_t memory_difference(const uint8_t *set_mask, const uint8_t *clear_mask, const uint8_t *now,
                                  const uint8_t *before, size_t size) {
    uint64_t hash = 0;
    for (size_t i = 0; i < size; i++) {
        uint64_t a, b;
        while (i % 8 == 0 && size - i > 8) { /* mostly nothing is different: eight bytes at a time */
            memcpy(&a, now + i, 8);
            memcpy(&b, before + i, 8);
            if (a != b) break;
            i += 8;
        }
        uint8_t changed = (now[i] & ~before[i] & set_mask[i]) | (before[i] & ~now[i] & clear_mask[i]);
        if (changed) hash += scramble((uint64_t)i << 16 | (uint64_t)changed << 8 | (now[i] & changed));
    }
    return hash;
}

/* A hash of Jericho's own difference: four times 16 numbers, and beside each another one. */
static uint64_t event_difference(const uint16_t *difference) {
    uint64_t hash = 0;
    for (uint64_t i = 0; i < DIFF_WORDS / 2; i++) {
        uint32_t pair = (uint32_t)difference[i] << 16 | difference[i + DIFF_WORDS / 2];
        if (pair) hash += scramble(i / 16 << 40 | i % 16 << 32 | pair);
    }
    return hash;
}

/* Tries candidates first..count-1 (NUL-terminated, one after the other in `commands`), each from the present
 * state, and says of each in `flags` what it did and in `diffs` a hash of how it changed the world.
 *
 * CHANGED: the world is another one now, or the game ended. EVENT: Jericho says that the world changed; it counts
 * every object moved and every attribute written, also where nothing is different afterwards. Two commands with
 * equal hashes did the same thing. `watches`, where given, receives a hash of how the bits in `watched` (one byte
 * for each of RAM) changed.
 *
 * Returns `count`, or the index of a candidate that stopped the emulator (halted, or over the limit; flag STOPPED): the
 * caller must then set the emulator up anew and go on behind it. The state is restored after each. */
int bridge_filter(bridge *d, const char *commands, int first, int count, uint64_t limit, const world *w,
                uint8_t *flags, uint64_t *diffs, const uint8_t *watched, uint64_t *watches) {
    start from;
    if (!keep(d, &from, (size_t)d->getRAMSize())) return -1;
    unsigned char *base = from.stack + from.stack_size;
    uint16_t difference[DIFF_WORDS];
    uint64_t instructions;
    memcpy(base, from.ram, from.ram_size);
    remove_wanderers(w, base);
    int i = 0;
    for (; i < first; i++) commands += strlen(commands) + 1;
    for (; i < count; i++, commands += strlen(commands) + 1) {
        flags[i] = 0;
        diffs[i] = 0;
        if (watches) watches[i] = 0;
        if (bridge_step(d, commands, limit, &instructions) != DONE) {
            flags[i] = STOPPED;
            break;
        }
        int ended = d->game_over() > 0 ? 1 : d->victory() > 0 ? 2 : 0;
        remove_wanderers(w, *d->zmp);
        uint64_t hash = score_difference(w, *d->zmp, base) +
                        memory_difference(w->set_mask, w->clear_mask, *d->zmp, base, from.ram_size);
        if (watches) watches[i] = memory_difference(watched, watched, *d->zmp, base, from.ram_size);
        if (d->getRngA() != from.rng || d->getRngCounter() != from.counter) flags[i] |= RANDOM;
        if (ended || hash) {
            flags[i] |= CHANGED;
            diffs[i] = scramble(hash + (uint64_t)ended) | 1;
        }
        if (d->world_changed() > 0) {
            flags[i] |= EVENT;
            memset(difference, 0, sizeof difference);
            d->get_cleaned_world_diff(difference, difference + DIFF_WORDS / 2);
            if (!diffs[i]) diffs[i] = scramble(event_difference(difference) + 7) | 1;
        }
        if (strstr(d->world, "(Taken)")) flags[i] |= TAKEN;
        put_back(d, &from);
    }
    free(from.ram);
    return i;
}

/* What the story says to commands first..count-1, each given in the present state: its texts one after the other in
 * `texts`, each with its NUL, for each of which there must be space for the longest that libfrotz gives.
 *
 * Returns `count`, or the index of a command that stopped the emulator, as bridge_filter does; in `used` where the next
 * text goes. */
int bridge_responses(bridge *d, const char *commands, int first, int count, uint64_t limit, char *texts, uint64_t *used) {
    start from;
    if (!keep(d, &from, 0)) return -1;
    uint64_t instructions;
    int i = 0;
    for (; i < first; i++) commands += strlen(commands) + 1;
    for (; i < count; i++, commands += strlen(commands) + 1) {
        if (bridge_step(d, commands, limit, &instructions) != DONE) break;
        size_t size = strlen(d->world) + 1;
        memcpy(texts + *used, d->world, size);
        *used += size;
        put_back(d, &from);
    }
    free(from.ram);
    return i;
}
