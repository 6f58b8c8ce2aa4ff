/* cli/commands/cluster_import.h - `elapse cluster import`: a cluster file from what a machine's own tools print. */
#pragma once

#include "partition/base/status.h"
#include "profiles/json/json.h"

/* Make the JSON of a cluster file from outputs of `nvidia-smi topo -m` and of nccl-tests (2.0 to 2.17),
 * in any order. kind: the devices' kind; NULL: nccl-tests names it. *cluster must be NULL; on OK the
 * caller owns it. ERR_INPUT names the file: it is neither, it is cut, or the files differ.
 * ERR_SYSTEM, ERR_NOMEM. */
enum status cluster_import(const char *const *paths, int num_paths, const char *kind,
                           struct json **cluster, struct err *err);
