#include "cli/runs/plan_search.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>

#include "cli/base/command.h"
#include "partition/base/units.h"
#include "partition/search/plan_for.h"
#include "profiles/base/clock.h"
#include "profiles/base/ticker.h"
#include "profiles/job/job_json.h"
#include "sim/run/plan_judge.h"

/* Of the budget, this share is for the search; the rest is for the event engine. */
#define SEARCH_SHARE 0.7

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

struct watch {
    struct ticker ticker;
    int64_t budget_ns;
};

/* Tell how far a long search is. Most candidates are never judged, and how many will be is not
 * known before the end, so there is no estimate of the time left. */
static void tell(struct ticker *ticker, int64_t ns, const struct planner_progress *p)
{
    char text[200], time[32], bound[64] = "";
    if (p->bound_per_s > 0 && p->bound_per_s < 1e15)
        snprintf(bound, sizeof bound, ", at most %.4g", p->bound_per_s);
    snprintf(text, sizeof text,
             "plan: %s, %" PRId64 " candidates, %" PRId64
             " cuts of them judged, best so far %.4g samples/s%s%s",
             format_ns(ns, time, sizeof time), p->candidates, p->evaluated, p->best_per_s, bound,
             p->judging ? ", simulating" : "");
    ticker_say(ticker, stderr, text);
}

static bool goes_on(void *ctx, const struct planner_progress *p)
{
    struct watch *watch = ctx;
    const int64_t ns = clock_now_ns() - watch->ticker.begin_ns;
    if (ticker_due(&watch->ticker))
        tell(&watch->ticker, ns, p);
    if (interrupted)
        return false;
    const double share = p->judging ? 1 : SEARCH_SHARE, patience = p->best_per_s > 0 ? 1 : 6;
    return watch->budget_ns == 0 || (double)ns < share * patience * (double)watch->budget_ns;
}

enum status plan_search(const struct job *job, const struct cost *cost,
                        const struct plan_search *search, struct planner_result *result,
                        struct err *err)
{
    const struct run_state state = {.num_frozen_layers = search->num_frozen_layers,
                                    .num_samples = job_num_samples(job, true),
                                    .cache_room = search->cached,
                                    .cache_filled = search->cached};
    const struct setting setting = {&job->model, &job->cluster, cost};
    struct plan_judge engine = {.setting = setting};
    struct watch watch = {.budget_ns = search->budget_ns};
    const struct planner_judge judge = {.step_ns = search->unshared ? NULL : plan_judge_step,
                                        .ctx = &engine,
                                        .all = search->explain,
                                        .watch = goes_on,
                                        .watch_ctx = &watch};
    struct sigaction stop = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND}, before;
    ticker_begin(&watch.ticker, command_progress(search->quiet));
    interrupted = 0;
    sigaction(SIGINT, &stop, &before);
    const enum status rc = plan_for(job, &setting, &state, &judge, result, err);
    sigaction(SIGINT, &before, NULL);
    ticker_clear(&watch.ticker, stderr);
    return rc;
}
