/* partition/model/packing.h - how documents that are shorter than model.seq fill the rows of a batch.
 *
 * A row is what the rest of the planner calls a sample: model.seq tokens. Packed rows hold several
 * documents, which do not see each other, so attention pays for each document's own pairs of
 * tokens; everything else pays for the row. What is left of a row is padding. Pure. */
#pragma once

#include "partition/model/attention.h"
#include "partition/model/framework.h"
#include "partition/model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

enum fill_kind {
    FILL_PACKED,  /* several documents a row */
    FILL_CONTEXT, /* one document a row, which is padded to model.seq tokens */
    FILL_LONGEST, /* one document a row, which is padded to the longest of the batch */
    FILL_KIND_COUNT
};
extern const char *const fill_kind_names[]; /* by value, NULL-terminated */

/* The lengths of a data set's documents in tokens: lognormal, and cut off at model.seq. */
struct packing_ask {
    double mean;      /* 0: every sample is one document of model.seq tokens */
    double deviation; /* standard deviation; 0: all are equal */
    enum fill_kind rows;
    int64_t batch; /* FILL_LONGEST: documents that are padded together */
    enum framework_kind framework;
    enum attention_kind attention;
};

/* Set what rows of the model hold, and change the sizes of its items to it: the flops of attention,
 * and for FILL_LONGEST model.seq. Call it once, on a model as it was built. ERR_INPUT: lengths that no
 * documents have. ERR_INFEASIBLE: the model is not a causal language model of layers. */
enum status model_set_packing(struct model *model, const struct packing_ask *ask, struct err *err);

/* Documents of a row, and their tokens, on average: 1 and model.seq without packing. */
double model_row_documents(const struct model *model);
double model_row_tokens(const struct model *model);
/* Pairs of a query and a key inside the documents of a row, counted as model_attention_pairs() does
 * but without padding and whatever else the kernels compute. */
double model_document_pairs(const struct model *model, int layer);
/* Tokens of a stretch that attention's kernel takes at once: model.seq, or where the kernel takes
 * documents one by one their length, each weighted by its tokens. */
int64_t model_core_tokens(const struct model *model);

#ifdef __cplusplus
}
#endif
