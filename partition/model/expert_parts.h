/* partition/model/expert_parts.h - how far the experts that a token chooses are spread. Pure. */
#pragma once

#include "partition/model/model.h"

/* Of P equal parts of a layer's experts (devices, nodes), how many have some of those that a token chooses: the mean
 * where it chooses at random. A part has experts of one group, or whole groups (expert_groups). 1 <= P <= experts. */
double model_expert_parts(const struct model *model, int P);
