#include "partition/cluster/fault_event.h"

#include <stdlib.h>

enum status fault_trace_check(const struct fault_event *trace, int count, int num_nodes,
                              struct err *err)
{
    bool *lost = calloc((size_t)num_nodes, sizeof *lost);
    enum status rc = lost ? OK : err_nomem(err);
    for (int i = 0; i < count && rc == OK; i++) {
        const struct fault_event *e = &trace[i];
        const char *what = e->back ? "returns, but is not lost" : "is lost twice";
        if (e->node < 0 || e->node >= num_nodes)
            rc = err_set(err, ERR_INPUT, "event %d of the trace: node must be 0..%d, got %d", i + 1,
                         num_nodes - 1, e->node);
        else if (e->at_ns < 0 || (i > 0 && e->at_ns < e[-1].at_ns))
            rc = err_set(err, ERR_INPUT, "event %d of the trace: times must ascend from 0", i + 1);
        else if (lost[e->node] != e->back)
            rc = err_set(err, ERR_INPUT, "event %d of the trace: node %d %s", i + 1, e->node, what);
        else
            lost[e->node] = !e->back;
    }
    free(lost);
    return rc;
}
