/* Loads cuDNN, makes plans and runs them (cuda_cudnn.h).
 *
 * Everything between `#if __has_include(<cudnn.h>)` and `#else` needs cuDNN's headers; without them
 * the functions at the end refuse. cuDNN's backend API consists of descriptors with attributes:
 * choose() asks a heuristic for engines, compile() turns one into a plan, cuda_cudnn_run() packs
 * pointers and executes. The graphs come from cuda_cudnn_graph.c. Read make_plan() and choose()
 * first. */
#include "exec/cuda/cuda_cudnn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/cuda/cuda_internal.h"

struct cuda_cudnn *cuda_cudnn_of(struct backend *be)
{
    struct cuda_backend *cuda = cuda_of(be);
    if (!cuda->cudnn && cuda->no_cudnn.status == OK)
        cuda_cudnn_new(cuda->stream, &cuda->cudnn, &cuda->no_cudnn);
    return cuda->cudnn;
}

void cuda_cudnn_need(struct backend *be, const char *without)
{
    if (!cuda_cudnn_of(be))
        fprintf(stderr, "elapse: %s: %s\n", without, cuda_of(be)->no_cudnn.msg);
}

#if __has_include(<cudnn.h>) && !defined(ELAPSE_NO_CUDNN)
#include <dlfcn.h>

#include "exec/cuda/cuda_cudnn_graph.h"

enum {
    MAX_PROPOSALS = 16,
    /* 9.10.2; earlier versions computed wrong gradients for padded and for odd shapes. */
    MIN_VERSION = 91002,
    LENGTHS_UP_TO = 91500,
};

struct cuda_cudnn {
    struct cudnn_api api;
    cudnnHandle_t handle;
    size_t version;
};

struct cudnn_plan {
    struct cudnn_graph graph; /* the plan was made from it; must live as long */
    cudnnBackendDescriptor_t plan;
    int64_t workspace;
};

typedef cudnnBackendDescriptor_t desc;

/* Set err with cuDNN's own message. It consists of lines `Warning: STATUS; Reason: TEXT`, and the
 * first one is the cause. */
static enum status failed(const struct cudnn_api *api, enum status rc, cudnnStatus_t code,
                          const char *what, struct err *err)
{
    char text[1024] = "";
    api->cudnnGetLastErrorString(text, sizeof text);
    char *reason = strstr(text, "CUDNN_STATUS_");
    if (reason)
        reason[strcspn(reason, "\r\n")] = '\0';
    return err_set(err, rc, "cudnn: %s: %.300s", what,
                   reason ? reason : api->cudnnGetErrorString(code));
}

/* --- the library ------------------------------------------------------------------------------ */

/* Load the library. It is never unloaded, like the other CUDA libraries. */
static enum status load(struct cudnn_api *api, struct err *err)
{
    static const char *const names[] = {
#define CUDNN_NAME(name) #name,
        CUDNN_FUNCTIONS(CUDNN_NAME)
#undef CUDNN_NAME
    };
    const char *named = getenv("ELAPSE_CUDNN_LIB");
    const char *file = named && *named ? named : "libcudnn.so.9";
    void *functions[sizeof names / sizeof *names];
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return err_set(err, ERR_INFEASIBLE, "cudnn: cannot load '%s': %s", file, dlerror());
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        functions[i] = dlsym(library, names[i]);
        if (!functions[i])
            return err_set(err, ERR_INFEASIBLE, "cudnn: '%s' has no %s", file, names[i]);
    }
    memcpy(api, functions, sizeof *api); /* *api consists of these pointers, in order */
    _Static_assert(sizeof *api == sizeof functions, "a table of function pointers only");
    const size_t version = api->cudnnGetVersion();
    if (version < MIN_VERSION || version >= 100000)
        return err_set(err, ERR_INFEASIBLE,
                       "cudnn: version %zu.%zu.%zu of '%s', must be 9.10.2 or a later 9",
                       version / 10000, version % 10000 / 100, version % 100, file);
    return OK;
}

