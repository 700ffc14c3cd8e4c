/* What the verdicts on thousands of commands come to: a number for what each does to the world, and which of the forms
 * with two names do so many different things that a story's carelessness must be behind it.
 *
 * One pass over what the threads have left is all that is wanted here, while they wait. */
#include "zset.h"

#include <stdlib.h>

/* A column of verdicts, which may be one of several that lie between each other. */
typedef struct {
    const uint8_t *flags, *diffs;
    int64_t flags_step, diffs_step;
} column;

static uint64_t effect_of(uint8_t flags, const uint8_t *diff) {
    uint64_t effect = 0;
    if ((flags & (CHANGED | TAKEN)) == CHANGED) memcpy(&effect, diff, sizeof effect);
    return effect;
}

/* A number for what each of `count` commands does: equal for equal effects, 0 for none, or if it does not come to an end
 * with one of the random numbers. There is a column for each of those; what draws none has the effect of the first.
 * `touched` receives the commands that touch the object tree and leave it as it is, but change what is watched in a way that
 * is not among `idle`, and `chancy` how many commands draw random numbers. Returns how many were touched. */
int32_t zset_effects(const column *columns, int32_t column_count, const uint8_t *watches, int64_t watches_step,
                     int32_t count, const uint64_t *idle, int32_t idle_count, uint64_t *effects, int32_t *touched,
                     int32_t *chancy) {
    int32_t found = 0;
    *chancy = 0;
    for (int32_t i = 0; i < count; i++) {
        const uint8_t flags = columns->flags[i * columns->flags_step];
        uint64_t effect = effect_of(flags, columns->diffs + i * columns->diffs_step);
        int stopped = flags & STOPPED;
        if (flags & RANDOM) {
            ++*chancy;
            for (const column *c = columns + 1; c < columns + column_count; c++) {
                const uint8_t again = c->flags[i * c->flags_step];
                stopped |= again & STOPPED;
                /* 0 if all effects are 0, and else as good as never. */
                effect = effect * 0x9E3779B97F4A7C15u + effect_of(again, c->diffs + i * c->diffs_step);
            }
        }
        effects[i] = stopped ? 0 : effect;
        if (stopped || effect || (flags & (TAKEN | EVENT)) != EVENT) continue;
        uint64_t watch;
        memcpy(&watch, watches + i * watches_step, sizeof watch);
        int32_t k = 0;
        while (k < idle_count && idle[k] != watch) k++;
        if (watch && k == idle_count) touched[found++] = i;
    }
    return found;
}

/* How many different effects other than 0 the commands with these numbers have, of those names that are `wanted`; -1
 * stands for no command. `seen` has room for all of them. */
static int32_t kinds(const uint64_t *effects, const int32_t *commands, int32_t step, const uint8_t *wanted, int32_t names,
                     uint64_t *seen) {
    int32_t count = 0;
    for (int32_t i = 0; i < names; i++) {
        const int32_t command = commands[i * step];
        const uint64_t effect = wanted[i] && command >= 0 ? effects[command] : 0;
        int32_t k = 0;
        if (!effect) continue;
        while (k < count && seen[k] != effect) k++;
        if (k == count) seen[count++] = effect;
    }
    return count;
}

/* For each form with two names, given as the square of its commands: behind which second names so many `fixed` first
 * names as `taken_least` have different effects, and likewise before which first names `aimed_least` second ones. Returns
 * how many such there are, -1 if there is no memory. */
int32_t zset_suspects(const uint64_t *effects, const int32_t *squares, int32_t forms, int32_t names, const uint8_t *fixed,
                      int32_t taken_least, int32_t aimed_least, uint8_t *taken, uint8_t *aimed) {
    int32_t found = 0;
    uint64_t *seen = malloc((size_t)names * sizeof *seen);
    if (!seen) return -1;
    for (int32_t form = 0; form < forms; form++, squares += names * names)
        for (int32_t i = 0; i < names; i++) {
            *taken = kinds(effects, squares + i, names, fixed, names, seen) >= taken_least;
            *aimed = kinds(effects, squares + i * names, 1, fixed, names, seen) >= aimed_least;
            found += *taken++ + *aimed++;
        }
    free(seen);
    return found;
}
