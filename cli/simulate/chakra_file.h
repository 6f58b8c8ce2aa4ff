/* cli/simulate/chakra_file.h - a simulated step as Chakra execution traces (github.com/mlcommons/chakra, schema
 * 0.0.4), which ASTRA-sim and Chakra's tools read. */
#pragma once

#include "cli/simulate/rank_memory.h"

/* Write into a folder, which is made if it is not there, elapse.N.et for each rank (N is replica times K
 * plus rank; a rank of several tensor-parallel devices is one) and groups.json, the ranks of each
 * communicator. Each file appears whole or not at all.
 * ERR_INPUT: more messages than a tag can count. ERR_SYSTEM, ERR_NOMEM. */
enum status chakra_files(const char *folder, const struct traced_step *step, struct err *err);
