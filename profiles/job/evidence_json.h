/* profiles/job/evidence_json.h - recorded evidence about freezing (partition/freeze/evidence.h) as
 * JSON: the run folder's evidence.json, and the member "evidence" of a checkpoint's manifest.
 *
 *     {"schema": 1, "model": {"name": "vit-tiny", "layers": 12, "items": 27, "params": 5526346},
 *      "turns": [{"turn": 0, "step": 40, "frozen": 0, "rate_window": 0.2, "rate_left": 1.1,
 *        "steps_window": 40, "steps_left": 360, "passes": 2.96,
 *        "loss": 1.93, "loss_before": 2.31, "fall_se": 0.02, "accuracy": 0.31, "num_probe": 64,
 *        "candidates": [{"frozen": 4, "share": 0.11, "share_se": 0.01}],
 *        "plasticity": [...], "norms": [...], "sample_ns": [...],
 *        "decision": {"frozen": 4, "cost": 0.2, "cost_se": 0.1, "left": 0.8, "reason": "..."}}]}
 *
 * accuracy is null where the model is not a classifier. plasticity, norms, sample_ns and decision may
 * be left out; of a decision only "frozen" is read, because the policy repeats the rest.
 * steps_window and steps_left are missing in files of older versions: they are then taken from
 * "step" and from the rates. */
#pragma once

#include "partition/freeze/evidence.h"
#include "partition/model/model.h"
#include "profiles/json/json.h"

/* Add the members to an object. */
void evidence_to_json(struct json *root, const struct model *model,
                      const struct freeze_history *history);

/* Number of layers of the model that an object is of. ERR_INPUT: it says none. */
enum status evidence_layers(const struct json *root, const char *where, int *num_layers,
                            struct err *err);

/* Read an object. where names it in messages. ERR_INPUT: another form, or evidence of another model
 * (layers, items or parameters differ). model NULL: of any model. *history must be zeroed or
 * cleared. */
enum status evidence_from_json(const struct json *root, const char *where,
                               const struct model *model, struct freeze_history *history,
                               struct err *err);
