/* Statistics over the verdicts on thousands of commands: an id for the effect of each, and the templates with two names
 * that have so many different effects that an error of the story is the likely cause.
 *
 * It runs while the threads wait, so it passes over the results only once. */
#include "zset.h"

#include <stdlib.h>

/* A column of verdicts, which may be interleaved with others. */
typedef struct {
    const uint8_t *flags, *diffs;
    int64_t flags_step, diffs_step;
} column;

static uint64_t effect_of(uint8_t flags, const uint8_t *diff) {
    uint64_t effect = 0;
    if ((flags & (CHANGED | TAKEN)) == CHANGED) memcpy(&effect, diff, sizeof effect);
    return effect;
}

/* Writes an id for the effect of each of `count` commands: equal for equal effects, 0 for none or if the command does
 * not end with one of the random numbers. There is a column of verdicts for each random number; a command that draws
 * none has the effect of the first. `touched` receives the commands that write to the object tree without changing it,
 * but change the watched bits in a way that is not in `idle`; `chancy` the number of commands that draw random numbers.
 * Returns the number of `touched`. */
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
                /* 0 if all effects are 0, and otherwise practically never. */
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

/* Returns the number of different effects other than 0 of these commands (-1 for none), of the names that are `wanted`.
 * `seen` is a buffer for all of them. */
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

/* For each template with two names, given as the square of its commands: finds the second names with which at least
 * `taken_least` of the `fixed` first names have different effects, and the first names with which at least
 * `aimed_least` second ones have. Returns their number, -1 if there is no memory. */
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
