/* exec/save/hf_config.c - config.json, preprocessor_config.json and tokenizer_config.json as
 * transformers writes them, from a model and what its data say. */
#include "exec/save/hf_config.h"

#include <stdio.h>

#include "exec/stage/arch.h"

enum { GPT2_END_OF_TEXT = 50256, BILINEAR = 2 /* of PIL */ };

/* The name of a class: the data's, or the one that transformers gives it. */
static const char *class_name(const struct hf_data *data, int i, char made[32])
{
    if (data && data->class_names && i < data->num_names)
        return data->class_names[i];
    snprintf(made, 32, "LABEL_%d", i);
    return made;
}

static void add_labels(struct json *root, int classes, const struct hf_data *data)
{
    struct json *names = json_add_object(root, "id2label");
    char key[16], made[32];
    for (int i = 0; i < classes; i++) {
        snprintf(key, sizeof key, "%d", i);
        json_add_string(names, key, class_name(data, i, made));
    }
    names = json_add_object(root, "label2id");
    for (int i = 0; i < classes; i++)
        json_add_int(names, class_name(data, i, made), i);
}

struct json *hf_config(const struct model *model, const struct hf_data *data)
{
    static const char *const berts[] = {"BertForSequenceClassification", "BertForQuestionAnswering",
                                        "BertForMaskedLM"};
    struct json *root;
    bool vit = model->family == FAMILY_VIT, gpt = model->family == FAMILY_GPT;
    if ((!vit && !gpt && model->family != FAMILY_BERT) || model->num_skips > 0)
        return NULL;
    root = json_object_new();
    json_add_string(root, "model_type", vit ? "vit" : gpt ? "gpt2" : "bert");
    json_add_string(json_add_array(root, "architectures"), NULL,
                    vit   ? "ViTForImageClassification"
                    : gpt ? "GPT2LMHeadModel"
                          : berts[model->task]);
    json_add_string(root, "torch_dtype", "float32");
    if (gpt) {
        json_add_int(root, "n_embd", model->hidden);
        json_add_int(root, "n_layer", model->num_layers);
        json_add_int(root, "n_head", model->heads);
        json_add_int(root, "n_inner", model->mlp);
        json_add_int(root, "n_positions", model->max_seq);
        json_add_int(root, "vocab_size", model->vocab);
        json_add_string(root, "activation_function", "gelu_new");
        json_add_double(root, "layer_norm_epsilon", arch_eps(model));
        /* transformers' default, <|endoftext|>, lies outside a smaller table. */
        if (model->vocab <= GPT2_END_OF_TEXT) {
            json_add_null(root, "bos_token_id");
            json_add_null(root, "eos_token_id");
        }
        return root;
    }
    json_add_int(root, "hidden_size", model->hidden);
    json_add_int(root, "num_hidden_layers", model->num_layers);
    json_add_int(root, "num_attention_heads", model->heads);
    json_add_int(root, "intermediate_size", model->mlp);
    json_add_string(root, "hidden_act", "gelu");
    json_add_double(root, "layer_norm_eps", arch_eps(model));
    if (vit) {
        json_add_int(root, "image_size", model->image);
        json_add_int(root, "patch_size", model->patch);
        json_add_int(root, "num_channels", model->channels);
        json_add_bool(root, "qkv_bias", true);
    } else {
        json_add_int(root, "vocab_size", model->vocab);
        json_add_int(root, "max_position_embeddings", model->max_seq);
        json_add_int(root, "type_vocab_size", 2);
        json_add_int(root, "pad_token_id", 0);
        json_add_string(root, "position_embedding_type", "absolute");
    }
    if (model->task == TASK_CLASSIFY)
        add_labels(root, model->classes, data);
    return root;
}

struct json *hf_preprocessor(const struct model *model, const struct hf_data *data)
{
    struct json *root, *list;
    if (model->family != FAMILY_VIT || !data || data->channels < 1)
        return NULL;
    root = json_object_new();
    json_add_string(root, "image_processor_type", "ViTImageProcessor");
    json_add_bool(root, "do_resize", true);
    list = json_add_object(root, "size");
    json_add_int(list, "height", model->image);
    json_add_int(list, "width", model->image);
    json_add_int(root, "resample", BILINEAR);
    json_add_bool(root, "do_rescale", true);
    json_add_double(root, "rescale_factor", 1.0 / 255);
    json_add_bool(root, "do_normalize", true);
    list = json_add_array(root, "image_mean");
    for (int c = 0; c < data->channels; c++)
        json_add_double(list, NULL, (double)data->mean[c]);
    list = json_add_array(root, "image_std");
    for (int c = 0; c < data->channels; c++)
        json_add_double(list, NULL, (double)data->std[c]);
    return root;
}

struct json *hf_tokenizer(const struct model *model, const struct hf_data *data)
{
    struct json *root;
    const bool bert = model->family == FAMILY_BERT;
    if ((!bert && model->family != FAMILY_GPT) || !data || data->tokens == HF_NO_TOKENIZER)
        return NULL;
    root = json_object_new();
    json_add_string(root, "tokenizer_class", bert ? "BertTokenizer" : "GPT2Tokenizer");
    json_add_int(root, "model_max_length", model->max_seq);
    if (bert)
        json_add_bool(root, "do_lower_case", data->lower_case);
    return root;
}
