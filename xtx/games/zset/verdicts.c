/* How a command changed the world, lane by lane, and the functions that Python calls.
 *
 * The verdicts are those of frotz_bridge.c, which runs each command in Frotz; the hashes must be computed in the same
 * way there and here. A lane that is UNJUDGED must be run in Frotz. */
#include "zset.h"
#include "../emulator/snapshot_check.h"

#include <stdlib.h>

/* --- events ------------------------------------------------------------------------------------------------- */

/* Jericho counts moved objects and set or cleared attributes, whether or not they change anything: the first 16 of each
 * kind, of which it then ignores some. */
static uint64_t event_hash(uint32_t kind, uint32_t place, uint32_t object, uint32_t other) {
    return object | other ? scramble((uint64_t)kind << 40 | (uint64_t)place << 32 | object << 16 | other) : 0;
}

void event(engine *e, int kind, value object, value other) {
    uint32_t last_object = UINT32_MAX, last_other = 0;
    int ignored = 0;
    EACH_LANE(e->set, c, {
        history *h = &e->histories[c];
        if (h->seen[kind] < EVENT_SLOTS) {
            uint16_t number = lane_value(e, object, c);
            uint16_t to = lane_value(e, other, c);
            h->seen[kind]++;
            if (number != last_object || to != last_other) {
                ignored = e->ignored[kind] && e->ignored[kind](number, to);
                last_object = number;
                last_other = to;
            }
            if (!ignored) h->events += event_hash((uint32_t)kind, h->kept[kind]++, number, to);
        }
    });
}

/* --- the end of a turn -------------------------------------------------------------------------------------- */

void give_up(engine *e) {
    EACH_LANE(e->set, c, e->flags[c] = UNJUDGED;);
    e->now.at = NULL;
    e->count_leaves++;
}

static uint64_t byte_hash(uint32_t address, uint8_t now, uint8_t before, uint8_t set, uint8_t clear) {
    uint8_t changed = (now & ~before & set) | (before & ~now & clear);
    return changed ? scramble((uint64_t)address << 16 | (uint64_t)changed << 8 | (now & changed)) : 0;
}

static uint64_t score_hash(int32_t difference) {
    return difference ? scramble((uint64_t)1 << 40 | (uint32_t)difference) : 0;
}

/* --- wanderers: objects that move by themselves are removed from the tree before two trees are compared --- */

enum { PARENT, SIBLING, CHILD };

static uint32_t link_address(const world *w, uint32_t object, int link) {
    return w->small ? w->first_object + (object - 1) * 9 + 4 + (uint32_t)link
                    : w->first_object + (object - 1) * 14 + 6 + 2 * (uint32_t)link;
}

static int in_tree(const world *w, uint32_t object) { return object >= 1 && object <= (uint32_t)w->object_count; }

/* Returns a link; 0 with *differs set if it is not the same in all lanes. */
static uint32_t get_link(engine *e, uint32_t object, int link, value *differs) {
    const world *w = &e->world;
    if (!in_tree(w, object)) return 0;
    uint32_t address = link_address(w, object, link);
    value v = w->small ? load_byte(e, address) : load_word(e, address);
    if (!is_vector(v)) return v;
    *differs = v;
    return 0;
}

static void set_link(engine *e, uint32_t object, int link, uint32_t to) {
    const world *w = &e->world;
    if (!in_tree(w, object)) return;
    if (w->small) store_byte(e, link_address(w, object, link), to & 255);
    else store_word(e, link_address(w, object, link), to);
}

/* Returns 0 if a link differs between lanes, with the link in *differs. */
static int remove_wanderers(engine *e, value *differs) {
    *differs = 0;
    for (int i = 0; i < e->world.wanderer_count; i++) {
        uint32_t object = e->world.wanderers[i], next = get_link(e, object, SIBLING, differs);
        uint32_t parent = get_link(e, object, PARENT, differs), at = get_link(e, parent, CHILD, differs);
        if (*differs) return 0;
        if (at == object) {
            set_link(e, parent, CHILD, next);
        } else {
            for (int guard = 0; at && guard < e->world.object_count; guard++) {
                uint32_t after = get_link(e, at, SIBLING, differs);
                if (*differs) return 0;
                if (after == object) {
                    set_link(e, at, SIBLING, next);
                    break;
                }
                at = after;
            }
        }
        set_link(e, object, PARENT, 0);
        set_link(e, object, SIBLING, 0);
    }
    return 1;
}

/* --- judging ------------------------------------------------------------------------------------------------ */

/* Adds the change of one byte to the common hash, or to those of the lanes if they differ. */
static void add_byte(engine *e, uint32_t address, uint8_t set, uint8_t clear, uint64_t *common, uint64_t *by_lane) {
    uint8_t before = e->base_ram[address];
    if (!(set | clear)) return;
    if (!e->shadows[address]) {
        *common += byte_hash(address, e->memory[address], before, set, clear);
        return;
    }
    EACH_LANE(e->set, c, by_lane[c] += byte_hash(address, (uint8_t)lane_byte(e, (uint16_t)address, c), before, set, clear););
}

