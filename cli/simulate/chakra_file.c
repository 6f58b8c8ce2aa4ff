/* An execution trace is a list of messages, each after its length: GlobalMetadata, then a Node an op.
 * Nodes depend on nodes of their own rank; a receive is tied to its send by peers and tag. A reader that
 * gives each node its duration comes to the simulated times of passes and messages. An all-reduce that
 * begins inside a pass depends on the pass as a whole. */
#include "cli/simulate/chakra_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "profiles/base/whole_file.h"
#include "profiles/json/json.h"

/* --- protobuf ---------------------------------------------------------------------------------- */

enum { MESSAGE_BYTES = 1024 }; /* more than a node's fields need without its dependencies */

/* A message of bounded size. */
struct message {
    size_t num;
    unsigned char bytes[MESSAGE_BYTES];
};

static void put_varint(struct message *m, uint64_t value)
{
    for (; value >= 128; value >>= 7)
        m->bytes[m->num++] = (unsigned char)(value | 128);
    m->bytes[m->num++] = (unsigned char)value;
}

static void put_int(struct message *m, int field, uint64_t value)
{
    put_varint(m, (uint64_t)field << 3);
    put_varint(m, value);
}

static void put_bytes(struct message *m, int field, const void *bytes, size_t n)
{
    put_varint(m, (uint64_t)field << 3 | 2);
    put_varint(m, n);
    memcpy(m->bytes + m->num, bytes, n);
    m->num += n;
}

static void put_text(struct message *m, int field, const char *text)
{
    put_bytes(m, field, text, strlen(text));
}

static void write_varint(FILE *out, uint64_t value)
{
    struct message text = {0};
    put_varint(&text, value);
    fwrite(text.bytes, 1, text.num, out);
}

/* --- the schema, et_def.proto ------------------------------------------------------------------ */

enum node_field {
    NODE_ID = 1,
    NODE_NAME = 2,
    NODE_TYPE = 3,
    NODE_DATA_DEPS = 5,
    NODE_START_MICROS = 6,
    NODE_DURATION_MICROS = 7,
    NODE_ATTR = 10
};
enum node_type {
    MEM_LOAD = 2,
    MEM_STORE = 3,
    COMP = 4,
    COMM_SEND = 5,
    COMM_RECV = 6,
    COMM_COLL = 7
};
enum collective_type { ALL_REDUCE = 0, REDUCE_SCATTER = 7 };
/* The field of AttributeProto that holds a value of this type. */
enum attr_type {
    ATTR_INT32 = 7,
    ATTR_INT64 = 9,
    ATTR_UINT64 = 13,
    ATTR_BOOL = 27,
    ATTR_STRING = 29
};

static void put_attr(struct message *node, const char *name, enum attr_type type, int64_t value)
{
    struct message attr = {0};
    put_text(&attr, 1, name);
    put_int(&attr, (int)type, (uint64_t)value);
    put_bytes(node, NODE_ATTR, attr.bytes, attr.num);
}

static void put_group(struct message *node, int group)
{
    struct message attr = {0};
    char name[16];
    snprintf(name, sizeof name, "%d", group);
    put_text(&attr, 1, "pg_name");
    put_text(&attr, ATTR_STRING, name);
    put_bytes(node, NODE_ATTR, attr.bytes, attr.num);
}

/* --- the simulated ops ------------------------------------------------------------------------- */

