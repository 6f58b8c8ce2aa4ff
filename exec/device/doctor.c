#include "exec/device/doctor.h"

#include <cblas.h>
#include <dlfcn.h>
#include <mpi.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "exec/cpu/gemm.h"
#include "exec/device/cuda_load.h"
#include "partition/base/units.h"
#include "profiles/base/clock.h"

enum {
    WARM_UP = 100,
    ROUNDS = 1000, /* of the small message */
    BULK_ROUNDS = 10,
    BULK_BYTES = 4 << 20,
    TAG = 1
};

static void add_gpus(struct json *object)
{
    const int num = cuda_load_num_devices();
    struct json *list = json_add_array(object, "gpus");
    struct cuda_device gpu;
    struct err why = {0};
    for (int i = 0; i < num && cuda_load_device_info(i, &gpu, &why) == OK; i++) {
        struct json *one = json_add_object(list, NULL);
        char version[32];
        json_add_string(one, "name", gpu.name);
        json_add_int(one, "memory_bytes", gpu.memory_bytes);
        snprintf(version, sizeof version, "%d.%d", gpu.driver / 1000, gpu.driver % 1000 / 10);
        json_add_string(one, "driver", version);
        snprintf(version, sizeof version, "%d.%d", gpu.runtime / 1000, gpu.runtime % 1000 / 10);
        json_add_string(one, "runtime", version);
        json_add_string(one, "cublaslt", gpu.cublaslt);
    }
    if (num == 0 && cuda_load_device_info(0, &gpu, &why) != OK)
        json_add_string(object, "gpu_reason", why.msg);
}

/* Add the version of NCCL, "" where there is none. The library stays loaded, because unloading
 * CUDA's libraries is not safe. add_cudnn() does the same. */
static void add_nccl(struct json *object)
{
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    void *symbol = library ? dlsym(library, "ncclGetVersion") : NULL;
    int (*ask)(int *);
    char text[32] = "";
    int version = 0;
    memcpy(&ask, &symbol, sizeof ask);
    if (ask && ask(&version) == 0)
        snprintf(text, sizeof text, "%d.%d.%d", version / 10000, version % 10000 / 100,
                 version % 100);
    json_add_string(object, "nccl", text);
}

static void add_cudnn(struct json *object)
{
    const char *named = getenv("ELAPSE_CUDNN_LIB");
    void *library = dlopen(named && *named ? named : "libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    void *symbol = library ? dlsym(library, "cudnnGetVersion") : NULL;
    size_t (*ask)(void);
    char text[32] = "";
    memcpy(&ask, &symbol, sizeof ask);
    if (ask)
        snprintf(text, sizeof text, "%zu.%zu.%zu", ask() / 10000, ask() % 10000 / 100, ask() % 100);
    json_add_string(object, "cudnn", text);
}

void doctor_facts(struct json *object)
{
    char mpi[MPI_MAX_LIBRARY_VERSION_STRING] = "", blas[128];
    int length = 0;
    snprintf(blas, sizeof blas, "%s", openblas_get_config());
    char *space = strchr(blas, ' '); /* "OpenBLAS 0.3.21 NO_LAPACKE ..." */
    if (space)
        space[1 + strcspn(space + 1, " ")] = '\0';
    json_add_string(object, "blas", blas);
    json_add_string(object, "blas_core", openblas_get_corename());
    json_add_int(object, "blas_threads", openblas_get_num_threads());
    json_add_string(object, "fp32_kernel", gemm_name(4));
    json_add_string(object, "bf16_kernel", gemm_name(2));
    MPI_Get_library_version(mpi, &length);
    mpi[strcspn(mpi, ",\n")] = '\0';
    json_add_string(object, "mpi", mpi);
    json_add_string(object, "crypto", OpenSSL_version(OPENSSL_VERSION));
    json_add_string(object, "zlib", zlibVersion());
    add_gpus(object);
    add_nccl(object);
    add_cudnn(object);
}

/* --- ping ------------------------------------------------------------------------------------- */

/* One message there and back between ranks 0 and 1. */
static enum status round_trip(const struct comm *comm, void *data, int64_t bytes, struct err *err)
{
    const bool first = comm->rank == 0;
    enum status rc = OK;
    for (int way = 0; way < 2 && rc == OK; way++) {
        struct comm_request request = {0};
        rc = first == (way == 0)
                 ? comm_isend(comm->all, data, bytes, !comm->rank, TAG, &request, err)
                 : comm_irecv(comm->all, data, bytes, !comm->rank, TAG, &request, err);
        THEN(comm_wait(&request, err));
    }
    return rc;
}

static enum status measure(const struct comm *comm, char *data, double *latency_ns, double *rate,
                           struct err *err)
{
    double rounds[ROUNDS];
    enum status rc = OK;
    for (int i = -WARM_UP; i < ROUNDS && rc == OK; i++) {
        const int64_t start_ns = clock_now_ns();
        rc = round_trip(comm, data, 8, err);
        if (i >= 0)
            rounds[i] = (double)(clock_now_ns() - start_ns);
    }
    if (rc != OK)
        return rc;
    qsort(rounds, ROUNDS, sizeof *rounds, compare_doubles);
    *latency_ns = rounds[ROUNDS / 2] / 2;
    for (int i = -1; i < BULK_ROUNDS && rc == OK; i++) {
        const int64_t start_ns = clock_now_ns();
        rc = round_trip(comm, data, BULK_BYTES, err);
        if (i >= 0)
            rounds[i] = (double)(clock_now_ns() - start_ns);
    }
    qsort(rounds, BULK_ROUNDS, sizeof *rounds, compare_doubles);
    *rate = 2.0 * BULK_BYTES * 1e9 / rounds[BULK_ROUNDS / 2];
    return rc;
}

enum status doctor_ping(const struct comm *comm, struct json *object, struct err *err)
{
    double latency_ns = 0, rate = 0;
    enum status rc = OK;
    if (comm->size < 2)
        return err_set(err, ERR_INPUT, "ping needs two ranks, got %d", comm->size);
    char *data = calloc(1, BULK_BYTES);
    rc = comm_agree(comm, data ? OK : err_nomem(err), err);
    if (rc == OK && comm->rank < 2)
        rc = measure(comm, data, &latency_ns, &rate, err);
    THEN(comm_barrier(comm->all, err));
    json_add_int(object, "ranks", comm->size);
    json_add_int(object, "nodes", comm->num_nodes);
    json_add_int(object, "latency_ns", (int64_t)(latency_ns + 0.5));
    json_add_double(object, "bytes_per_s", rate);
    free(data);
    return rc;
}
