/* Stragglers and slow links of `elapse sim`: a table of devices, or a random share of them by the
 * seed. They slow the cluster on which steps run. The plan is made for the cluster without them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/simulate/sim_request.h"
#include "partition/base/units.h"

static enum status parse_factor(const char *text, const char *what, double *factor, struct err *err)
{
    enum status rc = parse_ratio(text, what, factor, err);
    if (rc == OK && !(*factor > 0 && *factor <= 1))
        rc = err_set(err, ERR_INPUT, "%s: a factor must be above 0 and at most 1, got '%.32s'",
                     what, text);
    if (rc == ERR_INPUT)
        err_hint(err, "the factor multiplies %s: 3:0.5 halves that of device 3",
                 what[1] == 't' ? "the speed" : "the bandwidth");
    return rc;
}

/* Set factor[d] of devices from "random:SHARE:FACTOR" or "DEVICE:FACTOR,...". All are 1 at first.
 */
static enum status parse_slow(const char *text, const char *what, uint64_t seed, double *factor,
                              int num_devices, struct err *err)
{
    enum status rc = OK;
    char *copy = strdup(text);
    if (!copy)
        return err_nomem(err);
    if (strncmp(copy, "random:", 7) == 0 && strchr(copy + 7, ':')) {
        char *second = strchr(copy + 7, ':');
        double share = 0, slow = 1;
        *second++ = '\0';
        rc = parse_ratio(copy + 7, what, &share, err);
        if (rc == OK && share > 1)
            rc = err_set(err, ERR_INPUT, "%s: a share must be 0..1, got '%.32s'", what, copy + 7);
        THEN(parse_factor(second, what, &slow, err));
        for (int d = 0; d < num_devices && rc == OK; d++) {
            uint64_t draw =
                mix64(mix64(seed ^ (uint64_t)(unsigned char)what[1] << 56) + (uint64_t)d);
            if ((double)(draw >> 11) < share * 9007199254740992.0) /* 2^53 */
                factor[d] = slow;
        }
        free(copy);
        return rc;
    }
    for (char *entry = copy; entry && rc == OK;) {
        char *comma = strchr(entry, ','), *colon, name[32];
        int64_t device = 0;
        double slow = 1;
        if (comma)
            *comma++ = '\0';
        colon = strchr(entry, ':');
        if (!colon || strncmp(entry, "random", 6) == 0) {
            rc = err_set(err, ERR_INPUT,
                         "%s takes DEVICE:FACTOR,... or random:SHARE:FACTOR, got '%.64s'", what,
                         text);
            break;
        }
        *colon++ = '\0';
        snprintf(name, sizeof name, "%s: a device", what);
        rc = parse_int(entry, name, 0, num_devices - 1, &device, err);
        THEN(parse_factor(colon, what, &slow, err));
        if (rc == OK && factor[device] != 1)
            rc = err_set(err, ERR_INPUT, "%s: device %d given twice", what, (int)device);
        if (rc == OK)
            factor[device] = slow;
        entry = comma;
    }
    free(copy);
    return rc;
}

enum status cluster_slow(const struct step_request *q, struct cluster *cluster, struct err *err)
{
    const char *texts[] = {q->stragglers_text, q->slow_links_text};
    const char *const names[] = {"stragglers", "slow-links"};
    for (int what = 0; what < 2; what++) {
        if (!texts[what])
            continue;
        double *factor = malloc((size_t)cluster->num_devices * sizeof *factor);
        if (!factor)
            return err_nomem(err);
        for (int d = 0; d < cluster->num_devices; d++)
            factor[d] = 1;
        enum status rc = parse_slow(texts[what], names[what], q->options.seed, factor,
                                    cluster->num_devices, err);
        for (int d = 0; d < cluster->num_devices && rc == OK; d++)
            if (what == 0)
                cluster->devices[d].speed *= factor[d];
            else
                cluster->devices[d].link_bytes_per_s *= factor[d];
        free(factor);
        THEN(cluster_check(cluster, err));
        if (rc != OK)
            return rc;
    }
    return OK;
}