/* Writes the hash of each lane's changes of the watched bits to e->watches, 0 for none: of each mask in turn. */
static void add_watched(engine *e, uint32_t touched) {
    const uint8_t *watched = e->watched;
    uint64_t *watches = e->watches;
    for (int32_t m = 0; m < e->watched_masks; m++, watched += e->ram_size, watches += e->lane_count) {
        uint64_t common = 0;
        EACH_LANE(e->set, c, watches[c] = 0;);
        for (uint32_t i = 0; i < touched; i++) {
            uint8_t mask = e->touched[i] < e->ram_size ? watched[e->touched[i]] : 0;
            add_byte(e, e->touched[i], mask, mask, &common, watches);
        }
        EACH_LANE(e->set, c, watches[c] += common;);
    }
}

/* Writes the hash of each lane's change of the world to e->diffs, 0 for none. */
static void add_changes(engine *e) {
    uint64_t common = 0, *diffs = e->diffs;
    EACH_LANE(e->set, c, diffs[c] = 0;);
    uint32_t count = list_touched(e, 0);
    const world *w = &e->world;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t a = e->touched[i];
        if (e->interesting[a]) add_byte(e, a, w->set_mask[a], w->clear_mask[a], &common, diffs);
    }
    for (uint32_t i = 0; i < e->moved_count; i++) {
        uint32_t a = e->moved[i];
        if (!was_touched(e, a)) add_byte(e, a, w->set_mask[a], w->clear_mask[a], &common, diffs);
    }
    if (e->watched) add_watched(e, count);
    uint32_t at = (uint32_t)w->score_address, differs = 0;
    for (int i = 0; i < w->score_size; i++) differs |= e->shadows[at + (uint32_t)i];
    if (!differs && w->score_size) {
        int32_t score = 0;
        for (uint32_t i = at; i < at + (uint32_t)w->score_size; i++) score = score * 256 + e->memory[i] - e->base_ram[i];
        common += score_hash(score);
    }
    EACH_LANE(e->set, c, {
        diffs[c] += common;
        if (differs) {
            int32_t score = 0;
            for (uint32_t i = at; i < at + (uint32_t)w->score_size; i++)
                score = score * 256 + lane_byte(e, (uint16_t)i, c) - e->base_ram[i];
            diffs[c] += score_hash(score);
        }
    });
}

/* Whether Jericho must be asked if the game has ended: for its text, or for the RAM bytes by which Jericho sees the end
 * of some games. */
static int is_end_open(const engine *e, uint32_t c) {
    if (e->histories[c].hits & HIT_ASK) return 1;
    for (int i = 0; i < e->final_count; i++)
        if (lane_byte(e, e->final[i], c) != e->start_ram[e->final[i]]) return 1;
    return 0;
}

static void judge_lane(engine *e, uint32_t c, uint8_t flags) {
    history *h = &e->histories[c];
    uint64_t events = h->events;
    uint32_t kept = h->kept[MOVED] + h->kept[SET] + h->kept[CLEARED], special = 0;
    for (int i = 0; i < e->special_count; i++) {
        uint32_t now = lane_byte(e, e->special[i], c);
        if (now != e->start_ram[e->special[i]]) events += event_hash(EVENT_KINDS, special++, e->special[i], now);
    }
    uint64_t ended = h->hits & HIT_OVER ? ENDS_OVER : h->hits & HIT_WON ? ENDS_WON : ENDS_NOT;
    int open = is_end_open(e, c), taken = (h->hits & HIT_TAKEN) != 0;
    if (open && e->endings) {
        const uint8_t said = e->endings[e->lane_of[c]];
        ended = said & (ENDS_OVER | ENDS_WON);
        taken = (said & ENDS_TAKEN) != 0;
        open = 0;
    }
    if (ended || e->diffs[c]) {
        flags |= CHANGED;
        e->diffs[c] = scramble(e->diffs[c] + ended) | 1;
    }
    if (kept + special) {
        flags |= EVENT;
        if (!e->diffs[c]) e->diffs[c] = scramble(events + 7) | 1;
    }
    if (e->differences) {
        uint32_t scored = 0;
        for (uint32_t i = (uint32_t)e->world.score_address, n = (uint32_t)e->world.score_size; n-- > 0; i++)
            scored |= lane_byte(e, i, c) != e->start_ram[i];
        e->differences[c] = kept + special + scored + ended ? scramble(events + 7) | 1 : 0;
    }
    if (taken) flags |= TAKEN;
    e->flags[c] = open ? UNJUDGED | END_OPEN : flags;
}

/* Hashes the complete final state of each lane. */
static void hash_lanes(engine *e) {
    const registers *r = &e->now;
    uint64_t common = scramble((uint64_t)(uint32_t)r->counter << 32 | (uint32_t)r->interval);
    common += scramble((uint64_t)(uint32_t)r->sp << 48 ^ (uint64_t)(uint32_t)r->fp << 32 ^ (uint64_t)(uint32_t)r->frames << 20 ^ r->at->address);
    for (uint32_t a = 0; a < e->ram_size; a++)
        if (!e->shadows[a]) common += scramble((uint64_t)a << 8 | e->memory[a]);
    EACH_LANE(e->set, c, {
        uint64_t hash = common;
        for (uint32_t a = 0; a < e->ram_size; a++)
            if (e->shadows[a]) hash += scramble((uint64_t)a << 8 | lane_byte(e, (uint16_t)a, c));
        for (uint32_t w = (uint32_t)r->sp; w < STACK_CELLS; w++) /* without the state of the text automaton */
            if (w != TEXT_STATE) hash += scramble((uint64_t)1 << 50 | (uint64_t)w << 16 | lane_value(e, e->stack[w], c));
        e->hashes[c] = hash;
    });
}

