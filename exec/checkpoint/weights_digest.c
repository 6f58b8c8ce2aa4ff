#include "exec/checkpoint/weights_digest.h"

#include <stdlib.h>
#include <string.h>

/* The message of a rank to rank 0: the same size for all, so that a gather can concatenate them. */
struct tensor_digest {
    char name[96];
    unsigned char digest[SHA256_BYTES];
};

/* A tensor on its way to its digest. */
struct tensor {
    const struct param *param;
    const float *values; /* in host memory */
    float *fetched;      /* owned: the copy that values points to; NULL where there is none */
};

enum { FETCH_BYTES = 64 << 20 };

static size_t bytes_of(const struct tensor *tensor)
{
    return (size_t)tensor->param->num_elems * sizeof(float);
}

static int list_tensors(const struct stage_list *list, struct tensor *tensors)
{
    int count = 0;
    for (int s = 0; s < list->num_stages; s++) {
        const struct param *params = list->stages[s] ? stage_params(list->stages[s]) : NULL;
        for (int i = 0; params && i < stage_num_params(list->stages[s]); i++)
            if (!params[i].tied_copy)
                tensors[count++] = (struct tensor){.param = &params[i]};
    }
    return count;
}

/* Bring tensors into host memory until FETCH_BYTES have been copied, or all of them where the host
 * can read them as they are. A backend takes calls from one thread only, so this is serial. */
static enum status fetch(struct backend *be, struct tensor *tensors, int count, int *fetched,
                         struct err *err)
{
    size_t copied = 0;
    int n = 0;
    for (; n < count && copied < FETCH_BYTES; n++) {
        struct tensor *t = &tensors[n];
        if (be->host_memory) {
            t->values = t->param->weight;
            continue;
        }
        t->values = t->fetched = malloc(bytes_of(t) + 1);
        if (!t->fetched) {
            (void)be->sync(be, NULL); /* copies under way end before their memory is freed */
            return err_nomem(err);
        }
        be->copy_out(be, t->fetched, t->param->weight, (int64_t)bytes_of(t));
        copied += bytes_of(t);
    }
    *fetched = n;
    return be->sync(be, err);
}

static enum status hash(struct backend *be, const struct tensor *tensors, int count,
                        struct tensor_digest *digests, struct err *err)
{
    struct err failure = {0};
    /* Tensors differ in size a thousandfold, so threads take the next one as they get free. */
#pragma omp parallel for schedule(dynamic) num_threads(be->threads)
    for (int i = 0; i < count; i++) {
        struct err own = {0};
        memcpy(digests[i].name, tensors[i].param->name, sizeof digests[i].name);
        if (sha256_digest(tensors[i].values, bytes_of(&tensors[i]), digests[i].digest, &own) !=
            OK) {
#pragma omp critical(weights_digest_failure)
            err_copy(&failure, &own);
        }
    }
    return failure.status == OK ? OK : err_copy(err, &failure);
}

static enum status digest_tensors(struct backend *be, struct tensor *tensors, int count,
                                  struct tensor_digest *digests, struct err *err)
{
    enum status rc = OK;
    int fetched = 0;
    for (int first = 0; rc == OK && first < count; first += fetched) {
        rc = fetch(be, tensors + first, count - first, &fetched, err);
        THEN(hash(be, tensors + first, fetched, digests + first, err));
        for (int i = first; rc == OK && i < first + fetched; i++) {
            free(tensors[i].fetched);
            tensors[i].fetched = NULL;
        }
    }
    for (int i = 0; i < count; i++)
        free(tensors[i].fetched);
    return rc;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct tensor_digest *)a)->name, ((const struct tensor_digest *)b)->name);
}

/* Ranks may hold several stages, not in the model's order, so names decide. */
static enum status combine(struct tensor_digest *each, size_t count, char *hex, struct err *err)
{
    unsigned char digest[SHA256_BYTES];
    char *text = malloc(count * sizeof *each + 1), *end = text;
    enum status rc;
    if (!text)
        return err_nomem(err);
    qsort(each, count, sizeof *each, by_name);
    for (size_t i = 0; i < count; i++) {
        end = stpcpy(end, each[i].name) + 1;
        end = mempcpy(end, each[i].digest, sizeof each[i].digest);
    }
    rc = sha256_digest(text, (size_t)(end - text), digest, err);
    if (rc == OK)
        sha256_hex(digest, hex);
    free(text);
    return rc;
}

enum status weights_digest(struct comm_group *pipeline, const struct stage_list *list,
                           char hex[2 * SHA256_BYTES + 1], struct err *err)
{
    struct tensor_digest *digests = NULL;
    struct tensor *tensors = NULL;
    void *all = NULL;
    int64_t *sizes = NULL, total = 0;
    int count = 0, most = 0;
    enum status rc;
    for (int s = 0; s < list->num_stages; s++)
        most += list->stages[s] ? stage_num_params(list->stages[s]) : 0;
    digests = calloc((size_t)most + 1, sizeof *digests);
    tensors = calloc((size_t)most + 1, sizeof *tensors);
    if (!digests || !tensors) {
        rc = err_nomem(err);
        goto out;
    }
    count = list_tensors(list, tensors);
    rc = digest_tensors(list->backend, tensors, count, digests, err);
    THEN(comm_gather(pipeline, digests, count * (int64_t)sizeof *digests, &all, &sizes, err));
    if (rc == OK && comm_group_rank(pipeline) == 0) {
        for (int r = 0; r < comm_group_size(pipeline); r++)
            total += sizes[r];
        rc = combine(all, (size_t)total / sizeof *digests, hex, err);
    }
out:
    free(all);
    free(sizes);
    free(tensors);
    free(digests);
    return rc;
}