/* Ops in an order in which they can be found. */
static int compare_ops(const void *left, const void *right)
{
    const struct sim_op *a = left, *b = right;
    const int64_t parts[][2] = {
        {a->replica,       b->replica      },
        {a->rank,          b->rank         },
        {a->op.kind,       b->op.kind      },
        {a->op.stage,      b->op.stage     },
        {a->op.microbatch, b->op.microbatch},
        {a->op.arg,        b->op.arg       }
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (parts[i][0] != parts[i][1])
            return parts[i][0] < parts[i][1] ? -1 : 1;
    return 0;
}

/* A step that is being written, and the rank whose file is open. */
struct writer {
    const struct workload *workload;
    const struct schedule *full;
    struct sim_op *ops; /* owned; sorted */
    int64_t num_ops;
    int replica, rank;
    FILE *out;
    uint64_t id, last,
        last_copy[2];  /* of the node, of the last pass, of the last C and P; 0: none */
    uint64_t *pending; /* owned: receives and copies that the next pass waits for */
    uint64_t *sums;    /* owned: all-reduces that the norm and the updates wait for */
    int64_t num_pending, num_sums;
};

static const struct sim_op *find_op(const struct writer *w, int rank, struct op op)
{
    /* An all-reduce over the replicas is one op, of the first of them. */
    const int replica = op.kind == OP_ALLREDUCE ? 0 : w->replica;
    const struct sim_op key = {.op = op, .replica = replica, .rank = rank};
    return bsearch(&key, w->ops, (size_t)w->num_ops, sizeof key, compare_ops);
}

static void put_time(struct message *node, const struct sim_op *found)
{
    const int64_t start = found ? found->start_ns : 0, ns = found ? found->end_ns - start : 0;
    put_int(node, NODE_START_MICROS, (uint64_t)(start + 500) / 1000);
    put_int(node, NODE_DURATION_MICROS, (uint64_t)(ns + 500) / 1000);
    put_attr(node, "start_ns", ATTR_INT64, start);
    put_attr(node, "duration_ns", ATTR_INT64, ns);
}

/* The edge of a message, and whether it is the gradient's way back. */
static int edge_of(const struct workload *w, struct op op)
{
    const bool leaves = op.kind == OP_SEND_ACT || op.kind == OP_RECV_GRAD;
    return leaves ? w->out_edge[w->out_first[op.stage] + op.arg]
                  : w->in_edge[w->in_first[op.stage] + op.arg];
}

/* The send of an edge's message, which a simulation records for both ends. */
static struct op send_of(const struct workload *w, int edge, bool grad, int microbatch)
{
    const struct stage_edge *e = &w->edges[edge];
    const int stage = grad ? e->to : e->from;
    const int *first = grad ? w->in_first : w->out_first, *list = grad ? w->in_edge : w->out_edge;
    int arg = 0;
    while (list[first[stage] + arg] != edge)
        arg++;
    return (struct op){.kind = grad ? OP_SEND_GRAD : OP_SEND_ACT,
                       .stage = (uint16_t)stage,
                       .microbatch = microbatch,
                       .arg = (uint8_t)arg};
}

static int microbatch_size(const struct workload *w, struct op op)
{
    return op.microbatch == w->num_microbatches - 1 ? MB_LAST : MB_FULL;
}

/* A send or a receive. */
static enum status put_message(const struct writer *w, struct message *node, struct op op,
                               struct err *err)
{
    const int edge = edge_of(w->workload, op), K = w->workload->num_ranks;
    const bool grad = op.kind == OP_SEND_GRAD || op.kind == OP_RECV_GRAD;
    const struct stage_edge *e = &w->workload->edges[edge];
    const int *rank_of = w->workload->rank_of_stage;
    const int from = rank_of[grad ? e->to : e->from], to = rank_of[grad ? e->from : e->to];
    const int64_t tag = ((int64_t)op.microbatch * w->workload->num_edges + edge) * 2 + grad;
    if (tag > INT32_MAX)
        return err_set(err, ERR_INPUT, "--chakra: more messages than a tag can count");
    put_time(node, find_op(w, from, send_of(w->workload, edge, grad, op.microbatch)));
    put_attr(node, "comm_src", ATTR_INT32, w->replica * K + from);
    put_attr(node, "comm_dst", ATTR_INT32, w->replica * K + to);
    put_attr(node, "comm_tag", ATTR_INT32, tag);
    put_attr(node, "comm_size", ATTR_INT64, e->bytes[microbatch_size(w->workload, op)]);
    return OK;
}

/* Communicators: of the replicas of a rank, of the two ends of a pipeline, of all. */
static int group_of(const struct writer *w, int kind)
{
    const int K = w->workload->num_ranks, R = w->workload->num_pipelines;
    return kind == OP_ALLREDUCE ? 1 + w->rank : kind == OP_TIED ? 1 + K + w->replica : 1 + K + R;
}

static bool sums_alone(const struct writer *w, int kind)
{
    const struct workload *load = w->workload;
    return kind == OP_ALLREDUCE ? load->num_pipelines == 1
           : kind == OP_TIED ? load->rank_of_stage[0] == load->rank_of_stage[load->num_stages - 1]
                             : load->num_pipelines * load->num_ranks == 1;
}

static void put_sum(const struct writer *w, struct message *node, struct op op)
{
    const struct workload *load = w->workload;
    const int64_t bytes = op.kind == OP_ALLREDUCE
                              ? load->buckets[load->first_bucket[op.stage] + op.arg].bytes
                          : op.kind == OP_TIED ? load->tied_bytes
                                               : (int64_t)sizeof(double); /* a sum of squares */
    const bool scatter = op.kind == OP_ALLREDUCE && load->scatter;
    put_attr(node, "comm_type", ATTR_INT64, scatter ? REDUCE_SCATTER : ALL_REDUCE);
    put_attr(node, "comm_size", ATTR_INT64, bytes);
    put_group(node, group_of(w, op.kind));
}

/* --- nodes ------------------------------------------------------------------------------------- */

static enum node_type node_type_of(const struct writer *w, int kind)
{
    switch (kind) {
    case OP_C:
        return MEM_LOAD;
    case OP_P:
        return MEM_STORE;
    case OP_SEND_ACT:
    case OP_SEND_GRAD:
        return COMM_SEND;
    case OP_RECV_ACT:
    case OP_RECV_GRAD:
        return COMM_RECV;
    case OP_ALLREDUCE:
    case OP_TIED:
    case OP_NORM:
        return sums_alone(w, kind) ? COMP : COMM_COLL;
    default:
        return COMP;
    }
}

/* What an op is for the ops around it. */
struct role {
    bool copy, receive, send, sum;
    bool pass;  /* the device computes it: passes follow one another */
    bool joins; /* it waits for the sums before it */
};

static struct role role_of(int kind)
{
    struct role role = {.copy = kind == OP_C || kind == OP_P,
                        .receive = kind == OP_RECV_ACT || kind == OP_RECV_GRAD,
                        .send = kind == OP_SEND_ACT || kind == OP_SEND_GRAD,
                        .sum = kind == OP_ALLREDUCE || kind == OP_TIED || kind == OP_NORM,
                        .joins = kind == OP_TIED || kind == OP_NORM || kind == OP_UPDATE};
    role.pass = !role.copy && !role.receive && !role.send && !role.sum;
    return role;
}

/* Set deps to the nodes that an op waits for: at most 2, the pending ones and the sums. */
static int64_t find_deps(struct writer *w, struct op op, uint64_t *deps)
{
    const struct role role = role_of(op.kind);
    const uint64_t last_copy = role.copy ? w->last_copy[op.kind == OP_P] : 0;
    int64_t n = 0;
    if (w->last && !role.receive && op.kind != OP_C)
        deps[n++] = w->last;
    if (last_copy)
        deps[n++] = last_copy;
    while (role.pass && w->num_pending > 0)
        deps[n++] = w->pending[--w->num_pending];
    for (int64_t i = 0; role.joins && i < w->num_sums; i++)
        deps[n++] = w->sums[i];
    return n;
}

/* Let the ops after this one wait for it. */
static void note_node(struct writer *w, struct op op)
{
    const struct role role = role_of(op.kind);
    if (role.receive || op.kind == OP_C)
        w->pending[w->num_pending++] = w->id;
    if (role.sum)
        w->sums[w->num_sums++] = w->id;
    if (role.copy)
        w->last_copy[op.kind == OP_P] = w->id;
    if (role.pass)
        w->last = w->id;
}

/* Write a node: its length, its fields, and the ids that it waits for. */
static void write_message(const struct writer *w, const struct message *node, const uint64_t *deps,
                          int64_t n)
{
    size_t length = 0;
    struct message head = {0};
    for (int64_t i = 0; i < n; i++) {
        struct message one = {0};
        put_varint(&one, deps[i]);
        length += one.num;
    }
    put_varint(&head, NODE_DATA_DEPS << 3 | 2);
    put_varint(&head, length);
    write_varint(w->out, node->num + (n > 0 ? head.num + length : 0));
    fwrite(node->bytes, 1, node->num, w->out);
    if (n > 0)
        fwrite(head.bytes, 1, head.num, w->out);
    for (int64_t i = 0; i < n; i++)
        write_varint(w->out, deps[i]);
}

static enum status finish_node(struct writer *w, const struct message *node, struct op op,
                               struct err *err)
{
    uint64_t *deps = malloc((size_t)(2 + w->num_pending + w->num_sums) * sizeof *deps);
    if (!deps)
        return err_nomem(err);
    write_message(w, node, deps, find_deps(w, op, deps));
    note_node(w, op);
    free(deps);
    return OK;
}

static enum status write_node(struct writer *w, struct op op, struct err *err)
{
    struct message node = {0};
    char name[64];
    const enum node_type type = node_type_of(w, op.kind);
    snprintf(name, sizeof name, "%s stage %d micro-batch %d", op_kind_name(op.kind), op.stage,
             op.microbatch);
    if (op.microbatch == OP_WHOLE_BATCH)
        snprintf(name, sizeof name, "%s stage %d", op_kind_name(op.kind), op.stage);
    put_int(&node, NODE_ID, ++w->id);
    put_text(&node, NODE_NAME, name);
    put_int(&node, NODE_TYPE, type);
    put_attr(&node, "is_cpu_op", ATTR_BOOL, false);
    enum status rc = OK;
    if (type == COMM_SEND || type == COMM_RECV)
        rc = put_message(w, &node, op, err);
    else
        put_time(&node, find_op(w, w->rank, op));
    if (type == COMM_COLL)
        put_sum(w, &node, op);
    if (type == MEM_LOAD || type == MEM_STORE)
        put_attr(&node, "tensor_size", ATTR_UINT64,
                 w->workload->stages[op.stage].copy_bytes[microbatch_size(w->workload, op)]);
    THEN(finish_node(w, &node, op, err));
    return rc;
}

static enum status write_rank(struct writer *w, const char *folder, struct err *err)
{
    const struct rank_ops *list = &w->full->ranks[w->rank];
    struct atomic_file file = {0};
    struct message metadata = {0};
    char *path = NULL;
    if (asprintf(&path, "%s/elapse.%d.et", folder, w->replica * w->workload->num_ranks + w->rank) <
        0)
        return err_nomem(err);
    w->id = w->last = w->last_copy[0] = w->last_copy[1] = 0;
    w->num_pending = w->num_sums = 0;
    w->pending = malloc((size_t)(list->num_ops + 1) * sizeof *w->pending);
    w->sums = malloc((size_t)(list->num_ops + 1) * sizeof *w->sums);
    enum status rc = w->pending && w->sums ? output_open(&file, path, err) : err_nomem(err);
    if (rc == OK) {
        w->out = file.out;
        put_text(&metadata, 1, "0.0.4");
        write_varint(w->out, metadata.num);
        fwrite(metadata.bytes, 1, metadata.num, w->out);
        for (int64_t i = 0; rc == OK && i < list->num_ops; i++)
            rc = write_node(w, list->ops[i], err);
        rc = atomic_close(&file, rc, err);
    }
    free(w->pending);
    free(w->sums);
    free(path);
    return rc;
}

static struct json *add_group(struct json *groups, int group)
{
    char name[16];
    snprintf(name, sizeof name, "%d", group);
    return json_add_array(groups, name);
}

/* The ranks of each communicator, as ASTRA-sim's --comm-group-configuration takes them. */
static enum status write_groups(struct writer *w, const char *folder, struct err *err)
{
    const struct workload *load = w->workload;
    const int K = load->num_ranks, R = load->num_pipelines;
    char *path = NULL;
    struct json *groups = json_object_new(), *ranks;
    for (w->rank = 0; R > 1 && w->rank < K; w->rank++) {
        ranks = add_group(groups, group_of(w, OP_ALLREDUCE));
        for (int r = 0; r < R; r++)
            json_add_int(ranks, NULL, r * K + w->rank);
    }
    for (w->replica = 0; !sums_alone(w, OP_TIED) && w->replica < R; w->replica++) {
        ranks = add_group(groups, group_of(w, OP_TIED));
        for (int end = 0; end < 2; end++)
            json_add_int(ranks, NULL,
                         w->replica * K + load->rank_of_stage[end * (load->num_stages - 1)]);
    }
    ranks = add_group(groups, group_of(w, OP_NORM));
    for (int i = 0; i < K * R; i++)
        json_add_int(ranks, NULL, i);
    enum status rc = asprintf(&path, "%s/groups.json", folder) < 0 ? err_nomem(err) : OK;
    if (rc == OK) {
        rc = json_write_output(groups, path, err);
        free(path);
    }
    json_free(groups);
    return rc;
}

enum status chakra_files(const char *folder, const struct traced_step *step, struct err *err)
{
    struct writer w = {.workload = step->workload,
                       .full = step->full,
                       .num_ops = step->sim->num_ops,
                       .ops = malloc(((size_t)step->sim->num_ops + 1) * sizeof *w.ops)};
    if (!w.ops)
        return err_nomem(err);
    if (mkdir(folder, 0777) != 0 && errno != EEXIST) {
        free(w.ops);
        return err_set(err, ERR_SYSTEM, "cannot make '%s': %s", folder, strerror(errno));
    }
    memcpy(w.ops, step->sim->ops, (size_t)w.num_ops * sizeof *w.ops);
    qsort(w.ops, (size_t)w.num_ops, sizeof *w.ops, compare_ops);
    enum status rc = write_groups(&w, folder, err);
    for (int r = 0; rc == OK && r < step->workload->num_pipelines; r++)
        for (int k = 0; rc == OK && k < step->workload->num_ranks; k++) {
            w.replica = r;
            w.rank = k;
            rc = write_rank(&w, folder, err);
        }
    free(w.ops);
    return rc;
}
