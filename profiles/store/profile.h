/* profiles/store/profile.h - the profile of one device in memory: its environment and its measured rows.
 *
 * A profiler fills a struct profile with the profile_add functions, the store and files keep it,
 * and profile_cost.h answers from it. Every row is flat and described by a table of columns
 * (profile_tables); SQL, JSON, CSV, checks and diff all use that table. Times are ns per whole
 * micro-batch, message or op: the median of `count` repeats after warm-up, and the 10th and 90th
 * percentile. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "partition/cost/cost.h"
#include "partition/plan/job.h"
#include "partition/model/model.h"
#include "partition/base/status.h"
#include "profiles/json/columns.h"

/* Device and environment of a profile. An unknown text is "", an unknown number 0. */
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
    char host[64];
    char measured_at[32];                  /* ISO 8601, UTC */
    char version[32];                      /* of Elapse */
    double load;                           /* 1-minute load average before measuring */
    char bf16_kernel[32], fp32_kernel[32]; /* what multiplies these on a CPU: "amx", "avx2";
                                              "": not written down */
    int64_t num_rows;                      /* of all tables; set by store_list_profiles() */
};

/* Whether the profile names a matrix kernel of ours (exec/cpu/gemm_*.c). Those compute a row of a
 * product with the same bits in a matrix of any number of rows. False if the kernel is unknown. */
bool profile_bits_independent_of_row_count(const struct profile_info *info, enum dtype dtype);

/* Median, 10th and 90th percentile of a time. Doubles, so that 0.3 ns per sample is not rounded. */
struct spread {
    double median_ns, p10_ns, p90_ns;
    int64_t count;
};

/* The properties of an item that determine its cost on a device. Models share the measurements of
 * layers of equal shape. Fields that do not matter for the kind are 0 or "". */
struct layer_key {
    char item[32];    /* item_kind_name(); of an explicit model the item's name */
    char variant[16]; /* attention: full, causal; mlp: erf, tanh; embedding: patch, bert, gpt;
                         head: classify, qa, mlm, causal */
    int64_t hidden, heads, mlp, seq, patch, image, vocab, classes;
};

/* Write the key of an item of an explicit model by its name. */
void layer_key_of_name(const char *name, struct layer_key *key);

/* Write the key of an item of a model; all zero for uniform models. It writes the padding too, so keys
 * can be compared with memcmp(). */
void layer_key_of(const struct model *model, int item, struct layer_key *key);

/* Change a key into that of the rows measured with dropout: appends "+drop" to the variant. */
void layer_key_dropping(struct layer_key *key);

/* Name of the memory row that has the stash of one sample of an item with this key. */
void stash_row_name(const struct layer_key *key, enum dtype dtype, char name[48]);

struct layer_row {
    char backend[16]; /* "cpu", "cuda" */
    char dtype[8];    /* "fp32", "bf16", "tf32" */
    int64_t threads;  /* per rank; 0: does not apply */
    int64_t ranks;    /* ranks of the node that measured this at once; 1: one alone */
    struct layer_key key;
    char pass[16];   /* fwd bwd_input bwd_weight bwd_rest fwd_nograd update; recompute is fwd */
    int64_t samples; /* micro-batch size; for update the number of optimizer state tensors:
                        1 momentum, 2 Adam (0: unknown) */
    struct spread ns;
};

struct link_row {
    char backend[16]; /* "mpi", "nccl" */
    char place[8];    /* "node": inside one; "net": between nodes */
    int64_t ranks;    /* pairs that send at once; 1: one alone */
    int64_t bytes;
    struct spread ns;
};

struct collective_row {
    char op[16]; /* "allreduce" */
    char backend[16];
    char place[8];
    int64_t ranks; /* ranks of the group */
    int64_t bytes;
    struct spread ns;
};

