/* cli/runs/message_times.h - messages of a measured step beside those of the simulated one.
 *
 * An executor records how long posting a send takes, and how long a receive waits. A simulator
 * records the transfer. The transfer of a real message is known where its receiver was waiting
 * when it was sent: it took from the send's start to the receive's end. Only these are compared. */
#pragma once

#include "partition/step/workload.h"
#include "profiles/store/record.h"
#include "sim/step/engine.h"

enum message_kind { MESSAGE_ACTIVATION, MESSAGE_GRADIENT, MESSAGE_KINDS };

/* Messages of one kind over a step, all ranks together. */
struct message_times {
    int64_t count;           /* sent */
    int64_t num_known;       /* those with a known transfer */
    int64_t real_ns, sim_ns; /* median transfer of these; 0: there are none */
    int64_t post_ns;         /* time that the senders spent on posting, all messages */
};

/* Both steps ran the op lists of the workload. ERR_NOMEM. */
enum status message_times(const struct op_row *ops, int64_t num_ops, const struct sim_result *sim,
                          const struct workload *workload,
                          struct message_times times[MESSAGE_KINDS], struct err *err);
