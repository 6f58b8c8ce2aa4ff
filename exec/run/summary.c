#include "exec/run/summary.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/device/device_info.h"
#include "exec/change/elastic.h"
#include "exec/probe/probe.h"
#include "exec/trainer/trainer.h"

void trainer_add_metrics(struct json *root, const struct job *job,
                         const struct evaluation *evaluation)
{
    if (job->model.task == TASK_CAUSAL_LM || job->model.task == TASK_MLM)
        json_add_double(root, "perplexity", evaluation->count ? exp(evaluation->loss) : NAN);
    if (job->data.kind == DATA_SQUAD) {
        bool have = evaluation->qa.questions > 0;
        json_add_int(root, "eval_questions", evaluation->qa.questions);
        json_add_double(root, "exact_match", have ? evaluation->qa.exact : NAN);
        json_add_double(root, "f1", have ? evaluation->qa.f1 : NAN);
    }
}

/* Whether a run that may use a cache has no slot for some samples. */
static bool cache_lacks(const struct trainer *t)
{
    const bool wanted = t->job->freeze.policy != FREEZE_NONE && t->job->cache.policy != CACHE_OFF;
    return wanted && !(t->cache && cache_complete(t->cache));
}

static void add_cache(struct json *root, const struct trainer *t, const struct cache_counts *counts)
{
    int64_t all = counts->hits + counts->upgrades + counts->misses;
    json_add_int(root, "cache_hits", counts->hits);
    json_add_int(root, "cache_upgrades", counts->upgrades);
    json_add_int(root, "cache_misses", counts->misses);
    json_add_int(root, "cache_corrupt", counts->corrupt);
    json_add_double(root, "cache_hit_rate", all ? (double)counts->hits / (double)all : NAN);
    json_add_string(root, "cache_note", t->cache_note);
    json_add_bool(root, "cache_lacks", cache_lacks(t));
    json_add_double(root, "cache_room", t->cache ? cache_room(t->cache) : 0);
}

/* The machine and the device, described as in profiles, so that `compare` can tell what differs. */
static void add_machine(struct json *root, const struct trainer *t)
{
    struct profile_info here = {0};
    struct err ignored = {0}; /* then the host alone is described */
    struct json *machine = json_add_object(root, "machine");
    device_describe(t->job->train.device, t->cores, &here, &ignored);
    json_add_string(machine, "host", here.host);
    json_add_string(machine, "device_kind", here.device_kind);
    json_add_string(machine, "device_name", here.device_name);
    json_add_string(machine, "driver", here.driver);
    json_add_string(machine, "libraries", here.libraries);
    json_add_string(machine, "bf16_kernel", here.bf16_kernel);
    json_add_string(machine, "fp32_kernel", here.fp32_kernel);
    json_add_int(machine, "clock_mhz", here.clock_mhz);
}

static void add_restarts(struct json *root, const struct run_files *files)
{
    struct restart_total total;
    struct json *all = json_add_object(root, "restarts");
    run_files_restarts(files, &total);
    json_add_int(all, "count", total.num);
    json_add_int(all, "lost_ns", total.cost.lost_ns);
    json_add_int(all, "lost_steps", total.cost.lost_steps);
    json_add_int(all, "redo_ns", total.cost.redo_ns);
}

static void add_saves(struct json *root, const struct saves *saves)
{
    struct json *all = json_add_object(root, "checkpoints");
    json_add_int(all, "count", saves->num);
    json_add_int(all, "write_ns", saves->write_ns);
    json_add_int(all, "stall_ns", saves->stall_ns);
    json_add_int(all, "longest_stall_ns", saves->longest_stall_ns);
    json_add_int(all, "copy_bytes", saves->copy_bytes);
}

static void add_copies(struct json *root, const struct memory_copies *copies)
{
    struct json *all = json_add_object(root, "memory_copies");
    json_add_int(all, "count", copies->num);
    json_add_int(all, "stall_ns", copies->stall_ns);
    json_add_int(all, "longest_stall_ns", copies->longest_stall_ns);
}

/* The names of the classes, and what was read, a line each. */
static void add_data(struct json *root, const struct dataset *dataset)
{
    struct json *list = json_add_array(root, "data_notes");
    for (const char *line = dataset->notes; line && *line; line = strchr(line, '\n') + 1) {
        char text[600];
        snprintf(text, sizeof text, "%.*s", (int)strcspn(line, "\n"), line);
        json_add_string(list, NULL, text);
    }
    if (!dataset->class_names)
        return;
    list = json_add_array(root, "class_names");
    for (int i = 0; i < dataset->classes; i++)
        json_add_string(list, NULL, dataset->class_names[i]);
}

struct json *trainer_summary(const struct trainer *t, const struct cache_counts *counts,
                             const struct evaluation *before, const struct evaluation *after,
                             const char *digest, int64_t wall_ns)
{
    const struct run_history history = trainer_history(t);
    struct json *root = json_object_new(), *plan;
    json_add_int(root, "schema", 1);
    json_add_string(root, "version", ELAPSE_VERSION);
    json_add_string(root, "command", "train");
    json_add_string(root, "name", t->job->name);
    json_add_string(root, "model", t->job->model.name);
    json_add_string(root, "out", t->out);
    json_add_int(root, "ranks", t->comm->size);
    json_add_ints(root, "node_ranks", t->comm->node_ranks, t->comm->num_nodes);
    json_add_int(root, "threads_per_rank", t->cores->threads);
    json_add_string(root, "cores_of_rank_0", t->cores->list);
    json_add_int(root, "cores_at_hand", t->cores->at_hand);
    json_add_string(root, "backend", t->backend->name);
    char *db = t->options->db ? realpath(t->options->db, NULL) : NULL;
    json_add_string(root, "db", db ? db : t->options->db); /* readers may be in another folder */
    free(db);
    add_machine(root, t);
    json_add_string(root, "cost_note", t->deployment.plan.cost_note);
    json_add_string(root, "init_note", t->import.note);
    json_add_int(root, "steps", t->progress.step);
    json_add_int(root, "total_steps", trainer_whole_steps(t));
    json_add_int(root, "epochs", t->progress.epoch);
    json_add_int(root, "total_epochs", t->job->train.epochs);
    json_add_int(root, "max_steps", t->job->train.max_steps);
    json_add_bool(root, "interrupted", t->interrupted);
    json_add_bool(root, "yielded", t->yielded);
    json_add_int(root, "train_samples", t->dataset.num_samples[SPLIT_TRAIN]);
    json_add_int(root, "test_samples", t->dataset.num_samples[SPLIT_TEST]);
    add_data(root, &t->dataset);
    json_add_double(root, "initial_loss", t->first_loss);
    json_add_double(root, "final_loss", t->last_loss);
    json_add_double(root, "initial_accuracy", history.first_accuracy);
    json_add_double(root, "eval_accuracy", after->count ? after->accuracy : NAN);
    json_add_double(root, "eval_loss", after->count ? after->loss : NAN);
    trainer_add_metrics(root, t->job, after);
    json_add_int(root, "train_ns", history.train_ns);
    json_add_int(root, "eval_ns", before->ns + after->ns);
    json_add_int(root, "wall_ns", wall_ns);
    add_restarts(root, t->files);
    add_saves(root, &t->saves);
    if (t->job->train.memory_every_steps > 0)
        add_copies(root, &t->copies);
    elastic_json(t, root);
    probe_json(t, root);
    add_cache(root, t, counts);
    json_add_string(root, "weights_sha256", digest);
    plan = json_add_object(root, "plan");
    train_plan_json(&t->deployment.plan, plan);
    return root;
}
