/* Speed of the simulator, single core: list generation to result, as `elapse sim --step` counts it
 * (wall_ns). Each line ends in "ok" or "slow" against the target beside it. */
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "sim/step/engine.h"
#include "tests/unit/sim_case.h"

/* CPU time of this process, so that a busy machine does not count. */
static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Best of n: the machine may be busy with other things. */
static double time_case(struct sim_case *c, int n)
{
    double best = 1e30;
    for (int i = 0; i < n; i++) {
        struct err err = {0};
        double start = now_s();
        if (sim_case_lower(c, &err) != OK || sim_case_step(c, &err) != OK)
            fail_msg("%s", err.msg);
        double took = now_s() - start;
        if (took < best)
            best = took;
    }
    return best;
}

/* The engine alone. */
static double time_engine(struct sim_case *c, int n)
{
    double best = 1e30;
    for (int i = 0; i < n; i++) {
        struct err err = {0};
        double start = now_s();
        if (sim_case_step(c, &err) != OK)
            fail_msg("%s", err.msg);
        double took = now_s() - start;
        if (took < best)
            best = took;
    }
    return best;
}

/* The peer: a plain binary heap of as many events as a step of 64 devices has in flight, whose first one
 * is put off by a random time. Its time says how fast the machine is now, so targets follow it. */
#define PROBE_S 0.0225 /* where the targets were set: an EPYC of 2 cores */
static double time_probe(void)
{
    enum { EVENTS = 256, TURNS = 1000000 };
    static int64_t heap[EVENTS + 1];
    double best = 1e30;
    for (int round = 0; round < 5; round++) {
        const double start = now_s();
        uint64_t random = 88172645463325252u;
        for (int i = 1; i <= EVENTS; i++)
            heap[i] = i;
        for (int turn = 0; turn < TURNS; turn++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            const int64_t later = heap[1] + (int64_t)(random & 0xfffff);
            int at = 1, next = 2;
            while (next <= EVENTS) {
                next += next < EVENTS && heap[next + 1] < heap[next];
                if (heap[next] >= later)
                    break;
                heap[at] = heap[next];
                at = next;
                next = 2 * at;
            }
            heap[at] = later;
        }
        const double took = now_s() - start;
        best = took < best ? took : best;
    }
    return heap[1] > 0 ? best : 0;
}

static double slower = 1; /* than where the targets were set */

static void report(const char *what, double got, const char *unit, double target, bool at_least)
{
    if (strcmp(unit, "GiB") != 0)
        target = at_least ? target / slower : target * slower;
    bool ok = at_least ? got >= target : got <= target;
    printf("%-58s %10.3f %-6s target %s %.3g  %s\n", what, got, unit,
           at_least ? ">=" : "<=", target, ok ? "ok" : "slow");
    fflush(stdout);
}

int main(void)
{
    const double probe_s = time_probe();
    slower = probe_s / PROBE_S;
    printf("heap of 256 events, a million turns: %.1f ms; targets x %.2f\n", 1e3 * probe_s, slower);
    { /* contention: activations and gradients meet on every port, stages on the uplinks */
        struct sim_case c = SIM_CASE(SCHEDULE_1F1B, 64, 1024, 1000000, 1000000, 1000000, .nodes = 8,
                                     .act = 8000000, .link = 16e9, .uplink = 10e9, .latency = 5000);
        sim_case_build(&c);
        double s = time_engine(&c, 5);
        report("event engine with contention, 64x1024, events", (double)c.result.events / s / 1e6,
               "M/s", 10, true);
        sim_case_clear(&c);
    }
    {
        struct sim_case c = SIM_CASE(SCHEDULE_1F1B, 64, 1024, 1000000, 1000000, 1000000,
                                     .act = 1000000, .link = 16e9, .latency = 5000);
        sim_case_build(&c);
        report("K=64 M=1024, one replica", 1e3 * time_case(&c, 5), "ms", 20, false);
        c.options.every_event = true;
        report("K=64 M=1024, one replica, event engine", 1e3 * time_case(&c, 5), "ms", 80, false);
        sim_case_clear(&c);
    }
    for (int M = 512; M <= 4096; M *= 2) { /* growth with the work */
        struct sim_case c =
            SIM_CASE(SCHEDULE_1F1B, 1024, M, 1000000, 1000000, 1000000, .nodes = 128,
                     .act = 1000000, .link = 16e9, .uplink = 10e9, .latency = 5000);
        char name[64];
        sim_case_build(&c);
        snprintf(name, sizeof name, "1024 stages x %d micro-batches", M);
        report(name, time_case(&c, M == 4096 ? 2 : 1), "s", 3.0 * M / 4096, false);
        sim_case_clear(&c);
    }
    {
        struct sim_case c = SIM_CASE(SCHEDULE_1F1B, 64, 256, 1000000, 1000000, 1000000, .R = 256,
                                     .nodes = 2048, .act = 1000000, .params = 10000000,
                                     .link = 16e9, .uplink = 10e9, .latency = 5000);
        sim_case_build(&c);
        double s = time_case(&c, 1);
        report("16384 devices: K=64 R=256 M=256, all-reduce, uplinks", s, "s", 10, false);
        report("  its events", (double)c.result.events / s / 1e6, "M/s", 2.5, true);
        c.options.jitter = 0.05;
        report("  the same with jitter", time_case(&c, 1), "s", 10, false);
        sim_case_clear(&c);
    }
    { /* all replicas share links alike: one runs for all */
        struct sim_case c = SIM_CASE(SCHEDULE_1F1B, 8, 64, 1000000, 1000000, 1000000, .R = 256,
                                     .nodes = 256, .act = 8000000, .params = 10000000, .link = 16e9,
                                     .uplink = 10e9, .latency = 5000);
        sim_case_build(&c);
        report("2048 devices: K=8 in a node, R=256 M=64, uplinks", 1e3 * time_engine(&c, 5), "ms",
               20, false);
        c.options.every_event = true;
        report("  each replica event by event", 1e3 * time_engine(&c, 3), "ms", 100, false);
        sim_case_clear(&c);
    }
    {
        struct sim_case c = SIM_CASE(SCHEDULE_1F1B, 8, 32, 1000000, 1000000, 1000000,
                                     .act = 1000000, .link = 16e9, .latency = 5000);
        sim_case_build(&c);
        double start = now_s();
        for (int i = 0; i < 2000; i++)
            time_case(&c, 1);
        report("8x32 what-ifs, one core", 2000 / (now_s() - start), "per s", 10000, true);
        sim_case_clear(&c);
    }
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    report("peak memory", (double)usage.ru_maxrss / (1 << 20), "GiB", 4, false);
    return 0;
}
