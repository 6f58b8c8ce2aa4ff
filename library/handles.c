#include "library/handles.h"

#include <stdio.h>
#include <string.h>

_Static_assert((int)ELAPSE_OK == OK && (int)ELAPSE_ERR_INPUT == ERR_INPUT &&
                   (int)ELAPSE_ERR_INFEASIBLE == ERR_INFEASIBLE &&
                   (int)ELAPSE_ERR_SYSTEM == ERR_SYSTEM && (int)ELAPSE_ERR_NOMEM == ERR_NOMEM &&
                   (int)ELAPSE_ERR_UNFINISHED == ERR_UNFINISHED,
               "the values of statuses are public");

int elapse_abi_version(void)
{
    return ELAPSE_ABI_VERSION;
}

const char *elapse_version(void)
{
    return ELAPSE_VERSION;
}

struct step_band job_band(const struct elapse_job *job)
{
    const struct setting setting = {&job->job.model, &job->job.cluster, &job->cost.cost};
    struct step_band band = {0};
    cost_band(&job->cost, &setting, &band);
    band.kind = NULL;
    return band;
}

void band_out(const struct step_band *band, int64_t step_ns, int64_t ns[2])
{
    if (band->runs > 0)
        step_band_ns(band, step_ns, ns);
}

void call_begin(struct call *call)
{
    *call = (struct call){0};
    call->c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    call->before = call->c ? uselocale(call->c) : (locale_t)0;
}

enum elapse_status call_end(struct call *call, enum status rc, struct elapse_error *error)
{
    if (call->c) {
        uselocale(call->before);
        freelocale(call->c);
    }
    if (error && rc != OK) {
        error->status = (enum elapse_status)rc;
        snprintf(error->message, sizeof error->message, "%s", call->err.msg);
        snprintf(error->hint, sizeof error->hint, "%.*s", (int)sizeof error->hint - 1,
                 call->err.hint);
    } else if (error) {
        *error = (struct elapse_error){ELAPSE_OK, "", ""};
    }
    return (enum elapse_status)rc;
}

static size_t size_of(const void *theirs)
{
    size_t size;
    memcpy(&size, theirs, sizeof size);
    return size;
}

void range_ends(const struct framework_range *range, int64_t *low_ns, int64_t *high_ns)
{
    *low_ns = range->count > 0 ? range->likely[0].step_ns : 0;
    *high_ns = range->count > 0 ? range->likely[range->count - 1].step_ns : 0;
}

void copy_out(const void *ours, size_t our_size, void *theirs)
{
    const size_t size = size_of(theirs);
    const size_t known = size < our_size ? size : our_size;
    if (known <= sizeof size)
        return;
    memcpy((char *)theirs + sizeof size, (const char *)ours + sizeof size, known - sizeof size);
    memset((char *)theirs + known, 0, size - known);
}

void copy_in(void *ours, size_t our_size, const void *theirs)
{
    memset(ours, 0, our_size);
    if (theirs) {
        const size_t size = size_of(theirs);
        memcpy(ours, theirs, size < our_size ? size : our_size);
    }
}
