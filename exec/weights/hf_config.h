/* exec/weights/hf_config.h - config.json and the other JSON files that transformers reads beside
 * exported weights. */
#pragma once

#include "partition/model/model.h"
#include "profiles/json/json.h"

enum hf_tokens { HF_NO_TOKENIZER, HF_WORDPIECE, HF_BPE, HF_FILE /* tokenizer.json */ };

/* Facts of a run's data that its model does not contain. All is borrowed; zeroed: nothing is
 * known. */
struct hf_data {
    char *const *class_names; /* [num_names]; NULL: classes have numbers only */
    int num_names;
    int channels;             /* images: of mean and std; 0: no images */
    float mean[3], std[3];    /* a pixel enters the model as (byte / 255 - mean) / std */
    const char *preprocessor; /* JSON that says it; NULL: the two above do */
    enum hf_tokens tokens;    /* text: the files of the tokenizer */
    bool lower_case;          /* HF_WORDPIECE: the vocabulary is uncased */
};

/* config.json of a model; the caller frees it. data may be NULL. NULL for models that transformers
 * does not know (uniform, explicit, U-ViT). */
struct json *hf_config(const struct model *model, const struct hf_data *data);
/* preprocessor_config.json and tokenizer_config.json; NULL: the data have no images, or no
 * tokenizer of transformers. */
struct json *hf_preprocessor(const struct model *model, const struct hf_data *data);
struct json *hf_tokenizer(const struct model *model, const struct hf_data *data);
