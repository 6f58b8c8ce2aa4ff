#include "partition/base/synonyms.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>

struct synonym {
    const char *word, *ours;
};

/* Words of PyTorch, Megatron-LM, DeepSpeed and transformers' TrainingArguments. Case does not
 * count, and '-' and '_' are one letter. */
static const struct synonym values[] = {
    {"adam",             "adamw"      },
    {"adam",             "adam"       },
    {"adam_w",           "adamw"      },
    {"nesterov",         "sgd"        },
    {"bfloat16",         "bf16"       },
    {"bf",               "bf16"       },
    {"float16",          "fp16"       },
    {"half",             "fp16"       },
    {"float32",          "fp32"       },
    {"float",            "fp32"       },
    {"single",           "fp32"       },
    {"tensorfloat32",    "tf32"       },
    {"gpu",              "cuda"       },
    {"nvidia",           "cuda"       },
    {"gloo",             "mpi"        },
    {"zero1",            "optimizer"  },
    {"zero_1",           "optimizer"  },
    {"zero2",            "gradients"  },
    {"zero_2",           "gradients"  },
    {"zero3",            "weights"    },
    {"zero_3",           "weights"    },
    {"zero",             "weights"    },
    {"fsdp",             "weights"    },
    {"fsdp2",            "weights"    },
    {"ddp",              "none"       },
    {"p2p",              "ring"       },
    {"a2a",              "ulysses"    },
    {"full",             "layer"      },
    {"block",            "layer"      },
    {"off",              "never"      },
    {"none",             "never"      },
    {"mnist",            "idx"        },
    {"imagenet",         "images"     },
    {"imagefolder",      "images"     },
    {"glue",             "sst2"       },
    {"csv",              "table"      },
    {"jsonl",            "table"      },
    {"wikitext",         "text"       },
    {"f_then_b",         "gpipe"      },
    {"afab",             "gpipe"      },
    {"pipedream",        "1f1b"       },
    {"pipedream_flush",  "1f1b"       },
    {"interleaved_1f1b", "interleaved"},
    {"interleaved1f1b",  "interleaved"},
    {"zero_bubble",      "zb-h1"      },
    {"zbh1",             "zb-h1"      },
    {"zbv",              "zb-v"       },
    {"zbvzerobubble",    "zb-v"       },
    {"dualpipe",         "dualpipe-v" },
    {"dualpipev",        "dualpipe-v" },
};

static const struct synonym options[] = {
    {"np",                           "n"           },
    {"nproc",                        "n"           },
    {"nproc_per_node",               "n"           },
    {"num_processes",                "n"           },
    {"ntasks",                       "n"           },
    {"ranks",                        "n"           },
    {"gpus",                         "n"           },
    {"num_gpus",                     "n"           },
    {"hostfile",                     "hosts"       },
    {"output",                       "out"         },
    {"output_dir",                   "out"         },
    {"save",                         "out"         },
    {"load",                         "resume"      },
    {"resume_from_checkpoint",       "resume"      },
    {"tp",                           "tensor"      },
    {"cp",                           "context"     },
    {"tensor_model_parallel_size",   "tensor"      },
    {"pp",                           "stages"      },
    {"pipeline_model_parallel_size", "stages"      },
    {"dp",                           "replicas"    },
    {"ep",                           "expert"      },
    {"vp",                           "chunks"      },
    {"gbs",                          "batch"       },
    {"zero",                         "shard"       },
    {"global_batch_size",            "batch"       },
    {"micro_batches",                "microbatches"},
};

bool same_word(const char *a, size_t length, const char *b)
{
    for (; length > 0 && *b; a++, b++, length--)
        if (tolower((unsigned char)*a) != tolower((unsigned char)*b) &&
            !((*a == '-' && *b == '_') || (*a == '_' && *b == '-')))
            return false;
    return length == 0 && *b == '\0';
}

/* Values that files and scripts of earlier versions have, and what people call a framework. They mean the value
 * that stands beside. */
static const struct synonym former_values[] = {
    {"always",          "stage"             },
    {"torchtitan",      "fsdp-compiled"     },
    {"torchtitan@2024", "fsdp-compiled@2024"},
    {"torchtitan@2025", "fsdp-compiled@2025"},
    {"hf",              "hf-eager"          },
    {"hf@2024",         "hf-eager@2024"     },
};

/* The first entry of the word whose meaning is one of names (NULL: any). */
static const char *find(const struct synonym *table, size_t n, const char *word,
                        const char *const *names)
{
    for (size_t i = 0; i < n; i++) {
        if (!same_word(word, strlen(word), table[i].word))
            continue;
        if (!names)
            return table[i].ours;
        for (int k = 0; names[k]; k++)
            if (strcmp(names[k], table[i].ours) == 0)
                return table[i].ours;
    }
    return NULL;
}

const char *synonym_value(const char *word, const char *const *names)
{
    for (int i = 0; names[i]; i++)
        if (same_word(word, strlen(word), names[i]))
            return names[i];
    return find(values, sizeof values / sizeof *values, word, names);
}

const char *current_value(const char *word)
{
    for (size_t i = 0; i < sizeof former_values / sizeof *former_values; i++)
        if (strcmp(word, former_values[i].word) == 0)
            return former_values[i].ours;
    return word;
}

const char *synonym_option(const char *word)
{
    return find(options, sizeof options / sizeof *options, word, NULL);
}

bool synonym_is_short(const char *word)
{
    static const char *const words[] = {"pp", "tp", "dp", "cp", "ep", "vp", "gbs", "mbs"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (same_word(word, strlen(word), words[i]))
            return true;
    return false;
}

const char *synonym_short_option(const char *word)
{
    return synonym_is_short(word) ? synonym_option(word) : NULL;
}
