/* partition/step/column_order.h - an order of elimination that keeps a factor sparse. */
#pragma once

#include "partition/base/status.h"
#include "partition/step/normal.h"

/* Order the columns of A for the elimination of A^T A. order[num_columns]; columns that the factor
 * treats alike stand together, and first_of_node[num_columns + 1] says where each such node begins.
 * ERR_NOMEM. */
enum status column_order(const struct sparse_rows *rows, int *order, int *first_of_node,
                         int *num_nodes, struct err *err);