enum status cuda_cudnn_new(struct CUstream_st *stream, struct cuda_cudnn **out, struct err *err)
{
    enum status rc;
    struct cuda_cudnn *cudnn = calloc(1, sizeof *cudnn);
    if (!cudnn)
        return err_nomem(err);
    rc = load(&cudnn->api, err);
    if (rc != OK)
        goto out;
    cudnn->version = cudnn->api.cudnnGetVersion();
    cudnnStatus_t code = cudnn->api.cudnnCreate(&cudnn->handle);
    if (code != CUDNN_STATUS_SUCCESS) {
        cudnn->handle = NULL;
        rc = failed(&cudnn->api, ERR_SYSTEM, code, "cudnnCreate", err);
        goto out;
    }
    code = cudnn->api.cudnnSetStream(cudnn->handle, stream);
    if (code != CUDNN_STATUS_SUCCESS) {
        rc = failed(&cudnn->api, ERR_SYSTEM, code, "cudnnSetStream", err);
        goto out;
    }
    *out = cudnn;
    cudnn = NULL;
out:
    cuda_cudnn_free(cudnn);
    return rc;
}

void cuda_cudnn_free(struct cuda_cudnn *cudnn)
{
    if (cudnn && cudnn->handle)
        cudnn->api.cudnnDestroy(cudnn->handle);
    free(cudnn);
}

int cuda_cudnn_version(const struct cuda_cudnn *cudnn)
{
    return (int)cudnn->version;
}

bool cuda_cudnn_wants_lengths(const struct cuda_cudnn *cudnn, int seq)
{
    return cudnn->version <= LENGTHS_UP_TO && seq % 128 != 0;
}

/* --- plans ------------------------------------------------------------------------------------ */

/* The device of a plan: the handle's, or one that is only described. */
struct target {
    const struct cudnn_api *api;
    cudnnHandle_t handle;
    desc device; /* used if handle is NULL */
};

#define TRY_CUDNN(what, call)                                                                      \
    do {                                                                                           \
        cudnnStatus_t code_ = (call);                                                              \
        if (code_ != CUDNN_STATUS_SUCCESS) {                                                       \
            rc = failed(api, ERR_INFEASIBLE, code_, what, err);                                    \
            goto out;                                                                              \
        }                                                                                          \
    } while (0)

static cudnnStatus_t set_one(const struct cudnn_api *api, desc d, cudnnBackendAttributeName_t name,
                             cudnnBackendAttributeType_t type, const void *value)
{
    return api->cudnnBackendSetAttribute(d, name, type, 1, value);
}

/* Whether an engine gives the same bits on every run: it has no note to the contrary. false also if
 * cuDNN cannot tell. */
static bool same_bits(const struct cudnn_api *api, desc config)
{
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    desc engine = NULL;
    int64_t count = 0;
    bool same = false;
    if (api->cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) !=
        CUDNN_STATUS_SUCCESS)
        return false;
    if (api->cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                      CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                                      &engine) == CUDNN_STATUS_SUCCESS &&
        api->cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                      CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT,
                                      &count, notes) == CUDNN_STATUS_SUCCESS) {
        same = true;
        for (int64_t i = 0; i < count; i++)
            same = same && notes[i] != CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    }
    api->cudnnBackendDestroyDescriptor(engine);
    return same;
}

/* Make the plan of one proposal, and compile its kernels. */
static enum status compile(const struct target *target, desc config, struct cudnn_plan *p,
                           struct err *err)
{
    enum status rc;
    const struct cudnn_api *api = target->api;
    int64_t count = 0;
    desc plan = NULL;
    TRY_CUDNN("a plan",
              api->cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan));
    TRY_CUDNN("a plan's engine", set_one(api, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                         CUDNN_TYPE_BACKEND_DESCRIPTOR, &config));
    if (target->handle)
        TRY_CUDNN("a plan's handle", set_one(api, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
                                             CUDNN_TYPE_HANDLE, &target->handle));
    else
        TRY_CUDNN("a plan's device", set_one(api, plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                                             CUDNN_TYPE_BACKEND_DESCRIPTOR, &target->device));
    TRY_CUDNN("a plan's kernels", api->cudnnBackendFinalize(plan));
    TRY_CUDNN("a plan's workspace",
              api->cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                            CUDNN_TYPE_INT64, 1, &count, &p->workspace));
    p->plan = plan;
    plan = NULL;
    rc = OK;
