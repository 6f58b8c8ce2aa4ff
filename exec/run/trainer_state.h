/* exec/run/trainer_state.h - everything a run holds on one rank, for trainer.c (the run), elastic.c
 * (what changes in mid-run) and summary.c (what is told of it). */
#ifndef ELAPSE_EXEC_RUN_TRAINER_STATE_H
#define ELAPSE_EXEC_RUN_TRAINER_STATE_H

#include "exec/cache/cache.h"
#include "exec/run/elastic.h"
#include "exec/run/layout.h"
#include "exec/run/qa_eval.h"
#include "exec/run/trainer.h"
#include "exec/save/hf_names.h"
#include "exec/save/run_files.h"

/* The outcome of an evaluation pass. */
struct evaluation {
    double loss, accuracy; /* per target */
    int64_t count, ns;
    struct qa_score qa; /* squad, rank 0 of the active group */
};

struct trainer {
    const struct comm *comm;
    const struct cores *cores;
    const struct job *job;
    const struct trainer_options *options;
    const char *db;
    char *out;    /* owned; the run's folder */
    bool goes_on; /* a resumed run in its own folder */
    struct dataset dataset;
    struct backend *backend;
    struct nccl *nccl; /* train.transport nccl; NULL: mpi */
    struct layout_base base;
    struct layout layout;
    struct elastic elastic;
    struct cache *cache; /* NULL: off, cache_note says why */
    char cache_note[256];
    struct progress progress;
    /* Of the first plan: the learning rate goes by epochs, counted in its steps. */
    int64_t first_steps_per_epoch, total_steps;
    /* The present epoch so far; a change of plan may part it. */
    struct epoch_row epoch_row;
    int64_t epoch_samples, epoch_step_ns;
    double epoch_loss;
    int64_t last_saved;          /* step of the last checkpoint of this call; -1 */
    struct evaluation evaluated; /* behind the last epoch that asked for it, */
    int64_t evaluated_step;      /* at this step; -1: behind none */
    struct run_files *files;     /* rank 0 */
    int64_t train_ns, shown_ns;
    double first_loss, last_loss;
    bool interrupted, trains; /* trains: not only an evaluation */
    bool fresh_head;          /* a weights file may lack the head (--init) */
    bool all_know;            /* what has ended the run; else it may be known to this rank only */
    struct hf_import import;  /* what it held */
};

/* What to plan for at a turn, as the cache and the data are now; F is the present one, and there is
 * no old plan but the one in place, if any. */
struct turn_ask trainer_ask(const struct trainer *t, int64_t epoch, int64_t turn);

/* A checkpoint of now; nothing where the last one is of the same step. Collective over the message
 * group. */
enum status trainer_save(struct trainer *t, struct err *err);

/* summary.json of a run that ends now; the caller frees it. Evaluations that were not made have no
 * count. */
struct json *trainer_summary(const struct trainer *t, const struct cache_counts *counts,
                             const struct evaluation *before, const struct evaluation *after,
                             const char *digest, int64_t wall_ns);
/* Language models: e to the loss a token. Questions: exact match and F1. */
void trainer_add_metrics(struct json *root, const struct job *job,
                         const struct evaluation *evaluation);

#endif
