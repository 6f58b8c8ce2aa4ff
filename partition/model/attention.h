/* partition/model/attention.h - what attention computes and keeps: its core, and whether the score
 * matrices are stored. Pure. */
#pragma once

#include "partition/model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Attention's core is scores, softmax, dropout and context: what selective recompute runs again.
 * Its forward flops, and the part of the stash that it keeps, for one sample of an item as the model
 * has it (the share of a device after model_shard()). 0 for other kinds of item. */
int64_t model_core_flops(const struct model *model, int item);
int64_t model_core_stash_bytes(const struct model *model, int item);

/* Take out of the items' stash what dropout keeps: its masks, and its output in attention. Items of GPT, ViT and BERT
 * have it, those of other families do not. Call it once, before the functions below. */
void model_drop_nothing(struct model *model);
/* Leave the score matrices out of the stash of every attention item (FlashAttention; Dao et al.
 * 2022). The statistics of the softmax stay, 4 bytes for each head and token. Does nothing unless
 * model->attention is ATTENTION_AUTO. */
void model_fuse_attention(struct model *model);
/* Set what a job asks of attention; kinds of one kernel take the score matrices out at once. */
void model_set_attention(struct model *model, enum attention_kind attention);

/* Whether a kind keeps score matrices because a job says so; whether it is one kernel without them. */
bool attention_is_unfused(enum attention_kind kind);
bool attention_is_fused(enum attention_kind kind);
extern const char *const attention_kind_names[]; /* by value, NULL-terminated */
const char *attention_kind_name(enum attention_kind kind);

/* The way in which attention gets the keys and values of tokens that other devices hold
 * (pipeline.context). */
enum context_kind {
    CONTEXT_RING,      /* blocks of keys and values go round while scores are computed (Liu et al.
                          2023, "Ring Attention"; Megatron-LM's cp_comm_type p2p) */
    CONTEXT_ALLGATHER, /* all keys and values are gathered before the scores (Llama 3, section 3.3.2) */
    CONTEXT_ULYSSES, /* all-to-alls trade tokens for heads and back (DeepSpeed-Ulysses; Jacobs et al.
                          2023; Megatron-LM's a2a) */
    CONTEXT_KIND_COUNT
};
enum { CONTEXT_MAX = 4096 };                   /* replicas that may divide a sample */
extern const char *const context_kind_names[]; /* by value, NULL-terminated */

#ifdef __cplusplus
}
#endif