/* The state with which a lane's random generator began. */
static int64_t first_random(const engine *e, uint32_t c) {
    return e->random_count ? e->randoms[e->lane_of[c] % e->random_count] : e->start_random.a;
}

/* Writes the bytes that may have changed to each lane's row. */
static void keep_finals(engine *e) {
    uint32_t count = list_touched(e, 0);
    EACH_LANE(e->set, c, {
        uint8_t *row = e->finals + (size_t)e->lane_of[c] * e->ram_size;
        for (uint32_t i = 0; i < count; i++) {
            uint32_t address = e->touched[i];
            if (address < e->ram_size) row[address] = (uint8_t)lane_byte(e, address, c);
        }
    });
}

int judge(engine *e) {
    value differs;
    uint32_t mark = e->journal_length;
    begin_journal(e);
    if (!remove_wanderers(e, &differs)) {
        rollback(e, mark);
        keys_from(e, differs);
        return 0;
    }
    add_changes(e);
    rollback(e, mark);
    int counted = e->now.counter != e->start_random.counter;
    EACH_LANE(e->set, c, judge_lane(e, c, counted || lane_random(e, c) != first_random(e, c) ? RANDOM : 0););
    if (e->hashes) hash_lanes(e);
    if (e->finals) keep_finals(e);
    e->count_leaves++;
    return 1;
}

/* --- debug mode: at every merge the state of one lane is stored, and its command runs alone afterwards ---------- */

/* A hash of everything that a lane's future depends on, and of its history. */
static uint64_t hash_lane(const engine *e, uint32_t c) {
    const registers *r = &e->now;
    const history *h = &e->histories[c];
    uint64_t hash = 3 * scramble((uint64_t)(uint32_t)r->counter << 32 | (uint32_t)r->interval);
    hash += scramble((uint64_t)(uint32_t)r->sp << 48 ^ (uint64_t)(uint32_t)r->fp << 32 ^ (uint64_t)(uint32_t)r->frames << 20 ^ r->at->address);
    hash += scramble((uint64_t)2 << 50 | (uint64_t)(r->silent != 0) << 8 | (uint64_t)r->redirections);
    for (int32_t i = 0; i < r->redirections; i++) hash += scramble((uint64_t)3 << 50 | (uint64_t)i << 16 | r->redirection[i]);
    hash += scramble(h->events) + scramble((uint64_t)4 << 50 | h->hits);
    for (uint32_t k = 0; k < EVENT_KINDS; k++) hash += scramble((uint64_t)5 << 50 | k << 16 | (uint32_t)h->seen[k] << 8 | h->kept[k]);
    for (uint32_t a = 0; a < e->ram_size; a++) hash += scramble((uint64_t)a << 8 | lane_byte(e, a, c));
    for (uint32_t w = (uint32_t)r->sp; w < STACK_CELLS; w++)
        hash += scramble((uint64_t)1 << 50 | (uint64_t)w << 16 | lane_value(e, e->stack[w], c));
    return hash;
}

/* Inverts a bit in the first lane of the set, to test that debug mode finds errors. */
static void corrupt(engine *e, uint64_t random) {
    uint16_t *to;
    uint32_t address = 64 + (uint32_t)(random % (e->ram_size - 64));
    value made = new_vector(e, 1, &to);
    EACH_LANE(e->set, c, to[c] = lane_byte(e, address, c) ^ (c == e->set.first););
    store_byte(e, address, made);
}

void note_merge(engine *e) {
    uint64_t random = scramble(e->check_seed + scramble(++e->merge_number));
    if (e->merge_number == e->fault && e->ram_size > 64) corrupt(e, random >> 32);
    uint32_t lane = e->set.member[(uint32_t)random % e->set.count];
    e->checks = grow(e, e->checks, &e->check_capacity, (size_t)e->check_count + 1, sizeof *e->checks);
    e->checks[e->check_count] = (check){lane, e->check_count, e->now.at->address, e->now.sp, e->now.frames, hash_lane(e, lane)};
    e->check_count++;
}

void recognise_merge(engine *e) {
    const check *k = e->expected;
    if (k == e->expected_end || k->address != e->now.at->address || k->sp != e->now.sp || k->frames != e->now.frames) return;
    /* A part that was merged and waits again at once is merged again in the same state. */
    for (uint64_t state = hash_lane(e, 0); e->expected < e->expected_end && e->expected->state == state;) e->expected++;
}

static int by_lane(const void *a, const void *b) {
    const check *x = a, *y = b;
    return x->lane != y->lane ? (x->lane < y->lane ? -1 : 1) : x->number < y->number ? -1 : x->number > y->number;
}

/* --- a run -------------------------------------------------------------------------------------------------- */

typedef struct {
    instruction *read;
    uint32_t text, parse, most, capacity; /* where to write line and tokens, and their limits */
    int32_t sp, fp, frames;
    int is_key; /* it waits for a key: the first letter of each command */
} prompt;

