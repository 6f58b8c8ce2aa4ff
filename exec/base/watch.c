#include "exec/base/watch.h"

#include <stdatomic.h>
#include <string.h>

enum { TYPICAL_AFTER = 2 }; /* steps of a plan that may take longer than later ones */

static struct watch_post own;
static struct watch_post *post = &own;
static int steps_of_plan;

void watch_use(struct watch_post *shared)
{
    post = shared;
}

static void write_text(struct watch_text *text, const char *from)
{
    uint64_t words[WATCH_TEXT_WORDS] = {0};
    strncpy((char *)words, from, WATCH_TEXT - 1);
    for (int i = 0; i < WATCH_TEXT_WORDS; i++)
        atomic_store_explicit(&text->words[i], words[i], memory_order_relaxed);
}

void watch_read(const struct watch_text *text, char out[WATCH_TEXT])
{
    uint64_t words[WATCH_TEXT_WORDS];
    for (int i = 0; i < WATCH_TEXT_WORDS; i++)
        words[i] = atomic_load_explicit(&text->words[i], memory_order_relaxed);
    memcpy(out, words, WATCH_TEXT);
    out[WATCH_TEXT - 1] = '\0';
}

#define PUT(member, value) atomic_store_explicit(&post->member, value, memory_order_relaxed)

/* Only this thread writes beats. */
static void beat(void)
{
    const uint64_t beats = atomic_load_explicit(&post->beats, memory_order_relaxed);
    atomic_store_explicit(&post->beats, beats + 1, memory_order_release);
}

void watch_phase(const char *phase)
{
    write_text(&post->doing, phase);
    PUT(stage, -1);
    PUT(microbatch, -1);
    PUT(in_step, false);
    beat();
}

void watch_plan(void)
{
    steps_of_plan = 0;
    PUT(step_ns, 0);
}

void watch_step(int64_t step)
{
    watch_phase("step");
    PUT(step, step);
    PUT(in_step, true);
    beat();
}

void watch_step_end(int64_t step_ns)
{
    const int64_t most = atomic_load_explicit(&post->step_ns, memory_order_relaxed);
    if (++steps_of_plan > TYPICAL_AFTER && step_ns > most)
        PUT(step_ns, step_ns);
    watch_phase("steps");
}

void watch_op(const char *kind, int stage, int microbatch)
{
    write_text(&post->doing, kind);
    PUT(stage, stage);
    PUT(microbatch, microbatch);
    beat();
}

void watch_wait(const char *what, int peer, int num_peers)
{
    write_text(&post->waits_for, what);
    PUT(peer, peer);
    PUT(num_peers, num_peers);
    PUT(waits, true);
    beat();
}

void watch_wait_end(void)
{
    PUT(waits, false);
    beat();
}

void watch_files(bool waits)
{
    PUT(reads_data, waits);
    beat();
}
