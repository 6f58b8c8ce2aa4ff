#include "partition/base/synonyms.h"

#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct synonym {
    const char *word, *ours;
};

/* Words of PyTorch, Megatron-LM, DeepSpeed and transformers' TrainingArguments. Case does not
 * count, and '-' and '_' are one letter. */
static const struct synonym keys[] = {
    {"tensor_parallel",                      "pipeline.tensor"                               },
    {"tensor_parallel_size",                 "pipeline.tensor"                               },
    {"tensor_model_parallel_size",           "pipeline.tensor"                               },
    {"tensor",                               "pipeline.tensor"                               },
    {"tp",                                   "pipeline.tensor"                               },
    {"tp_size",                              "pipeline.tensor"                               },
    {"pipeline_parallel",                    "pipeline.num_stages"                           },
    {"pipeline_parallel_size",               "pipeline.num_stages"                           },
    {"pipeline_model_parallel_size",         "pipeline.num_stages"                           },
    {"stages",                               "pipeline.num_stages"                           },
    {"pp",                                   "pipeline.num_stages"                           },
    {"pp_size",                              "pipeline.num_stages"                           },
    {"data_parallel",                        "pipeline.num_replicas"                         },
    {"data_parallel_size",                   "pipeline.num_replicas"                         },
    {"replicas",                             "pipeline.num_replicas"                         },
    {"dp",                                   "pipeline.num_replicas"                         },
    {"dp_size",                              "pipeline.num_replicas"                         },
    {"expert_parallel",                      "pipeline.expert"                               },
    {"expert_model_parallel_size",           "pipeline.expert"                               },
    {"ep",                                   "pipeline.expert"                               },
    {"expert_tensor_parallel_size",          "pipeline.expert_tensor"                        },
    {"expert_tensor_parallel_degree",        "pipeline.expert_tensor"                        },
    {"etp",                                  "pipeline.expert_tensor"                        },
    {"context_parallel",                     "pipeline.context"                              },
    {"context_parallel_size",                "pipeline.context"                              },
    {"cp",                                   "pipeline.context"                              },
    {"cp_comm_type",                         "pipeline.context_comm"                         },
    {"vp",                                   "pipeline.chunks"                               },
    {"virtual_pipeline_model_parallel_size", "pipeline.chunks"                               },
    {"gbs",                                  "train.batch.global"                            },
    {"mbs",                                  "train.batch.micro"                             },
    {"micro_batch_size",                     "train.batch.micro"                             },
    {"zero",                                 "pipeline.shard"                                },
    {"zero_stage",                           "pipeline.shard"                                },
    {"zero_optimization",                    "pipeline.shard"                                },
    {"fsdp",                                 "pipeline.shard=weights"                        },
    {"hsdp",                                 "pipeline.shard=weights, pipeline.shard_group"  },
    {"hybrid_shard",                         "pipeline.shard=weights, pipeline.shard_group"  },
    {"data_parallel_shard_degree",           "pipeline.shard_group"                          },
    {"offload_optimizer",                    "pipeline.offload=optimizer"                    },
    {"optimizer_cpu_offload",                "pipeline.offload=optimizer"                    },
    {"lora",                                 "train.lora.rank"                               },
    {"lora_rank",                            "train.lora.rank"                               },
    {"lora_r",                               "train.lora.rank"                               },
    {"target_modules",                       "train.lora.targets"                            },
    {"modules_to_save",                      "train.lora.head"                               },
    {"load_in_4bit",                         "train.lora.base=nf4"                           },
    {"qlora",                                "train.lora.base=nf4"                           },
    {"microbatches",                         "pipeline.num_microbatches"                     },
    {"gradient_accumulation_steps",          "pipeline.num_microbatches"                     },
    {"activation_checkpointing",             "pipeline.recompute"                            },
    {"gradient_checkpointing",               "pipeline.recompute"                            },
    {"recompute_granularity",                "pipeline.recompute"                            },
    {"schedule",                             "pipeline.schedule"                             },
    {"lr",                                   "train.optimizer.lr"                            },
    {"learning_rate",                        "train.optimizer.lr"                            },
    {"momentum",                             "train.optimizer.momentum"                      },
    {"weight_decay",                         "train.optimizer.weight_decay"                  },
    {"adam_beta1",                           "train.optimizer.beta1"                         },
    {"adam_beta2",                           "train.optimizer.beta2"                         },
    {"adam_eps",                             "train.optimizer.eps"                           },
    {"optimizer",                            "train.optimizer.kind"                          },
    {"optim",                                "train.optimizer.kind"                          },
    {"lr_schedule",                          "train.lr_schedule.kind"                        },
    {"lr_scheduler",                         "train.lr_schedule.kind"                        },
    {"lr_scheduler_type",                    "train.lr_schedule.kind"                        },
    {"lr_decay_style",                       "train.lr_schedule.kind"                        },
    {"warmup",                               "train.lr_schedule.warmup_steps"                },
    {"warmup_steps",                         "train.lr_schedule.warmup_steps"                },
    {"batch",                                "train.batch.per_pipeline or train.batch.global"},
    {"batch_size",                           "train.batch.per_pipeline or train.batch.global"},
    {"global_batch_size",                    "train.batch.global"                            },
    {"train_batch_size",                     "train.batch.global"                            },
    {"epochs",                               "train.epochs"                                  },
    {"num_epochs",                           "train.epochs"                                  },
    {"num_train_epochs",                     "train.epochs"                                  },
    {"steps",                                "train.max_steps"                               },
    {"max_steps",                            "train.max_steps"                               },
    {"train_iters",                          "train.max_steps"                               },
    {"seed",                                 "train.seed"                                    },
    {"device",                               "train.device"                                  },
    {"dtype",                                "train.dtype"                                   },
    {"precision",                            "train.dtype"                                   },
    {"mixed_precision",                      "train.dtype"                                   },
    {"bf16",                                 "train.dtype=bf16"                              },
    {"fp16",                                 "train.dtype=fp16"                              },
    {"loss_scale",                           "train.dtype=bf16, which needs no loss scaling" },
    {"dropout",                              "train.dropout"                                 },
    {"label_smoothing",                      "train.label_smoothing"                         },
    {"clip_grad",                            "train.clip_norm"                               },
    {"grad_clip",                            "train.clip_norm"                               },
    {"max_grad_norm",                        "train.clip_norm"                               },
    {"gradient_clipping",                    "train.clip_norm"                               },
    {"dataset",                              "data.kind"                                     },
    {"data_path",                            "data.path"                                     },
    {"num_workers",                          "data.workers"                                  },
};

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

