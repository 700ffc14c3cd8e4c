/* Merge points of sets that were split in a routine that may not return in this turn.
 *
 * A parser that does not understand a line reads another one itself, and a game's main loop never ends, so parts cannot
 * be merged at the return of such a routine. They are merged inside it: at the first instruction that all paths pass.
 * Paths out of the routine do not count, because parts that take them are merged in the calling routine. A badly chosen
 * point does no harm: a part that never reaches it runs alone.
 *
 * Every routine could have merge points, but in most they cost more than they save. Beside the routines on the stack at
 * the prompt they are used in the outermost one, where Infocom's games select the code of an action. */
#include "zset.h"

enum { MOST_NODES = 4096, MOST_TRIED = 256, OUTERMOST = 2, NOWHERE = -1, UNKNOWN_PLACE = -2 };

typedef struct {
    instruction *in;
    int32_t to[2];                    /* the nodes that may follow, or NOWHERE */
    int32_t from;                     /* the node before on the shortest path from the start */
    uint8_t waits, returns, goes_back; /* ends the turn; leaves the routine; may lead to the start */
    uint8_t is_end_text;
} node;

typedef struct {
    engine *e;
    node *nodes;
    int32_t count, *queue;
    uint16_t *number; /* by address: index of the node, from 1; 0: not found yet */
    uint8_t *seen;
} graph;

static int32_t node_at(graph *g, uint32_t address, int32_t from) {
    instruction *in = decode(g->e, address);
    if (!in) return UNKNOWN_PLACE;
    if (!g->number[address]) {
        if (g->count == MOST_NODES) return UNKNOWN_PLACE;
        g->nodes[g->count] = (node){.in = in, .to = {NOWHERE, NOWHERE}, .from = from};
        g->number[address] = (uint16_t)++g->count;
    }
    return g->number[address] - 1;
}

/* Finds all nodes that can follow the first, breadth first. Returns 0 if that is not possible. */
static int explore(graph *g, uint32_t address, uint32_t turn_end) {
    if (node_at(g, address, NOWHERE) < 0) return 0;
    for (int32_t i = 0; i < g->count; i++) {
        node *n = &g->nodes[i];
        uint32_t next[2];
        int count = follows(n->in, next);
        n->waits = n->in->next - n->in->has_store == turn_end;
        n->returns = !count;
        for (int k = 0; k < count && !n->waits; k++) {
            n->to[k] = node_at(g, next[k], i);
            if (n->to[k] < 0) return 0;
            n->goes_back |= n->to[k] == 0;
        }
    }
    return 1;
}

/* Marks the ends of paths: where the turn ends; in a routine in which it cannot, before the start is reached again; and
 * where the routine returns. Returns whether the turn can end here. */
static int mark_ends(graph *g) {
    int waits = 0, goes_back = 0;
    for (int32_t i = 0; i < g->count; i++) {
        waits |= g->nodes[i].waits;
        goes_back |= g->nodes[i].goes_back;
    }
    for (int32_t i = 0; i < g->count; i++) {
        node *n = &g->nodes[i];
        n->is_end_text = waits ? n->waits : goes_back ? n->goes_back : n->returns;
    }
    return waits;
}

/* Whether there is a path from the start to an end without this node. */
static int can_avoid(graph *g, int32_t avoided) {
    int32_t head = 0, tail = 0;
    memset(g->seen, 0, (size_t)g->count);
    g->seen[avoided] = g->seen[0] = 1;
    g->queue[tail++] = 0;
    while (head < tail) {
        const node *n = &g->nodes[g->queue[head++]];
        if (n->is_end_text) return 1;
        for (int k = 0; k < 2; k++)
            if (n->to[k] >= 0 && !g->seen[n->to[k]]) {
                g->seen[n->to[k]] = 1;
                g->queue[tail++] = n->to[k];
            }
    }
    return 0;
}

/* The first node that is on every path: it must be on the shortest one. */
static instruction *find_place(graph *g) {
    int32_t path[MOST_TRIED], length = 0, end = 0;
    while (end < g->count && !g->nodes[end].is_end_text) end++;
    if (end == g->count) return NULL;
    for (int32_t i = end; i > 0; i = g->nodes[i].from) length++;
    for (int32_t i = end, k = length; i > 0; i = g->nodes[i].from)
        if (--k < MOST_TRIED) path[k] = i;
    for (int32_t k = 0; k < length && k < MOST_TRIED; k++)
        if (!can_avoid(g, path[k])) return g->nodes[path[k]].in;
    return NULL;
}

static merge_point analyse(engine *e, uint32_t address, uint32_t turn_end) {
    merge_point found = {.turn_end = turn_end};
    size_t mark = e->lane_arena.top;
    graph g = {.e = e};
    g.nodes = arena_take(e, &e->lane_arena, MOST_NODES * sizeof *g.nodes);
    g.queue = arena_take(e, &e->lane_arena, MOST_NODES * sizeof *g.queue);
    g.seen = arena_take(e, &e->lane_arena, MOST_NODES);
    g.number = arena_take(e, &e->lane_arena, e->size * sizeof *g.number);
    memset(g.number, 0, e->size * sizeof *g.number);
    if (explore(&g, address, turn_end)) {
        found.waits = mark_ends(&g);
        found.at = find_place(&g);
    }
    e->lane_arena.top = mark;
    return found;
}

const instruction *find_merge_point(engine *e, const instruction *in, int32_t frames) {
    if (frames < 0 || frames > e->prompt_frames || frames >= MOST_FRAMES) return NULL;
    merge_point *known = &e->merge_points[in->address];
    if (!known->turn_end || known->turn_end != e->turn_ends[frames]) {
        *known = analyse(e, in->address, e->turn_ends[frames]);
        if (known->at) wait_at(known->at);
    }
    return known->waits || frames <= OUTERMOST ? known->at : NULL;
}

void note_turn_ends(engine *e, const instruction *read, int32_t fp, int32_t frames) {
    uint32_t at = read->next - read->has_store;
    memset(e->turn_ends, 0, sizeof e->turn_ends);
    e->prompt_frames = frames;
    for (; frames >= 0; frames--) {
        if (frames < MOST_FRAMES) e->turn_ends[frames] = at;
        if (fp > STACK_WORDS - 4) return;
        at = (e->stack[fp + 3] & 0xFFFF) << 9 | (e->stack[fp + 2] & 0xFFFF);
        fp = 1 + (int32_t)(e->stack[fp + 1] & 0xFFFF);
    }
}
