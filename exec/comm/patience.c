#include "exec/comm/patience.h"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "profiles/base/clock.h"

/* SLOW_NS: such a yield waited for several slices of others, which are 3 ms; ranks of a node with more
 * of them than cores take less from each other. BETWEEN_NS: polls of one wait follow each other
 * faster. */
enum { SLOW_NS = 5000000, BETWEEN_NS = 20000, SHORTEST_NS = 20000, LONGEST_NS = 500000 };
static const int64_t BUSY_NS = 4000000000;

int64_t patience_sleep_ns(struct patience *patience, int64_t now)
{
    if (now - patience->last_end > BETWEEN_NS)
        patience->wait_began = now;
    if (now >= patience->sleeps_until)
        return 0;
    const int64_t share = (now - patience->wait_began) / 8;
    return share < SHORTEST_NS ? SHORTEST_NS : share > LONGEST_NS ? LONGEST_NS : share;
}

void patience_end(struct patience *patience, int64_t now, int64_t yielded_ns)
{
    if (yielded_ns > SLOW_NS)
        patience->sleeps_until = now + BUSY_NS;
    patience->last_end = now;
}

static _Thread_local struct patience mine;
static _Thread_local int64_t calls;

int64_t patience_calls(void)
{
    return calls;
}

/* The C library's, for this program and the libraries that it loads. A sleep may end 1 us late in
 * place of Linux's 50. */
__attribute__((visibility("default"))) int sched_yield(void)
{
    const int64_t began = clock_now_ns(), sleep_ns = patience_sleep_ns(&mine, began);
    if (calls++ == 0)
        prctl(PR_SET_TIMERSLACK, 1000);
    if (sleep_ns > 0)
        nanosleep(&(struct timespec){.tv_nsec = sleep_ns}, NULL);
    else
        syscall(SYS_sched_yield);
    const int64_t end = clock_now_ns();
    patience_end(&mine, end, sleep_ns > 0 ? 0 : end - began);
    return 0;
}
