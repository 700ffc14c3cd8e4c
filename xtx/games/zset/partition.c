/* Partition of the commands of a state into parts for several engines.
 *
 * Commands of different parts share no work, so there should be few parts; but an engine cannot help with another's
 * part, so the parts should have equal costs. The cost of a command depends mostly on its kind, so the average cost of
 * each kind is learned from search to search. Costs are counted in instructions, not in time, so the partition is
 * reproducible. */
#include "zset.h"

#include <stdlib.h>

/* Cost of the first command of a row with the same verb relative to those that follow it. */
enum { ROW = 16 };
/* Most lanes of a part: larger sets do not fit into the processor's cache. */
enum { MOST = 2048 };
/* If an engine has more lanes than this, the last parts are smaller, to balance the load: the share of the rest that is
 * split into such parts, in percent. */
enum { FEW = 1500, GAPS = 15 };

/* Whether the command before this one is of the same group, and so has the same verb. Its kind is assumed to be the
 * same, although a name of two words may change it. */
static int as_before(const cutting *c, uint32_t i) { return c->groups && i && c->groups[i] == c->groups[i - 1]; }

/* Whether the command before this one has the same verb. */
static int same_verb(const cutting *c, uint32_t i) {
    if (as_before(c, i)) return 1;
    const char *a = c->commands[i - 1], *b = c->commands[i];
    for (; *a == *b; a++, b++)
        if (!*a || *a == ' ') return 1;
    return (!*a || *a == ' ') && (!*b || *b == ' ');
}

/* Commands are of one kind if they have the same first word, and one, two, or more words. */
static uint32_t kind_of(const char *command) {
    uint32_t hash = 2166136261u, words = 0;
    for (; *command && *command != ' '; command++) hash = (hash ^ (uint8_t)*command) * 16777619u;
    for (; *command; command++) words += *command == ' ';
    return (hash ^ (words < 3 ? words : 3) * 0x9E3779B9u) >> 7 & (KINDS - 1);
}

void cut_begin(prices *p) {
    for (uint32_t i = 0; i < KINDS; i++) p->price[i] = 1;
}

/* Fills sum[i] with the estimated cost of the commands before the i-th. */
static void add_up(const prices *p, const cutting *c, float *sum) {
    double total = 0;
    float price = 1;
    for (uint32_t i = 0; i < c->count; i++) {
        sum[i] = (float)total;
        if (!as_before(c, i)) price = p->price[kind_of(c->commands[i])];
        total += price * (float)(i && same_verb(c, i) ? 1 : 1 + ROW);
    }
    sum[c->count] = (float)total;
}

/* Returns the end of a part, moved to a nearby change of the verb: commands with the same verb stay together longest,
 * so it is expensive to run them in two sets. */
static uint32_t between_verbs(const cutting *c, const float *sum, uint32_t first, uint32_t end) {
    const float near = (sum[end] - sum[first]) / 16;
    uint32_t later = end, before = end;
    while (later < c->count && same_verb(c, later)) later++;
    while (before > first + 1 && same_verb(c, before)) before--;
    float up = sum[later] - sum[end], down = sum[end] - sum[before];
    if (later < c->count && up <= near && (up <= down || before == first + 1)) return later;
    return before > first + 1 && down <= near ? before : end;
}

static int dearest_first(const void *a, const void *b) {
    const job *x = a, *y = b;
    if (x->expected != y->expected) return x->expected > y->expected ? -1 : 1;
    return x->first < y->first ? -1 : x->first > y->first;
}

/* Works in rounds. In each, every engine gets a part; together they are most of the rest, or all of it if too little
 * would be left for another round. */
static uint32_t deal(const cutting *c, const float *sum, uint32_t each, uint32_t engines, uint32_t least, job *jobs) {
    const uint32_t count = c->count;
    uint32_t n = 0, in_round = engines, most = MOST / each ? MOST / each : 1;
    const int few = (uint64_t)each * count < (uint64_t)engines * FEW;
    float size = 0;
    for (uint32_t first = 0, end; first < count; first = end, n++) {
        float left = sum[count] - sum[first];
        if (in_round++ >= engines) {
            int last = few || (uint64_t)(count - first) * GAPS / 100 < (uint64_t)engines * least;
            size = (last ? left : left * (100 - GAPS) / 100) / (float)engines;
            in_round = 1;
        }
        for (end = first + 1; end < count && end - first < most && sum[end] - sum[first] < size;) end++;
        if (end < count) end = between_verbs(c, sum, first, end);
        if (end + least / 2 > count && count - first <= most) end = count;
        float expected = sum[end] - sum[first];
        if (jobs) jobs[n] = (job){.first = first, .count = end - first, .expected = expected};
    }
    return n;
}

uint32_t cut(const prices *p, const cutting *c, uint32_t each, uint32_t engines, uint32_t least, job **jobs) {
    float *sum = malloc(((size_t)c->count + 1) * sizeof *sum);
    *jobs = NULL;
    uint32_t n = 0;
    least = (least + each - 1) / each;
    if (sum) {
        add_up(p, c, sum);
        n = deal(c, sum, each, engines, least, NULL);
        *jobs = malloc(n * sizeof **jobs);
        if (*jobs) {
            deal(c, sum, each, engines, least, *jobs);
            qsort(*jobs, n, sizeof **jobs, dearest_first);
        }
    }
    free(sum);
    return *jobs ? n : 0;
}

void cut_learn(prices *p, const cutting *c, const job *jobs, uint32_t count) {
    double cost = 0, expected = 0;
    for (uint32_t j = 0; j < count; j++) {
        cost += (double)jobs[j].cost;
        expected += jobs[j].expected;
    }
    if (count < 2 || cost <= 0 || expected <= 0) return;
    for (uint32_t j = 0; j < count; j++) {
        float off = (float)((double)jobs[j].cost * expected / (cost * jobs[j].expected)), step = (1 + off) / 2;
        if (step > 2) step = 2;
        uint32_t kind, last = KINDS;
        for (uint32_t i = jobs[j].first; i < jobs[j].first + jobs[j].count; i++, last = kind) {
            kind = last != KINDS && as_before(c, i) ? last : kind_of(c->commands[i]);
            if (kind == last) continue; /* once for each row */
            float price = p->price[kind] * step;
            p->price[kind] = price < 0.05f ? 0.05f : price > 20 ? 20 : price;
        }
    }
}