out:
    if (plan)
        api->cudnnBackendDestroyDescriptor(plan);
    return rc;
}

/* Take the first of cuDNN's proposals, best first by its own estimate, that gives the same bits every
 * time and that compiles. */
static enum status choose(const struct target *target, struct cudnn_plan *p, struct err *err)
{
    enum status rc;
    const struct cudnn_api *api = target->api;
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    desc heuristic = NULL, configs[MAX_PROPOSALS] = {0};
    int64_t count = 0;
    TRY_CUDNN("a heuristic",
              api->cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristic));
    TRY_CUDNN("a heuristic's graph", set_one(api, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                                             CUDNN_TYPE_BACKEND_DESCRIPTOR, &p->graph.graph));
    TRY_CUDNN("a heuristic's mode",
              set_one(api, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, &mode));
    if (!target->handle)
        TRY_CUDNN("a heuristic's device", set_one(api, heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP,
                                                  CUDNN_TYPE_BACKEND_DESCRIPTOR, &target->device));
    TRY_CUDNN("the heuristic", api->cudnnBackendFinalize(heuristic));
    for (int i = 0; i < MAX_PROPOSALS; i++)
        TRY_CUDNN("a proposal's place", api->cudnnBackendCreateDescriptor(
                                            CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configs[i]));
    TRY_CUDNN("the proposals", api->cudnnBackendGetAttribute(
                                   heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, MAX_PROPOSALS, &count, configs));
    struct err why = {0};
    rc = ERR_INFEASIBLE;
    for (int i = 0; i < count && i < MAX_PROPOSALS && rc != OK; i++)
        if (same_bits(api, configs[i]))
            rc = compile(target, configs[i], p, &why);
    if (rc != OK && why.status != OK)
        err_set(err, ERR_INFEASIBLE, "%s", why.msg);
    else if (rc != OK)
        failed(api, ERR_INFEASIBLE, CUDNN_STATUS_NOT_SUPPORTED,
               count > 0 ? "no engine whose bits are the same every time" : "no engine", err);
out:
    for (int i = 0; i < MAX_PROPOSALS; i++)
        if (configs[i])
            api->cudnnBackendDestroyDescriptor(configs[i]);
    if (heuristic)
        api->cudnnBackendDestroyDescriptor(heuristic);
    return rc;
}

static enum status make_plan(const struct target *target, const struct sdpa_shape *shape,
                             struct cudnn_plan **out, struct err *err)
{
    enum status rc;
    struct cudnn_plan *p = calloc(1, sizeof *p);
    if (!p)
        return err_nomem(err);
    p->graph.cudnn = target->api;
    if (cudnn_graph_sdpa(&p->graph, target->handle, shape))
        rc = choose(target, p, err);
    else
        rc = failed(target->api, ERR_INFEASIBLE, p->graph.failed, p->graph.failed_at, err);
    if (rc == OK) {
        *out = p;
        p = NULL;
    }
    cuda_cudnn_plan_free(p);
    return rc;
}

enum status cuda_cudnn_sdpa(struct cuda_cudnn *cudnn, const struct sdpa_shape *shape,
                            struct cudnn_plan **plan, struct err *err)
{
    const struct target target = {&cudnn->api, cudnn->handle, NULL};
    return make_plan(&target, shape, plan, err);
}

void cuda_cudnn_plan_free(struct cudnn_plan *plan)
{
    if (!plan)
        return;
    if (plan->plan)
        plan->graph.cudnn->cudnnBackendDestroyDescriptor(plan->plan);
    cudnn_graph_clear(&plan->graph);
    free(plan);
}

int64_t cuda_cudnn_workspace(const struct cudnn_plan *plan)
{
    return plan->workspace;
}