struct host_row {
    /* launch: the host issues a kernel. op_overhead: the runtime's own time per op. copy_in,
     * copy_out, copy: `bytes` to, from (pinned memory) and within a device. cache_read,
     * cache_write: one sample of `bytes`. input: prepare `samples` samples, each of `bytes`, of the
     * built-in data set. norm: sum of squares of `bytes` of gradients. Or a name of
     * near_row_name(). */
    char what[24];
    char backend[16];
    int64_t threads, ranks, samples, bytes;
    struct spread ns;
};

/* Name of the host rows that hold the time saved by near stash: "near_fwd", "near_bwd_input_bf16".
 * Such a row is the time that a pass (PASS_FWD, PASS_BWD_INPUT, PASS_BWD_WEIGHT) saves per MiB of
 * stash, counted by item.stash_bytes, if `bytes` of stash are touched between two uses of a byte
 * (partition/step/step_rules.h, stash-distance). `samples` is the micro-batch size. */
void near_row_name(enum pass pass, enum dtype dtype, char name[24]);

struct memory_row {
    char what[48]; /* a run, "vit-tiny K=2 M=4 1f1b"; or stash_row_name(): an item's stash */
    int64_t predicted_bytes, measured_bytes;
};

struct profile {
    struct profile_info info;
    struct layer_row *layers; /* owned, like the other arrays */
    struct link_row *links;
    struct collective_row *collectives;
    struct host_row *hosts;
    struct memory_row *memories;
    int num_layers, num_links, num_collectives, num_hosts, num_memories;
};

void profile_clear(struct profile *profile);

/* Append a copy of a row. The arrays grow by doubling. ERR_NOMEM. */
enum status profile_add_layer(struct profile *profile, const struct layer_row *row,
                              struct err *err);
enum status profile_add_link(struct profile *profile, const struct link_row *row, struct err *err);
enum status profile_add_collective(struct profile *profile, const struct collective_row *row,
                                   struct err *err);
enum status profile_add_host(struct profile *profile, const struct host_row *row, struct err *err);
enum status profile_add_memory(struct profile *profile, const struct memory_row *row,
                               struct err *err);

/* The spread of the measurements: (p90 - p10) / median of the layers' times. The mean is
 * weighted by time: the sum of p90 - p10 divided by the sum of medians. A prediction cannot be
 * more exact than this spread, so above PROFILE_NOISY whoever measures or uses the profile is
 * warned. */
#define PROFILE_NOISY 0.25
/* The words of a profile's note that say that its measuring was stopped or ran out of time. */
#define PROFILE_INCOMPLETE "incomplete:"
struct profile_noise {
    double mean, worst;
    int num_rows, num_noisy; /* layer rows; those of them above PROFILE_NOISY */
};
struct profile_noise profile_noise(const struct profile *profile);

const char *pass_name(enum pass pass); /* "fwd", "bwd_input", ..., as in struct layer_row */
const char *dtype_text(int dtype);     /* enum dtype -> "fp32" "bf16" "tf32" */

/* Median, 10th and 90th percentile (linear interpolation) of n > 0 times; sorts them in place. */
struct spread spread_of(double *times_ns, int n);

/* --- the columns ----------------------------------------------------------------------------- */

enum { PROFILE_TABLES = 5 };
extern const struct row_table profile_tables[PROFILE_TABLES];
extern const struct row_table profile_info_table; /* struct profile_info; no owner */

const void *profile_row(const struct profile *profile, const struct row_table *table, int i);
int profile_num_rows(const struct profile *profile, const struct row_table *table);
enum status profile_add_row(struct profile *profile, const struct row_table *table, const void *row,
                            struct err *err);
/* Compare two rows by their key columns; returns < 0, 0 or > 0. */
int profile_compare_rows(const struct row_table *table, const void *a, const void *b);
/* Sort every table by key and check the profile. ERR_INPUT: a name that is empty or holds control
 * characters, a negative or non-finite time, p10 > median or median > p90, an unknown pass,
 * duplicate keys. `where` names the source in errors. */
enum status profile_check(struct profile *profile, const char *where, struct err *err);