/* Puts the machine where it waits for a line or a key; 0 if it is no such place. */
static int prepare(engine *e, const start_state *s, prompt *p) {
    snapshot_view view = {.ram = s->ram, .stack = (const uint8_t *)s->stack, .ram_length = e->ram_size,
                          .stack_length = 2 * (size_t)s->stack_words, .pc = s->pc, .sp = s->sp, .fp = s->fp,
                          .frames = s->frames, .opcode = s->opcode, .random_interval = s->random_interval,
                          .random_counter = s->random_counter};
    snapshot_story story = {.memory = e->memory, .size = e->size, .ram_length = e->ram_size};
    if (s->stack_words < 0 || find_snapshot_fault(&view, &story)) return 0;
    memcpy(e->memory, s->ram, e->ram_size);
    memcpy(e->start_ram, s->ram, e->ram_size);
    e->low_differs = memcmp(e->memory + e->low_first, e->low, e->low_size) != 0;
    for (int i = 0; i < s->stack_words; i++) e->stack[s->sp + i] = s->stack[i];
    e->stack[TEXT_STATE] = 0;
    set_random(e, s->random_a);
    e->start_random = (random_state){s->random_a, s->random_interval, s->random_counter};
    p->read = decode(e, (uint32_t)s->pc - 1);
    if (!p->read || p->read->opcode != s->opcode) return 0;
    p->is_key = s->opcode == SNAPSHOT_READ_KEY;
    if (memcmp(e->memory + e->dictionary, e->own_words, e->changeable_words) != 0) return 0;
    uint32_t operand[8] = {0};
    int32_t sp = s->sp;
    for (int i = 0; i < p->read->count; i++) {
        uint32_t number = p->read->operand[i];
        switch (p->read->kind[i]) {
        case CONSTANT: operand[i] = number; break;
        case LOCAL: operand[i] = (uint16_t)e->stack[s->fp - (int32_t)number]; break;
        case GLOBAL: operand[i] = raw_word(e, number); break;
        default:
            if (sp >= STACK_WORDS) return 0;
            operand[i] = (uint16_t)e->stack[sp++];
        }
    }
    p->text = operand[0];
    p->parse = p->read->count > 1 ? operand[1] : 0;
    p->sp = sp;
    p->fp = s->fp;
    p->frames = s->frames;
    if (p->is_key) {
        p->most = MAX_COMMAND;
        return 1;
    }
    p->most = e->memory[p->text];
    if (e->version <= 4 && p->most) p->most--;
    p->capacity = p->parse ? e->memory[p->parse] : 0;
    if (p->text < 64 || p->text + 3 + p->most > e->ram_size) return 0;
    if (p->parse && (p->parse < 64 || p->parse + 2 + 4 * p->capacity > e->ram_size)) return 0;
    /* Some stories' buffers are a byte too short: the last letter of the longest line overwrites the maximal number of
     * words. Such lines are not judged. */
    uint32_t fits = p->parse > p->text + 2 ? p->parse - p->text - 2 : 0;
    if (p->parse > p->text && p->most > fits) p->most = fits;
    return e->version <= 4 || e->memory[p->text + 1] == 0; /* a line that is already begun is not judged */
}

/* Whether Frotz would read the line unchanged; writes it in lower case. */
static int plain_line(const char *command, uint32_t most, uint8_t *line, uint32_t *length) {
    uint32_t n = 0;
    for (; command[n]; n++) {
        uint8_t c = (uint8_t)command[n];
        if (n == MAX_COMMAND || n == most || c < 32 || c > 126 || c == '\\' || c == '?') return 0;
        line[n] = c >= 'A' && c <= 'Z' ? (uint8_t)(c + 32) : c;
    }
    *length = n;
    return 1;
}

/* Writes the command of every lane to the text buffer. */
static void type_lines(engine *e, const prompt *p, const char *const *command, const uint32_t *lane_of) {
    uint32_t count = e->set.count, offset = e->version <= 4 ? 1 : 2, longest = 0;
    uint8_t (*line)[MAX_COMMAND + 1] = arena_take(e, &e->lane_arena, (size_t)count * sizeof *line);
    uint32_t *length = arena_take(e, &e->lane_arena, count * sizeof *length);
    token *tokens = arena_take(e, &e->lane_arena, (size_t)count * (p->capacity ? p->capacity : 1) * sizeof *tokens);
    uint8_t *counts = arena_take(e, &e->lane_arena, count);
    for (uint32_t k = 0; k < count; k++) {
        plain_line(command[lane_of[k]], p->most, line[k], &length[k]);
        if (length[k] > longest) longest = length[k];
        counts[k] = (uint8_t)tokenise(e, line[k], length[k], offset, tokens + (size_t)k * p->capacity, (int)p->capacity);
    }
    uint16_t *to;
    uint32_t terminated = e->version <= 4;
    for (uint32_t i = 0; i < longest + terminated; i++) {
        uint32_t address = p->text + offset + i;
        value made = new_vector(e, 1, &to);
        uint8_t old = e->memory[address];
        for (uint32_t k = 0; k < count; k++)
            to[e->set.member[k]] = i < length[k] ? line[k][i] : terminated && i == length[k] ? 0 : old;
        store_byte(e, address, simplify(e, made));
    }
    if (!terminated) {
        value made = new_vector(e, 1, &to);
        for (uint32_t k = 0; k < count; k++) to[e->set.member[k]] = (uint16_t)length[k];
        store_byte(e, p->text + 1, simplify(e, made));
    }
    if (p->parse) write_tokens(e, p->parse, tokens, p->capacity, counts);
}