enum status cuda_cudnn_try(const char *device, const struct sdpa_shape *shape,
                           int64_t *workspace_bytes, struct err *err)
{
    enum status rc;
    struct cudnn_api table = {0};
    const struct cudnn_api *api = &table;
    struct target target = {api, NULL, NULL};
    struct cudnn_plan *plan = NULL;
    rc = load(&table, err);
    if (rc != OK)
        return rc;
    TRY_CUDNN("a device", api->cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR,
                                                            &target.device));
    TRY_CUDNN("a device's description",
              api->cudnnBackendSetAttribute(target.device,
                                            CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                            CUDNN_TYPE_CHAR, (int64_t)strlen(device) + 1, device));
    TRY_CUDNN("the device", api->cudnnBackendFinalize(target.device));
    rc = make_plan(&target, shape, &plan, err);
    if (rc == OK)
        *workspace_bytes = plan->workspace;
out:
    cuda_cudnn_plan_free(plan);
    if (target.device)
        api->cudnnBackendDestroyDescriptor(target.device);
    return rc;
}

/* --- issue ------------------------------------------------------------------------------------ */

enum status cuda_cudnn_run(struct cuda_cudnn *cudnn, const struct cudnn_plan *plan,
                           void *const at[SDPA_NUM_UIDS], void *workspace, struct err *err)
{
    enum status rc;
    const struct cudnn_api *api = &cudnn->api;
    const struct cudnn_graph *g = &plan->graph;
    const void *tensors[SDPA_NUM_UIDS];
    desc pack = NULL;
    for (int i = 0; i < g->num_uids; i++) {
        const int64_t uid = g->uids[i];
        tensors[i] = g->is_number[uid] ? &g->numbers[uid] : at[uid];
    }
    TRY_CUDNN("a pack",
              api->cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack));
    TRY_CUDNN("a pack's names",
              api->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
                                            CUDNN_TYPE_INT64, g->num_uids, g->uids));
    TRY_CUDNN("a pack's tensors",
              api->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                            CUDNN_TYPE_VOID_PTR, g->num_uids, tensors));
    TRY_CUDNN("a pack's workspace", set_one(api, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                            CUDNN_TYPE_VOID_PTR, &workspace));
    TRY_CUDNN("the pack", api->cudnnBackendFinalize(pack));
    TRY_CUDNN("the kernels", api->cudnnBackendExecute(cudnn->handle, plan->plan, pack));
    rc = OK;
out:
    if (pack)
        api->cudnnBackendDestroyDescriptor(pack);
    return rc;
}

#else /* built without the headers: every function refuses */

static enum status absent(struct err *err)
{
    return err_set(err, ERR_INFEASIBLE, "cudnn: built without its headers");
}
enum status cuda_cudnn_new(struct CUstream_st *stream, struct cuda_cudnn **cudnn, struct err *err)
{
    (void)stream, (void)cudnn;
    return absent(err);
}
void cuda_cudnn_free(struct cuda_cudnn *cudnn)
{
    (void)cudnn;
}
int cuda_cudnn_version(const struct cuda_cudnn *cudnn)
{
    (void)cudnn;
    return 0;
}
bool cuda_cudnn_wants_lengths(const struct cuda_cudnn *cudnn, int seq)
{
    (void)cudnn, (void)seq;
    return false;
}
enum status cuda_cudnn_sdpa(struct cuda_cudnn *cudnn, const struct sdpa_shape *shape,
                            struct cudnn_plan **plan, struct err *err)
{
    (void)cudnn, (void)shape, (void)plan;
    return absent(err);
}
void cuda_cudnn_plan_free(struct cudnn_plan *plan)
{
    (void)plan;
}
int64_t cuda_cudnn_workspace(const struct cudnn_plan *plan)
{
    (void)plan;
    return 0;
}
enum status cuda_cudnn_run(struct cuda_cudnn *cudnn, const struct cudnn_plan *plan,
                           void *const at[SDPA_NUM_UIDS], void *workspace, struct err *err)
{
    (void)cudnn, (void)plan, (void)at, (void)workspace;
    return absent(err);
}
enum status cuda_cudnn_try(const char *device, const struct sdpa_shape *shape,
                           int64_t *workspace_bytes, struct err *err)
{
    (void)device, (void)shape, (void)workspace_bytes;
    return absent(err);
}
#endif
