#include "exec/commands/exec_begin.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "exec/run/report.h"
#include "exec/trainer/train_plan.h"
#include "exec/weights/adapter_files.h"
#include "profiles/store/store.h"

/* Adapters of a folder lie beside a base that no run of ours trained. */
static enum status refuse_adapter(const struct job_ask *ask, struct err *err)
{
    err_set(err, ERR_INPUT,
            "--adapter %s needs the weights of its base: safetensors of transformers",
            ask->adapter);
    err_hint(err, "of a run, export them first: elapse export RUN -o BASE, then use BASE");
    return ERR_INPUT;
}

enum status exec_begin(struct call *call, const char *from, struct job_ask *ask, bool recorded,
                       struct checkpoint_choice *weights, struct job *job, struct err *err)
{
    char *differences = NULL;
    enum status rc = from ? resume_choose(call->comm, from, weights, err) : OK;
    ask->checkpoint = rc == OK && recorded ? weights->dir : NULL;
    ask->weights_only = ask->evaluates && weights->foreign;
    if (rc == OK && ask->adapter && !weights->foreign)
        rc = refuse_adapter(ask, err);
    THEN(resume_job(ask, job, &differences, err));
    if (call->comm->rank == 0)
        report_start(weights->note, job->model.note, differences, stderr);
    free(differences);
    return comm_agree(call->comm, rc, err);
}

enum status exec_check(const struct call *call, const char *from, const char *db,
                       const struct job_ask *ask, bool trains, struct err *err)
{
    struct stat st;
    struct store *store = NULL;
    struct job job = {0};
    char *differences = NULL;
    enum status rc = OK;
    if (from && stat(from, &st) != 0)
        rc = err_set(err, ERR_SYSTEM, "cannot open '%s': %s", from, strerror(errno));
    else if (from)
        rc = adapter_files_refuse(from, err);
    if (rc == OK && ask->path)
        rc = resume_job(ask, &job, &differences, err);
    if (rc == OK && ask->path && trains)
        rc = train_plan_check(&job, (int)call->words.ranks, err);
    if (rc == OK && db)
        rc = store_open(db, STORE_READ, &store, err);
    store_close(store);
    job_clear(&job);
    free(differences);
    return rc;
}

enum status exec_bind(const struct call *call, int threads, struct cores *cores, struct err *err)
{
    const struct comm *comm = call->comm;
    return comm_agree(comm, cores_bind(comm->local_rank, comm->local_size, threads, cores, err),
                      err);
}
