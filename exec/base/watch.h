/* exec/base/watch.h - notes what this rank is doing now, for the watchdog (exec/comm/watchdog.h).
 *
 * The main thread notes its phase, its op and each wait for other ranks in its post. Before
 * watchdog_start() the post is memory of this process, afterwards it is shared with the ranks of
 * this machine. Every note is a beat: a rank without a new beat stands still, if it waits for other
 * ranks or is within a step. Outside of steps, a rank that does not wait is at work, for example on
 * a checkpoint, however long that takes. Only the main thread calls these functions; each costs
 * some stores. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { WATCH_TEXT_WORDS = 4, WATCH_TEXT = 8 * WATCH_TEXT_WORDS }; /* bytes with the ending 0 */

/* A text that another thread or process may read while it is written. It may then be torn. */
struct watch_text {
    _Atomic uint64_t words[WATCH_TEXT_WORDS];
};

/* A rank's post. All members may be read at any time. */
struct watch_post {
    _Alignas(64) _Atomic uint64_t beats; /* of the main thread */
    _Atomic uint64_t ticks;              /* of the watching thread, while the process runs */
    _Atomic int64_t step;                /* the step that it is in or after */
    _Atomic int64_t step_ns;             /* the longest step under this plan; 0: too few steps */
    _Atomic bool in_step, waits, reads_data;
    _Atomic int stage, microbatch, peer, num_peers;
    struct watch_text doing, waits_for;
};

/* The phase outside of steps, as a noun: "checkpoint". */
void watch_phase(const char *phase);
/* A new plan or its first steps: how long its steps take is not known. */
void watch_plan(void);
/* A step begins; it has ended and took that long. */
void watch_step(int64_t step);
void watch_step_end(int64_t step_ns);
/* The op that begins. */
void watch_op(const char *kind, int stage, int microbatch);
/* The main thread waits for another rank (peer), or for a group of num_peers ranks (peer -1). what
 * completes "waits for": "a message". */
void watch_wait(const char *what, int peer, int num_peers);
void watch_wait_end(void);
/* It waits for a thread of its own process, which reads or writes files. */
void watch_files(bool waits);

/* For the watchdog: use this post from now on. */
void watch_use(struct watch_post *post);
void watch_read(const struct watch_text *text, char out[WATCH_TEXT]);
