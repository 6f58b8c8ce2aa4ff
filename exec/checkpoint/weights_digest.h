/* exec/checkpoint/weights_digest.h - one line that says whether two runs ended with the same weights. */
#pragma once

#include "exec/checkpoint/checkpoint.h"
#include "exec/weights/sha256.h"

/* SHA-256 over all fp32 weights of the run: of each tensor's name, a zero byte and the tensor's own
 * SHA-256, in the order of names. So it does not depend on K, and tensors are hashed by the
 * backend's threads side by side. A copy of a tied table is left out. hex is filled on rank 0 of
 * the group. Collective over the pipeline.
 * Time: 1.5 GB/s a thread where the processor has SHA instructions (Zen 4). Memory: none where the
 * backend's memory is the host's, else 64 MiB and the largest tensor. */
enum status weights_digest(struct comm_group *pipeline, const struct stage_list *list,
                           char hex[2 * SHA256_BYTES + 1], struct err *err);
