/* cli/plans/plan_change.h - the transfers of a change between two plans, as text or JSON. */
#pragma once

#include "partition/plan/autodp.h"
#include "partition/plan/job.h"
#include "profiles/json/json.h"

void plan_change_add(struct json *json, const struct job *job, const struct plan *old,
                     const struct transition *transition);
/* ERR_NOMEM. */
enum status plan_change_print(const struct job *job, const struct plan *old,
                              const struct transition *transition, struct err *err);
