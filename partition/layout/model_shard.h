/* partition/layout/model_shard.h - the share of a model that one device of a tensor-parallel group holds.
 *
 * A group of T neighbouring devices of a node holds each item together (Megatron-LM; Shoeybi et
 * al. 2019): QKV and the MLP's first linear by columns, the output projections by rows, embedding
 * and language-model head by rows of the token table. Norms, dropout, position tables, biases
 * after a row-divided linear, classifiers and poolers are held by every device as a whole. If T
 * exceeds the heads of keys and values (grouped queries), T / heads neighbours hold each, and sum
 * its gradients. sequence_parallel divides the tokens of norms and dropout, too (Korthikanti et
 * al. 2022).
 *
 * model_shard() makes the chain that one device holds and computes. Everything below it (cuts,
 * bounds, schedules, memory) works with that chain and needs no T. Pure. */
#pragma once

#include "partition/cluster/cluster.h"
#include "partition/cost/cost.h"
#include "partition/layout/layout.h"
#include "partition/model/attention.h"
#include "partition/model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Check that groups of T devices can hold the model. ERR_INFEASIBLE names what T must divide:
 * heads, heads of keys, MLP width, with sequence_parallel tokens; or that the model has no dims. */
enum status model_shard_check(const struct model *model, int tensor, bool sequence_parallel,
                              struct err *err);

/* Make the share of one of `tensor` devices. Dims stay those of the whole model. *part must be
 * zeroed or cleared; the caller owns it. Sizes that T does not divide are rounded up. The errors of
 * model_shard_check(), or ERR_NOMEM. */
enum status model_shard(const struct model *whole, int tensor, bool sequence_parallel,
                        struct model *part, struct err *err);

/* Check that E devices can divide the experts of each layer, and X each of them. ERR_INFEASIBLE: a model
 * without experts, or with a number of them that E does not divide; X does not divide T, T does not
 * divide E X, or X < T without sequence_parallel. */
enum status model_experts_check(const struct model *model, const struct layout *layout,
                                struct err *err);
/* Take from the items what experts of other devices hold: a device keeps 1/E of each layer's experts,
 * and of these 1/X. Router and shared experts stay as they are. Times and stashes stay: tokens of E
 * devices meet 1/E of the experts. The model passed model_experts_check(), and model_shard() if it has
 * groups. */
void model_divide_experts(struct model *part, int expert, int expert_tensor);

/* Parameters of a device's experts in an item that train; 0 for items without. */
int64_t model_expert_params(const struct model *part, int item);
/* Bytes that a device puts into an all-to-all of experts, for one sample: each token once for every
 * expert that it goes to, or with sends_once for every device. */
int64_t model_expert_bytes(const struct model *part);
/* The same where a token goes once to each of `nodes` that have some of its experts, which divide the experts
 * evenly. */
int64_t model_expert_node_bytes(const struct model *part, int nodes);

/* Check that C devices can divide the tokens of a sample in groups of T: a causal language model
 * without skip edges and without score matrices in memory, two chunks of tokens for each device, which
 * balances the causal mask (Megatron-LM; Llama 3, section 3.3.2), and with CONTEXT_ULYSSES heads that
 * C and T divide. ERR_INFEASIBLE names what is missing. */
enum status model_context_check(const struct model *model, int context, enum context_kind kind,
                                int tensor, struct err *err);
/* Keep of every sample the tokens of one of C devices: activations, stashes and flops become a C-th,
 * weights stay whole. Attention is fused from here on. The model passed model_context_check() and is
 * not divided into groups yet. */
void model_divide_tokens(struct model *model, int context);
/* Bytes of one sample's keys and values, and of its queries and outputs of attention, of the tokens
 * and heads of one device. */
int64_t model_key_bytes(const struct model *part);
int64_t model_query_bytes(const struct model *part);

/* A collective of the group, in one pass over an item. */
struct exchange {
    enum collective kind;
    int count;     /* how many one after the other */
    int64_t bytes; /* of the whole tensor, for one sample, as in cluster_collective_ns(); with
                      PASS_UPDATE for a step */
    bool hidden;   /* overlaps with compute of the same pass: it takes bandwidth and no time */
    int devices;   /* neighbours of the group that take part; 0: all */
};
#define MODEL_EXCHANGES_MAX 6

/* List what the group exchanges in a pass over an item of a model made by model_shard(). Returns
 * how many; 0 without a group. */
int model_exchanges(const struct model *part, int item, enum pass pass,
                    struct exchange exchanges[MODEL_EXCHANGES_MAX]);

#ifdef __cplusplus
}
#endif
