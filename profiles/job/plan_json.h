/* profiles/job/plan_json.h - a plan as JSON: the one writer and the one reader.
 *
 * A plan file, the summary of a run and the answer of `elapse plan --json` hold these members. The
 * reader requires every member except memory_bytes. It ignores unknown members, because a plan file
 * is the whole answer of `elapse plan`. */
#pragma once

#include "partition/plan/job.h"
#include "partition/plan/plan.h"
#include "profiles/json/json.h"

/* Which dimensions of a layout are written: those by which it divides anything, and with them those
 * that every such layout has; the latter in any case; or all. */
enum layout_json_form { LAYOUT_JSON_DIVIDED, LAYOUT_JSON_CORE, LAYOUT_JSON_WHOLE };
void layout_json_add(struct json *object, const struct layout *layout, enum layout_json_form form);
/* One dimension. */
void layout_json_add_dim(struct json *object, const struct layout *layout, enum layout_dim dim);

/* Add only the members that do not depend on devices: counts, schedule, recompute, frozen prefix
 * and cut. For answers that print the rest in another form. */
void plan_json_add_shape(struct json *object, const struct plan *plan);

/* Add every member of the plan to object. Stage s holds cut[s] items, rank k of replica r runs on
 * devices[r][k]. memory_bytes is left out if the plan has none; order, the op lists as CSV, if its
 * schedule is a named one. */
void plan_json_add(struct json *object, const struct plan *plan);

/* Read the plan of an object. `what` names the source in errors ("plan.json"). *plan must be
 * zeroed; the caller owns it; on failure it stays zeroed. ERR_INPUT: a member is missing or
 * malformed. ERR_INFEASIBLE: the plan does not fit the model or the cluster. The message names the
 * member. */
enum status plan_json_read(const struct json *object, const char *what, const struct model *model,
                           const struct cluster *cluster, struct plan *plan, struct err *err);

/* Read the plan of a file. It must also have the job's batch, optimizer state, clipping and
 * reduction. Contract and errors as of plan_json_read(). ERR_SYSTEM: the file cannot be read. */
enum status plan_json_load(const char *path, const struct job *job, const struct cluster *cluster,
                           struct plan *plan, struct err *err);
