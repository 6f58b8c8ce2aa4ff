/* profiles/frameworks/command_job.h - the job of a command, a script or a file of settings by which
 * another framework is started today.
 *
 * A framework is a row of `readers` in command_job.c: its table of flags (command_flags.h) and its
 * rules. */
#pragma once

#include "partition/base/status.h"
#include "partition/model/model.h"
#include "profiles/frameworks/command_flags.h"
#include "profiles/json/json.h"

#define COMMAND_READERS "megatron torchtitan deepspeed hf automodel" /* for help texts */

struct command_job {
    int num_layers;   /* of the model that the caller will add; 0: not known */
    struct json *job; /* owned: model, training and layout; it has no cluster */
    /* Owned: an array of what changes costs and the job does not say, and of unknown flags. */
    struct json *not_counted;
    /* Owned, num_stages: embedding, layers and head of each stage, which count one each; NULL: the cut
     * is the planner's. */
    int num_stages;
    int *blocks;
    const char *target; /* of target_find(), for the best layout; NULL: any layout */
    /* owned: what "pipeline" of the job keeps in the best layout; NULL: nothing */
    struct json *fixed;
};
void command_job_clear(struct command_job *made);

/* Read what a framework is started by, for a cluster of num_devices: flags, a whole command, the
 * name of a script ("NAME=value train.sh ARGUMENT"), or of a file of settings (.json, .yaml, .toml).
 * deepspeed, hf and automodel may leave the job without a model: num_layers is that of the model
 * that it will have (0: not known). *made must be zeroed; on OK the caller owns it, else it stays
 * zeroed. ERR_INPUT: the error names a flag that is missing, has a bad value, or asks for what the
 * framework or we do not have. ERR_SYSTEM: a file is missing. ERR_NOMEM. */
enum status command_job_read(const char *framework, const char *text, int num_devices,
                             int num_layers, struct command_job *made, struct err *err);

/* The rules of a framework: make the job of flags that were read. made->num_layers is set. */
typedef enum status command_rules(struct command_flags *flags, int num_devices,
                                  struct command_job *made, struct err *err);
command_rules megatron_rules, torchtitan_rules, deepspeed_rules, hf_rules, automodel_rules;
/* The module and the config function of torchtitan that make a model; false: it has none. */
bool torchtitan_names(const struct model *model, char *module, size_t size, const char **config);
extern const struct flag_row megatron_rows[], torchtitan_rows[], deepspeed_rows[], hf_rows[],
    automodel_rows[];
extern const int num_megatron_rows, num_torchtitan_rows, num_deepspeed_rows, num_hf_rows,
    num_automodel_rows;