static void reset_run(engine *e) {
    rollback(e, 0);
    e->vector_count = e->snapshot_count = e->group_count = e->stack_copy_length = e->parked_count = 0;
    e->lane_arena.top = e->member_arena.top = e->parked_arena.top = 0;
}

/* The key that ended the line, which is what `read` stores from version 5 on, or the one that was waited for. */
static value key_of_lanes(engine *e, const prompt *p, const char *const *command, const uint32_t *lane_of) {
    uint16_t *to;
    if (!p->is_key) return 13;
    value made = new_vector(e, 1, &to);
    for (uint32_t k = 0; k < e->set.count; k++) {
        const char first = command[lane_of[k]][0];
        to[e->set.member[k]] = first ? (uint16_t)first : 13;
    }
    return simplify(e, made);
}

static int store_key(engine *e, const prompt *p, value key) {
    e->now.sp = p->sp;
    if (!p->read->has_store) return 1;
    uint32_t variable = p->read->store;
    if (variable == 0) {
        if (e->now.sp == 0) return 0;
        e->stack[--e->now.sp] = key;
    } else if (variable < 16) {
        e->stack[p->fp - (int32_t)variable] = key;
    } else {
        uint32_t address = (uint16_t)(e->globals + 2 * (variable - 16));
        if (address < 64 || address + 2 > e->ram_size) return 0;
        store_word(e, address, key);
    }
    return 1;
}

/* Runs the commands lane_of[0..count), each in a lane of its own. The verdicts are by lane. */
static void run_lanes(engine *e, const start_state *s, const char *const *command, const uint32_t *lane_of, uint32_t count) {
    prompt p;
    reset_run(e);
    e->lane_count = count;
    memset(e->histories, 0, count * sizeof *e->histories);
    if (e->transcripts)
        for (uint32_t k = 0; k < count; k++) {
            transcript *t = &e->transcripts[lane_of[k]];
            t->length = t->flushed = 0;
        }
    if (!e->expected) e->check_count = 0;
    uint32_t *member = arena_take(e, &e->member_arena, count * sizeof *member);
    for (uint32_t k = 0; k < count; k++) {
        member[k] = k;
        e->flags[k] = UNJUDGED;
    }
    if (!prepare(e, s, &p)) return;
    set_lanes(e, member, count);
    e->now = (registers){.fp = p.fp, .frames = p.frames, .interval = s->random_interval, .counter = s->random_counter};
    note_turn_ends(e, p.read, p.fp, p.frames);
    e->lane_of = lane_of;
    if (e->random_count)
        for (int i = 0; i < RANDOM_WORDS; i++) {
            uint16_t *to;
            value made = new_vector(e, 0, &to);
            for (uint32_t k = 0; k < count; k++) to[k] = (uint16_t)((uint64_t)first_random(e, k) >> 16 * i);
            e->stack[RANDOM_WORD + i] = simplify(e, made);
        }
    if (!p.is_key) type_lines(e, &p, command, lane_of);
    if (!store_key(e, &p, key_of_lanes(e, &p, command, lane_of))) return;
    e->now.at = decode(e, p.read->next);
    machine_run(e);
    if (!e->stay) rollback(e, 0);
}

/* Trees are compared without wanderers, so they are removed from the start state too. */
static void make_base(engine *e, const start_state *s) {
    value differs;
    uint32_t lane = 0;
    reset_run(e);
    memcpy(e->memory, s->ram, e->ram_size);
    set_lanes(e, &lane, 1);
    remove_wanderers(e, &differs);
    memcpy(e->base_ram, e->memory, e->ram_size);
    e->moved_count = 0;
    for (uint32_t i = list_touched(e, 0); i-- > 0;)
        if (e->base_ram[e->touched[i]] != s->ram[e->touched[i]]) e->moved[e->moved_count++] = (uint16_t)e->touched[i];
    rollback(e, 0);
}

static int reserve_lanes(engine *e, uint32_t lanes_needed) {
    if (lanes_needed <= e->lane_capacity) return 1;
    uint32_t n = e->lane_capacity = lanes_needed + 16;
    free(e->histories);
    free(e->flags);
    free(e->diffs);
    free(e->keys);
    free(e->scratch_lanes);
    e->histories = malloc(n * sizeof *e->histories);
    e->flags = malloc(n);
    e->diffs = malloc(n * sizeof *e->diffs);
    e->keys = malloc(n * sizeof *e->keys);
    e->scratch_lanes = malloc(n * sizeof *e->scratch_lanes);
    if (e->histories && e->flags && e->diffs && e->keys && e->scratch_lanes) return 1;
    e->lane_capacity = 0;
    return 0;
}

/* --- the functions that Python calls -------------------------------------------------------------------------- */

typedef struct {
    const uint8_t *story;
    uint32_t size;
    world world;
    const uint16_t *special, *final;
    int32_t special_count, final_count;
    ignores ignored[EVENT_KINDS];
    const char *const *patterns;
    const uint8_t *hits;
    int32_t pattern_count;
} description;

void zset_close(engine *e) {
    if (!e) return;
    machine_free(e);
    arena_close(&e->lane_arena);
    arena_close(&e->member_arena);
    arena_close(&e->parked_arena);
    void *owned[] = {e->own_words, e->scratch, e->automaton, e->automaton_hits, e->interesting, e->special, e->final, e->shadows,
                     e->vectors, e->journal, e->snapshots, e->groups, e->stack_copies, e->parked, e->keys,
                     e->scratch_lanes, e->memos, e->mark, e->slot, e->touched, e->journaled, e->key_generation,
                     e->key_group, (void *)e->table, e->words, e->low, e->histories, e->checks, e->flags, e->diffs, e->start_ram, e->base_ram, e->moved,
                     (void *)e->world.set_mask, (void *)e->world.clear_mask, (void *)e->world.wanderers};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) free(owned[i]);
    free(e);
}

