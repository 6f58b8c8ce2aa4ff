/* partition/model/attention.h - what attention computes and keeps: its core, and whether the score
 * matrices are stored. Pure. */
#ifndef ELAPSE_PARTITION_ATTENTION_H
#define ELAPSE_PARTITION_ATTENTION_H

#include "partition/model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Attention's core is scores, softmax, dropout and context: what selective recompute runs again.
 * Its forward flops, and the part of the stash that it keeps, for one sample of an item as the model
 * has it (the share of a device after model_shard()). 0 for other kinds of item. */
int64_t model_core_flops(const struct model *model, int item);
int64_t model_core_stash_bytes(const struct model *model, int item);

/* Leave the score matrices out of the stash of every attention item (FlashAttention; Dao et al.
 * 2022). The statistics of the softmax stay, 4 bytes for each head and token. Does nothing unless
 * model->attention is ATTENTION_AUTO. */
void model_fuse_attention(struct model *model);
/* Set what a job asks of attention; ATTENTION_FUSED takes the score matrices out at once. */
void model_set_attention(struct model *model, enum attention_kind attention);

const char *attention_kind_name(enum attention_kind kind);

#ifdef __cplusplus
}
#endif
#endif
