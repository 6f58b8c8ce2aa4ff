/* exec/stage/params.h - the memory of a stage's parameters, gradients and optimizer state. */
#pragma once

#include "exec/stage/stage_state.h"

int params_num_moments(const struct job *job); /* tensors of optimizer state a parameter has */
int params_num_states(const struct job *job);  /* and of apf, after them */
/* Whether kernels read a rounded copy of the weights (a dtype below fp32). */
bool params_rounded(const struct stage *stage);
/* Whether a token table that embedding and head share trains. */
bool params_table_trains(const struct stage *stage);
/* Elements of item i's weights that stay as they are beside adapters. They come first and have no
 * gradients, optimizer state or lagged copy. 0 without adapters. */
int64_t params_base_elems(const struct stage *stage, int i);

/* Allocate everything for the frozen boundary of the spec, then params_wire(). */
enum status params_make(struct stage *stage, struct err *err);
/* Point layers and params into the allocations, after these have changed. */
void params_wire(struct stage *stage);
/* Memory of the lagged copy, if the spec wants one. */
enum status lagged_make(struct stage *stage, struct err *err);
void lagged_free(struct stage *stage);
/* The token table has frozen: the head gives up its copy's gradients and optimizer state. */
enum status params_freeze_table(struct stage *stage, struct err *err);