static void *copy_of(const void *from, size_t bytes) {
    void *copy = malloc(bytes ? bytes : 1);
    if (copy && bytes) memcpy(copy, from, bytes);
    return copy;
}

static int fill_world(engine *e, const description *d) {
    world *w = &e->world;
    *w = d->world;
    w->set_mask = copy_of(d->world.set_mask, e->ram_size);
    w->clear_mask = copy_of(d->world.clear_mask, e->ram_size);
    w->wanderers = copy_of(d->world.wanderers, (size_t)w->wanderer_count * sizeof *w->wanderers);
    e->special = copy_of(d->special, (size_t)d->special_count * sizeof *e->special);
    e->final = copy_of(d->final, (size_t)d->final_count * sizeof *e->final);
    e->interesting = calloc(MEMORY, 1);
    if (!w->set_mask || !w->clear_mask || !w->wanderers || !e->special || !e->final || !e->interesting) return 0;
    e->special_count = d->special_count;
    e->final_count = d->final_count;
    memcpy(e->ignored, d->ignored, sizeof e->ignored);
    for (uint32_t a = 0; a < e->ram_size; a++) e->interesting[a] = w->set_mask[a] | w->clear_mask[a];
    /* The object table must be inside RAM, because links are read and written without further checks. */
    uint64_t end = w->first_object + (uint64_t)w->object_count * (w->small ? 9 : 14);
    return w->first_object >= 64 && w->object_count >= 0 && end <= e->ram_size && w->score_address >= 0 &&
           w->score_size >= 0 && w->score_address + (int64_t)w->score_size <= (int64_t)e->ram_size;
}

static int take_memory(engine *e) {
    const size_t gigabyte = (size_t)1 << 30;
    e->scratch = malloc(sizeof *e->scratch + (1 << 16) + 64);
    e->shadows = calloc(MEMORY, sizeof *e->shadows);
    e->memos = calloc(0x10000, sizeof *e->memos);
    e->mark = calloc(MEMORY, sizeof *e->mark);
    e->slot = calloc(MEMORY, sizeof *e->slot);
    e->touched = calloc(MEMORY, sizeof *e->touched);
    e->journaled = calloc(MEMORY, sizeof *e->journaled);
    e->key_generation = calloc(0x10000, sizeof *e->key_generation);
    e->key_group = calloc(0x10000, sizeof *e->key_group);
    e->words = calloc(8192, sizeof *e->words);
    e->start_ram = calloc(MEMORY, 1);
    e->base_ram = calloc(MEMORY, 1);
    e->moved = calloc(MEMORY, sizeof *e->moved);
    e->stack = e->stack_ + STACK_GUARD;
    return e->scratch && e->shadows && e->memos && e->mark && e->slot && e->touched && e->journaled && e->key_generation &&
           e->key_group && e->words && e->start_ram && e->base_ram && e->moved && arena_open(&e->lane_arena, 2 * gigabyte) &&
           arena_open(&e->member_arena, gigabyte) && arena_open(&e->parked_arena, 2 * gigabyte);
}

/* Makes an engine for a story; NULL if the story cannot be run, or there is no memory. */
engine *zset_open(const description *d) {
    engine *e = calloc(1, sizeof *e);
    if (!e) return NULL;
    if (machine_load(e, d->story, d->size) == 0 && text_low(e) == 0 && text_dictionary(e) == 0 && fill_world(e, d) && take_memory(e) &&
        text_patterns(e, d->patterns, d->hits, d->pattern_count) == 0) {
        text_separators(e);
        return e;
    }
    zset_close(e);
    return NULL;
}

enum { BATCH = 4096 }; /* lanes in a set: with more, vectors do not fit into the processor's cache */

/* Runs the commands whose states were stored at merges alone: each must pass every stored state in order, and end in
 * the same state with the same verdict. No state occurs twice in a run that ends, so the check is exact. */
static void run_noted(engine *e, const start_state *s, const char *const *command, const uint32_t *lane_of,
                      const uint8_t *flags, const uint64_t *diffs, const uint64_t *hashes) {
    qsort(e->checks, e->check_count, sizeof *e->checks, by_lane);
    for (uint32_t i = 0, end; i < e->check_count && e->wrong_command < 0; i = end) {
        uint32_t lane = e->checks[i].lane, index = lane_of[lane];
        for (end = i; end < e->check_count && e->checks[end].lane == lane;) end++;
        e->expected = e->checks + i;
        e->expected_end = e->checks + end;
        run_lanes(e, s, command, lane_of + lane, 1);
        int differs = !((e->flags[0] | flags[index]) & UNJUDGED) &&
                      (e->flags[0] != flags[index] || e->diffs[0] != diffs[index] || e->hashes[0] != hashes[index]);
        if (e->expected < e->expected_end || differs) {
            e->wrong_command = index;
            e->wrong_address = e->expected < e->expected_end ? (int64_t)e->expected->address : -1;
        } else {
            e->checks_passed += end - i;
        }
        e->expected = NULL;
    }
}

