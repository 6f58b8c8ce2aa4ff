/* profiles/profile.h - one measured device in memory: who measured what where, and the rows.
 *
 * A profiler fills a struct profile with profile_add(), the store keeps it, files carry it, and
 * profile_cost.h answers from it. Every row is flat and described by a table of columns
 * (profile_tables), from which the SQL, the JSON, the CSV, the checks and the diff all follow.
 * Times are ns per whole micro-batch, message or op: medians over `count` repeats after warm-up,
 * with the 10th and 90th percentile beside them. */
#ifndef ELAPSE_PROFILES_PROFILE_H
#define ELAPSE_PROFILES_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "partition/cost.h"
#include "partition/job.h"
#include "partition/model.h"
#include "partition/status.h"

/* Device and environment of a profile. Texts are "" and numbers 0 where unknown. */
struct profile_info {
    char name[64];   /* unique in a store: "cpu-2core" */
    char source[16]; /* "measured", or "published" */
    char note[256];
    /* device */
    char device_kind[32]; /* as in struct device: "cpu", "h200" */
    char device_name[96]; /* "Intel Xeon ... @ 2.10GHz" */
    int64_t mem_bytes, cores, clock_mhz;
    char driver[64], libraries[128]; /* "OpenBLAS 0.3.21; Open MPI 4.1.4" */
    /* environment */
    char host[64], measured_at[32], version[32]; /* ISO 8601 UTC; of Elapse */
    double load;                                 /* 1-minute load average before measuring */
    char bf16_kernel[32], fp32_kernel[32];       /* what multiplies these on a CPU: "amx", "avx2";
                                                    "": not written down */
};

/* Whether what multiplied was a kernel of ours, which gives a row of a product the same bits in a
 * matrix of any number of rows (exec/cpu/gemm_*.c); false where nobody wrote it down. */
bool profile_rows_alone(const struct profile_info *info, enum dtype dtype);

/* median, p10, p90 of a time, in ns; all three are doubles so that 0.3 ns per sample survives. */
struct spread {
    double median_ns, p10_ns, p90_ns;
    int64_t count;
};

/* What determines an item's cost, apart from the device: a layer of one shape serves every model
 * that contains it. Fields that do not matter for the kind are 0 or "". */
struct layer_key {
    char item[16];    /* item_kind_name() */
    char variant[16]; /* attention: full, causal; mlp: erf, tanh; embedding: patch, bert, gpt;
                         head: classify, qa, mlm, causal */
    int64_t hidden, heads, mlp, seq, patch, image, vocab, classes;
};

/* The key of an item of a model; for ITEM_OPAQUE all zero. Always fully written, padding too. */
void layer_key_of(const struct model *model, int item, struct layer_key *key);

/* The key of rows that were measured while the layer dropped: its variant with "+drop" behind. */
void layer_key_dropping(struct layer_key *key);

/* Name of the memory row with the stash of one sample of an item of this key. */
void stash_row_name(const struct layer_key *key, enum dtype dtype, char name[48]);

struct layer_row {
    char backend[16]; /* "cpu", "cuda" */
    char dtype[8];    /* "fp32", "bf16", "tf32" */
    int64_t threads;  /* per rank; 0: does not apply */
    int64_t ranks;    /* ranks of the node that were busy with the same; 1: alone */
    struct layer_key key;
    char pass[16];   /* fwd bwd_input bwd_weight bwd_rest fwd_nograd update; recompute is fwd */
    int64_t samples; /* of the micro-batch; of update: optimizer state tensors, 1 momentum, 2 Adam
                        (0: whatever it was) */
    struct spread ns;
};

struct link_row {
    char backend[16]; /* "mpi", "nccl" */
    char place[8];    /* "node": inside one; "net": between nodes */
    int64_t ranks;    /* pairs busy at once; 1: alone */
    int64_t bytes;
    struct spread ns;
};

struct collective_row {
    char op[16]; /* "allreduce" */
    char backend[16];
    char place[8];
    int64_t ranks; /* taking part */
    int64_t bytes;
    struct spread ns;
};

struct host_row {
    char what[24]; /* launch (what the host takes to issue a kernel), op_overhead (per op); copy_in,
                      copy_out, copy: `bytes` to, from (pinned) and within a device; cache_read,
                      cache_write (per sample of bytes); input: `samples` samples of `bytes` each of
                      the built-in set made, augmented, laid out; norm: sum of squares of `bytes` of
                      gradients; near_row_name() */
    char backend[16];
    int64_t threads, ranks, samples, bytes;
    struct spread ns;
};

