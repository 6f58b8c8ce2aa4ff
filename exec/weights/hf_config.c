/* exec/weights/hf_config.c - config.json, preprocessor_config.json and tokenizer_config.json as
 * transformers writes them, from a model and what its data say. */
#include "exec/weights/hf_config.h"

#include <stdio.h>
#include <string.h>

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

static void add_rope(struct json *root, const struct rope *rope)
{
    static const char *const kinds[] = {
        [ROPE_LINEAR] = "linear", [ROPE_LLAMA3] = "llama3", [ROPE_YARN] = "yarn"};
    json_add_double(root, "rope_theta", rope->theta > 0.0 ? rope->theta : 10000.0);
    if (rope->kind == ROPE_PLAIN)
        return;
    struct json *to = json_add_object(root, "rope_scaling");
    json_add_string(to, "rope_type", kinds[rope->kind]);
    json_add_double(to, "factor", rope->factor);
    if (rope->kind != ROPE_LINEAR)
        json_add_int(to, "original_max_position_embeddings", rope->original);
    if (rope->kind == ROPE_LLAMA3) {
        json_add_double(to, "low_freq_factor", rope->low);
        json_add_double(to, "high_freq_factor", rope->high);
    }
    if (rope->fast > 0.0)
        json_add_double(to, "beta_fast", rope->fast);
    if (rope->slow > 0.0)
        json_add_double(to, "beta_slow", rope->slow);
    if (rope->attention > 0.0)
        json_add_double(to, "attention_factor", rope->attention);
}

/* A decoder's; NULL: one that does not train. */
static struct json *decoder_config(const struct model *m)
{
    struct arch arch;
    if (arch_init(m, &arch, NULL) != OK)
        return NULL;
    const struct decoder *d = arch.decoder;
    const double longest = m->turns.factor > 1.0 ? m->turns.factor * m->turns.original : 0.0;
    struct json *root = json_object_new();
    json_add_string(root, "model_type", d->type);
    json_add_string(json_add_array(root, "architectures"), NULL, d->class_name);
    json_add_string(root, "torch_dtype", "float32");
    json_add_int(root, "hidden_size", m->hidden);
    json_add_int(root, "num_hidden_layers", m->num_layers);
    json_add_int(root, "num_attention_heads", m->heads);
    json_add_int(root, "num_key_value_heads", m->kv_heads);
    json_add_int(root, "head_dim", m->head_dim);
    json_add_int(root, "intermediate_size", m->mlp);
    json_add_int(root, "vocab_size", m->vocab);
    json_add_int(root, "max_position_embeddings", longest > m->seq ? (int64_t)longest : m->seq);
    json_add_string(root, "hidden_act", d->gate == ACT_SILU ? "silu" : "gelu_pytorch_tanh");
    json_add_double(root, "rms_norm_eps", arch_eps(m));
    json_add_bool(root, "tie_word_embeddings", m->tied_head);
    add_rope(root, &m->turns);
    const bool mistral = strcmp(d->type, "mistral") == 0, qwen = strncmp(d->type, "qwen", 4) == 0;
    if (m->block.window > 0 && (mistral || qwen))
        json_add_int(root, "sliding_window", m->block.window);
    else if (mistral) /* its default is a window */
        json_add_null(root, "sliding_window");
    if (m->block.window > 0 && qwen) {
        json_add_bool(root, "use_sliding_window", true);
        json_add_int(root, "max_window_layers", m->block.window_from);
    }
    /* Ids of transformers' defaults may lie outside a smaller table. */
    json_add_null(root, "bos_token_id");
    json_add_null(root, "eos_token_id");
    json_add_null(root, "pad_token_id");
    return root;
}

struct json *hf_config(const struct model *model, const struct hf_data *data)
{
    /* By task. No BERT has the last one. */
    static const char *const berts[TASK_CAUSAL_LM + 1] = {
        "BertForSequenceClassification", "BertForQuestionAnswering", "BertForMaskedLM", ""};
    struct json *root;
    if (model->family == FAMILY_LLAMA)
        return decoder_config(model);
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
    if (!model->tied_head && (model->task == TASK_MLM || model->task == TASK_CAUSAL_LM))
        json_add_bool(root, "tie_word_embeddings", false);
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
    if (data->preprocessor)
        return json_parse(data->preprocessor, "preprocessor", &root, NULL) == OK ? root : NULL;
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
    const bool bert = model->family == FAMILY_BERT, decoder = model->family == FAMILY_LLAMA;
    if ((!bert && !decoder && model->family != FAMILY_GPT) || !data ||
        data->tokens == HF_NO_TOKENIZER)
        return NULL;
    root = json_object_new();
    json_add_string(root, "tokenizer_class",
                    bert                      ? "BertTokenizer"
                    : data->tokens == HF_FILE ? "PreTrainedTokenizerFast"
                                              : "GPT2Tokenizer");
    json_add_int(root, "model_max_length", decoder ? model->seq : model->max_seq);
    if (bert)
        json_add_bool(root, "do_lower_case", data->lower_case);
    return root;
}