/* The output arrays, by command; all but the first two may be NULL. */
typedef struct {
    uint8_t *flags;
    uint64_t *diffs, *hashes, *differences, *watches;
} verdicts;

/* Runs a range of commands in one set, or in smaller ones if there is not enough memory. */
static void run_range(engine *e, const start_state *s, const char *const *command, const uint32_t *lane_of, uint32_t count,
                      const verdicts *to) {
    if (setjmp(e->no_memory)) {
        rollback(e, 0);
        e->expected = NULL;
        if (count > 1) {
            run_range(e, s, command, lane_of, count / 2, to);
            run_range(e, s, command, lane_of + count / 2, count - count / 2, to);
        }
        return;
    }
    run_lanes(e, s, command, lane_of, count);
    const uint32_t masks = (uint32_t)e->watched_masks;
    for (uint32_t k = 0; k < count; k++) {
        uint32_t i = lane_of[k];
        int judged = !(e->flags[k] & UNJUDGED);
        to->flags[i] = e->flags[k];
        to->diffs[i] = judged ? e->diffs[k] : 0;
        if (to->hashes) to->hashes[i] = e->hashes[k];
        if (to->differences) to->differences[i] = judged ? e->differences[k] : 0;
        for (uint32_t m = 0; to->watches && m < masks; m++)
            to->watches[(size_t)i * masks + m] = judged ? e->watches[(size_t)m * count + k] : 0;
    }
    if (e->checking) run_noted(e, s, command, lane_of, to->flags, to->diffs, to->hashes);
}

/* Runs commands in as many sets as necessary. */
static void run_all(engine *e, const start_state *s, const char *const *command, const uint32_t *lane_of, uint32_t count,
                    int32_t mode, const verdicts *to) {
    uint32_t most = mode == ALONE ? 1 : BATCH;
    for (uint32_t i = 0; i < count; i += most)
        run_range(e, s, command, lane_of + i, count - i < most ? count - i : most, to);
}

/* For `count` commands that were run with the first of `each` random numbers: writes those that drew random numbers,
 * with all further numbers, to `lane_of`, and returns how many lanes these are. All others have the same result for any
 * number. */
static uint32_t leave_chancy(uint32_t *lane_of, uint32_t count, uint32_t each, const verdicts *to) {
    uint32_t left = 0;
    for (uint32_t i = 0; i < count * each; i += each) {
        const uint8_t flags = to->flags[i];
        for (uint32_t k = i + 1; k < i + each; k++) {
            if (flags & RANDOM && !(flags & UNJUDGED)) {
                lane_of[left++] = k;
                continue;
            }
            to->flags[k] = flags;
            to->diffs[k] = to->diffs[i];
        }
    }
    return left;
}

/* Runs each command (NUL-terminated, concatenated) from a state and writes its verdict: flags and hashes as
 * bridge_filter does, and UNJUDGED for commands that must be run there.
 *
 * With several `randoms` each command is run with each of them as the state of the random generator, all in the same
 * sets; results are ordered by command and number. With `first_alone` only commands that draw random numbers are run
 * with more than the first, which is the state's own: results that are not computed have no hash, and watches are those
 * with the first. `mode`: each command alone, in sets that are only split, in sets that are also merged, or the last
 * with checks (needs hashes; see zset_checked). Optional outputs: `hashes` of each command's final state,
 * `differences`, hashes of Jericho's world difference (0 for none), `watches`, hashes of the changes of the bits in
 * each of some masks in `watched` (rows of one byte for each of RAM), ordered by command, number and mask, and
 * `transcripts`, the printed texts, for one random number only. */
int zset_filter(engine *e, const start_state *s, const int64_t *randoms, int32_t random_count, int32_t first_alone,
                const char *commands, int32_t count, uint64_t limit, int32_t mode, uint8_t *flags, uint64_t *diffs,
                uint64_t *hashes, uint64_t *differences, const uint8_t *watched, int32_t masks, uint64_t *watches,
                transcript *transcripts) {
    verdicts to = {flags, diffs, hashes, differences, watches};
    e->checks_passed = e->merge_number = 0;
    e->wrong_command = e->wrong_address = -1;
    if (count <= 0) return 0;
    uint32_t each = random_count > 1 ? (uint32_t)random_count : 1, n = (uint32_t)count * each, plain = 0;
    first_alone = first_alone && each > 1;
    e->randoms = randoms;
    e->random_count = random_count > 1 && !first_alone ? each : 0;
    const char **command = malloc(n * sizeof *command);
    uint32_t *lane_of = malloc(n * sizeof *lane_of);
    uint64_t *own_hashes = hashes ? malloc(n * sizeof *own_hashes) : NULL;
    uint64_t *own_differences = differences ? malloc(n * sizeof *own_differences) : NULL;
    uint64_t *own_watches = watches ? malloc((size_t)n * (uint32_t)masks * sizeof *own_watches) : NULL;
    int capacity = command && lane_of && (own_hashes || !hashes) && (own_differences || !differences) &&
               (own_watches || !watches);
    volatile int result = -1;
    if (capacity && reserve_lanes(e, n) && !setjmp(e->no_memory)) {
        prompt p;
        e->limit = limit > 2 ? limit - 2 : 0; /* frotz_bridge.c counts instructions slightly differently */
        e->merging = mode >= MERGING;
        e->checking = mode == CHECKING && hashes;
        e->stay = 0;
        e->transcripts = transcripts;
        e->hashes = own_hashes;
        e->differences = own_differences;
        e->watches = own_watches;
        e->watched = watches ? watched : NULL;
        e->watched_masks = masks;
        make_base(e, s);
        int ready = prepare(e, s, &p);
        const char *next = commands;
        for (uint32_t i = 0; i < n; next += (i + 1) % each ? 0 : strlen(next) + 1, i++) {
            uint8_t line[MAX_COMMAND + 1];
            uint32_t length;
            command[i] = next;
            flags[i] = UNJUDGED;
            diffs[i] = 0;
            if (first_alone && i % each) continue;
            if (ready && plain_line(next, p.most, line, &length)) lane_of[plain++] = i;
        }
        run_all(e, s, command, lane_of, plain, mode, &to);
        if (first_alone) {
            uint32_t chancy = leave_chancy(lane_of, (uint32_t)count, each, &to);
            e->random_count = each;
            e->watched = NULL;
            to.watches = NULL;
            run_all(e, s, command, lane_of, chancy, mode, &to);
        }
        result = 0;
    }
    free(command);
    free(lane_of);
    free(own_hashes);
    free(own_differences);
    free(own_watches);
    e->hashes = e->differences = e->watches = NULL;
    e->watched = NULL;
    e->transcripts = NULL;
    e->expected = NULL;
    e->checking = 0;
    arena_trim(&e->lane_arena);
    arena_trim(&e->parked_arena);
    return result;
}

