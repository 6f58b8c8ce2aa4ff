#include "exec/device/cores.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum status cores_bind(int local_rank, int local_size, int threads, struct cores *cores,
                       struct err *err)
{
    struct cores got = {0};
    cpu_set_t mine;
    int index = 0;
    size_t used = 0;
    if (sched_getaffinity(0, sizeof got.all, &got.all) != 0)
        return err_set(err, ERR_SYSTEM, "cannot ask for the available cores: %s", strerror(errno));
    got.at_hand = CPU_COUNT(&got.all);
    if (got.at_hand >= local_size) {
        got.first = local_rank * got.at_hand / local_size;
        got.num = (local_rank + 1) * got.at_hand / local_size - got.first;
    } else {
        got.first = local_rank % got.at_hand;
        got.num = 1;
    }
    got.threads = threads > 0 ? threads : got.num;
    CPU_ZERO(&mine);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &got.all))
            continue;
        if (index >= got.first && index < got.first + got.num) {
            CPU_SET(cpu, &mine);
            if (used < sizeof got.list)
                used += (size_t)snprintf(got.list + used, sizeof got.list - used, "%s%d",
                                         used ? "," : "", cpu);
        }
        index++;
    }
    if (sched_setaffinity(0, sizeof mine, &mine) != 0)
        return err_set(err, ERR_SYSTEM, "cannot bind to cores %s: %s", got.list, strerror(errno));
    *cores = got;
    return OK;
}

void cores_report(const struct cores *cores, int local_size, FILE *out)
{
    if (local_size > cores->at_hand)
        fprintf(out,
                "note: %d ranks share %d core%s (oversubscribed), so ranks wait for each other and "
                "times are not those of %d devices\n",
                local_size, cores->at_hand, cores->at_hand == 1 ? "" : "s", local_size);
}

int cores_beside(const struct cores *cores, bool on_device)
{
    const int busy = on_device ? 1 : cores->threads;
    return cores->num > busy ? cores->num - busy : 1;
}

enum status cores_release(const struct cores *cores, struct err *err)
{
    if (sched_setaffinity(0, sizeof cores->all, &cores->all) != 0)
        return err_set(err, ERR_SYSTEM, "cannot release the cores: %s", strerror(errno));
    return OK;
}