/* Whether two words are equal, for people. */
static bool same_word(const char *a, const char *b)
{
    while (*a && (tolower((unsigned char)*a) == tolower((unsigned char)*b) ||
                  (*a == '-' && *b == '_') || (*a == '_' && *b == '-'))) {
        a++;
        b++;
    }
    return *a == '\0' && *b == '\0';
}

/* Values that files and scripts of earlier versions have. They mean the value that stands beside. */
static const struct synonym former_values[] = {
    {"always", "stage"},
};

/* The first entry of the word whose meaning is one of names (NULL: any). */
static const char *find(const struct synonym *table, size_t n, const char *word,
                        const char *const *names)
{
    for (size_t i = 0; i < n; i++) {
        if (!same_word(word, table[i].word))
            continue;
        if (!names)
            return table[i].ours;
        for (int k = 0; names[k]; k++)
            if (strcmp(names[k], table[i].ours) == 0)
                return table[i].ours;
    }
    return NULL;
}

const char *synonym_key(const char *word)
{
    return find(keys, sizeof keys / sizeof *keys, word, NULL);
}

const char *synonym_value(const char *word, const char *const *names)
{
    for (int i = 0; names[i]; i++)
        if (same_word(word, names[i]))
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

/* Whether the word is understood on input, not only in hints: it has one meaning everywhere. */
static bool is_short(const char *word)
{
    static const char *const words[] = {"pp", "tp", "dp", "cp", "ep", "vp", "gbs", "mbs"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (same_word(word, words[i]))
            return true;
    return false;
}

const char *synonym_short_key(const char *word)
{
    return is_short(word) ? synonym_key(word) : NULL;
}

const char *synonym_short_option(const char *word)
{
    return is_short(word) ? synonym_option(word) : NULL;
}