/* Does what zset_filter does for one random number and merged sets, and also writes the RAM after each command to
 * `finals`, in rows of RAM's size; the rows of UNJUDGED commands are undefined. */
int zset_finals(engine *e, const start_state *s, const char *commands, int32_t count, uint64_t limit, uint8_t *flags,
                uint64_t *diffs, uint8_t *finals) {
    for (int32_t i = 0; i < count; i++) memcpy(finals + (size_t)i * e->ram_size, s->ram, e->ram_size);
    e->finals = finals;
    int failed = zset_filter(e, s, &s->random_a, 1, 0, commands, count, limit, MERGING, flags, diffs, NULL, NULL, NULL, 0,
                             NULL, NULL);
    e->finals = NULL;
    return failed;
}

/* What Jericho says of each of the commands of the next zset_filter, which must be of one random number: for those that
 * are END_OPEN without it. NULL: it was not asked. */
void zset_endings(engine *e, const uint8_t *endings) { e->endings = endings; }

/* Sets the seed by which debug mode chooses lanes, and the merge that it corrupts (0: none). */
void zset_check(engine *e, uint64_t seed, uint32_t fault) {
    e->check_seed = seed;
    e->fault = fault;
}

/* Returns the results of the last run in debug mode: number of right states, and command and address of a wrong one. */
void zset_checked(const engine *e, int64_t found[3]) {
    found[0] = e->checks_passed;
    found[1] = e->wrong_command;
    found[2] = e->wrong_address;
}

/* The state after one command, for comparison with Frotz. */
typedef struct {
    uint8_t *ram;
    uint16_t *stack; /* 1,024 words */
    int32_t pc, sp, fp, frames, opcode;
    int64_t random_a;
    int32_t random_interval, random_counter;
    uint8_t *text;
    uint32_t text_length, text_capacity;
} end_state;

/* Returns the verdict on one command, and the complete state after it. */
int zset_step(engine *e, const start_state *s, const char *command, uint64_t limit, end_state *end) {
    const char *one[1] = {command};
    const uint32_t lane_of[1] = {0};
    transcript t = {.bytes = end->text, .capacity = end->text_capacity};
    prompt p;
    if (!reserve_lanes(e, 1) || setjmp(e->no_memory)) {
        e->transcripts = NULL;
        return UNJUDGED;
    }
    e->limit = limit;
    e->merging = 0;
    e->hashes = NULL;
    e->random_count = 0;
    e->stay = 1;
    e->transcripts = &t;
    make_base(e, s);
    uint8_t line[MAX_COMMAND + 1];
    uint32_t length;
    int ready = prepare(e, s, &p) && plain_line(command, p.most, line, &length);
    if (ready) run_lanes(e, s, one, lane_of, 1);
    e->transcripts = NULL;
    if (!ready) return UNJUDGED;
    memcpy(end->ram, e->memory, e->ram_size);
    for (int i = 0; i < STACK_WORDS; i++) end->stack[i] = (uint16_t)e->stack[i];
    if (e->now.at) {
        end->pc = (int32_t)e->now.at->address + 1;
        end->opcode = e->now.at->opcode;
    }
    end->sp = e->now.sp;
    end->fp = e->now.fp;
    end->frames = e->now.frames;
    end->random_a = lane_random(e, 0);
    end->random_interval = e->now.interval;
    end->random_counter = e->now.counter;
    end->text_length = t.length;
    rollback(e, 0);
    return e->flags[0];
}

/* Returns the counters of all runs so far: instructions, splits, parked parts, merges, numbers in new vectors, ends. */
void zset_counts(const engine *e, uint64_t counts[6]) {
    const uint64_t all[6] = {e->count_instructions, e->count_splits, e->count_parked,
                             e->count_merges,       e->count_lanes,  e->count_leaves};
    memcpy(counts, all, sizeof all);
}