/* Host rows of what a pass (PASS_FWD, PASS_BWD_INPUT, PASS_BWD_WEIGHT) takes less for each MiB of
 * stash, by item.stash_bytes, when `bytes` of stash lie between two uses of one
 * (partition/step_rules.h, stash-distance), at `samples` a micro-batch: "near_fwd",
 * "near_bwd_input_bf16". */
void near_row_name(enum pass pass, enum dtype dtype, char name[24]);

struct memory_row {
    char what[48]; /* "vit-tiny K=2 M=4 1f1b"; stash_row_name(): what an item keeps of a sample */
    int64_t predicted_bytes, measured_bytes;
};

struct profile {
    struct profile_info info;
    struct layer_row *layers; /* all owned */
    struct link_row *links;
    struct collective_row *collectives;
    struct host_row *hosts;
    struct memory_row *memories;
    int num_layers, num_links, num_collectives, num_hosts, num_memories;
};

void profile_clear(struct profile *profile);

/* Append a row (copied). The arrays grow by doubling. ERR_NOMEM. */
enum status profile_add_layer(struct profile *profile, const struct layer_row *row,
                              struct err *err);
enum status profile_add_link(struct profile *profile, const struct link_row *row, struct err *err);
enum status profile_add_collective(struct profile *profile, const struct collective_row *row,
                                   struct err *err);
enum status profile_add_host(struct profile *profile, const struct host_row *row, struct err *err);
enum status profile_add_memory(struct profile *profile, const struct memory_row *row,
                               struct err *err);

/* How well a machine repeated itself: (p90 - p10) / median of the layers' times; the mean is by
 * time, sum of p90 - p10 over sum of medians, as a step adds them up. Beyond PROFILE_NOISY a
 * prediction from the medians is no better than that, and everybody who measures or uses the
 * profile is told. */
#define PROFILE_NOISY 0.25
struct profile_noise {
    double mean, worst;
    int num_rows, num_noisy; /* of layers; those beyond PROFILE_NOISY */
};
struct profile_noise profile_noise(const struct profile *profile);

const char *pass_name(enum pass pass); /* "fwd" "bwd_input" ... as of struct layer_row */
const char *dtype_text(int dtype);     /* enum dtype -> "fp32" "bf16" "tf32" */

/* Median, p10 and p90 (linear interpolation) of n > 0 times; sorts them in place. */
struct spread spread_of(double *times_ns, int n);

/* --- the columns ----------------------------------------------------------------------------- */

enum column_type {
    COLUMN_TEXT, /* char[size] */
    COLUMN_INT,  /* by size: 1 bool, 2 uint16_t, 4 int32_t, 8 int64_t */
    COLUMN_REAL, /* double; NaN is NULL */
    COLUMN_OP    /* uint8_t of enum op_kind, by name */
};
enum { COLUMN_KEY = 1, COLUMN_POSITIVE = 2 /* > 0, not only >= 0 */ };

struct column {
    const char *name; /* the same in SQL, JSON and CSV; a unit ends it */
    enum column_type type;
    int flags;
    size_t offset, size; /* in the row */
};

struct profile_table {
    const char *name; /* "layer_cost" */
    const struct column *columns;
    int num_columns;
    size_t row_size;
    size_t rows_offset, count_offset; /* of the array and its length in struct profile */
};

enum { PROFILE_TABLES = 5 };
extern const struct profile_table profile_tables[PROFILE_TABLES];
extern const struct column profile_info_columns[];
extern const int profile_info_num_columns;

const void *profile_row(const struct profile *profile, const struct profile_table *table, int i);
int profile_num_rows(const struct profile *profile, const struct profile_table *table);
enum status profile_add_row(struct profile *profile, const struct profile_table *table,
                            const void *row, struct err *err);
/* Order of two rows by their key columns. */
int profile_compare_rows(const struct profile_table *table, const void *a, const void *b);
/* Sort every table by key, and refuse what no profile may hold: a name that is empty or holds
 * control characters, negative or non-finite times, p10 > median, an unknown pass, duplicate keys.
 * where names the source in errors. */
enum status profile_check(struct profile *profile, const char *where, struct err *err);

#endif
