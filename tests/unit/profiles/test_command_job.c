/* Commands of other frameworks as jobs: layouts, defaults, what is named and what is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "partition/schedule/schedule.h"
#include "profiles/frameworks/command_job.h"
#include "profiles/job/job_json.h"
#include "tests/unit/test.h"

/* Llama 3 8B on 64 devices, TP 2 x PP 4 x DP 8. */
/* clang-format off */
#define LLAMA \
    "torchrun --nnodes 8 --nproc_per_node 8 pretrain_gpt.py \\\n --num-layers 32 --hidden-size 4096 " \
    "--num-attention-heads 32 " \
    "--group-query-attention --num-query-groups 8 --ffn-hidden-size=14336 --seq-length 8192 " \
    "--swiglu " \
    "--normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights --vocab-size 128256 " \
    "--tensor-model-parallel-size 2 " \
    "--pipeline-model-parallel-size 4 " \
    "--sequence-parallel " \
    "--micro-batch-size 1 --global-batch-size 128 --bf16 --use-distributed-optimizer --lr 3e-4 " \
    "--fp8-format hybrid --tp-comm-overlap-cfg x --recompute-granularity full --recompute-method " \
    "block " \
    "--recompute-num-layers 1"
/* clang-format on */
static const char llama[] = LLAMA " --num-layers-per-virtual-pipeline-stage 2", whole[] = LLAMA;

static void flags__become_a_job(void **state)
{
    (void)state;
    struct command_job made = {0};
    struct err err = {0};
    struct job job = {0};
    if (command_job_read("megatron", llama, 64, 0, &made, &err) != OK)
        fail_msg("%s", err.msg);
    if (job_from_json(made.job, "megatron", NULL, (const char *[]){"cluster=h100-8x8"}, 1, &job,
                      &err) != OK)
        fail_msg("%s", err.msg);
    assert_int_equal(model_total_params(&job.model), 8030261248);
    assert_int_equal(job.pipeline.layout.at.tensor, 2);
    assert_int_equal(job.pipeline.num_stages, 4);
    assert_int_equal(job.pipeline.num_replicas, 8);
    assert_int_equal(job.pipeline.chunks, 4);
    assert_int_equal(job.pipeline.recompute, RECOMPUTE_LAYER);
    assert_int_equal(job.pipeline.recompute_layers, 1);
    assert_int_equal(job.pipeline.layout.at.shard, SHARD_OPTIMIZER);
    assert_true(job.pipeline.layout.at.sequence_parallel);
    assert_int_equal(job.train.batch, 128);
    assert_int_equal(job.train.micro, 1);
    assert_int_equal(json_count(made.not_counted), 1);
    assert_string_equal(json_string(json_at(made.not_counted, 0)),
                        "--tp-comm-overlap-cfg x: all of the overlap is counted (today is "
                        "slower)");
    assert_int_equal(job.train.dtype, DTYPE_FP8);
    assert_int_equal(made.num_stages, 16);
    assert_true(made.blocks[0] == 3 && made.blocks[1] == 2 && made.blocks[15] == 3);
    job_clear(&job);
    command_job_clear(&made);
}

/* Parentheses are multiplied before single letters, as in Megatron-LM's parse_str_to_list(). */
static void layouts__become_stages(void **state)
{
    (void)state;
    struct command_job made = {0};
    struct err err = {0};
    char text[2000];
    snprintf(text, sizeof text, "%s --pipeline-model-parallel-layout Et*3|(t*2|)*14,tL", whole);
    if (command_job_read("megatron", text, 64, 0, &made, &err) != OK)
        fail_msg("%s", err.msg);
    assert_int_equal(made.num_stages, 16);
    assert_int_equal(made.blocks[0], 4);
    for (int s = 1; s < 16; s++)
        assert_int_equal(made.blocks[s], 2);
    assert_int_equal((int)json_number(json_path(made.job, "pipeline.chunks")), 4);
    command_job_clear(&made);
}

static void bad_flags__are_named(void **state)
{
    (void)state;
    static const struct {
        const char *more, *says;
    } cases[] = {
        {"--context-parallel-size 3",                      "CP 3"                     },
        {"--pipeline-model-parallel-size 3",               "TP 2 x PP 3"              },
        {"--global-batch-size 100",                        "--global-batch-size 100"  },
        {"--num-layers x",                                 "got 'x'"                  },
        {"--micro-batch-size",                             "got ''"                   },
        {"--num-experts 6 --expert-model-parallel-size 4", "not a multiple of EP 4"   },
        {"--decoder-last-pipeline-num-layers 8",           "uneven pipeline needs"    },
        {"--tensor-model-parallel-size 3",                 "not a multiple of TP 3"   },
        {"--global-batch-size 40",                         "remainder of 1"           },
        {"--batch-size 4",                                 "no longer takes it"       },
        {"--mamba-num-heads 4",                            "read from a config.json"  },
        {"--num-layers $L",                                "leaves '$L' open"         },
        {"stray",                                          "belongs to no flag"       },
        {"--pipeline-model-parallel-layout Et*31|t|L|",    "layout must have"         },
        {"--pipeline-model-parallel-layout Et*32|L|m|t",   "layout must have"         },
        {"--pipeline-model-parallel-layout (E*32L",        "layout must have"         },
        {"--pipeline-model-parallel-layout Et*16|t*16L",   "is not a multiple of PP 4"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct command_job made = {0};
        struct err err = {0};
        char text[2000];
        snprintf(text, sizeof text, "%s %s", strstr(cases[i].more, "layout") ? whole : llama,
                 cases[i].more);
        assert_int_equal(command_job_read("megatron", text, 64, 0, &made, &err), ERR_INPUT);
        if (!strstr(err.msg, cases[i].says))
            fail_msg("%s: %s", cases[i].more, err.msg);
    }
}

/* Values that the job must have, of flags and settings of all frameworks. Right are the programs' own
 * rules: the file that each row names. */
static void values__are_those_of_the_programs(void **state)
{
    (void)state;
#define TITAN "--module llama3 --config llama3_8b --training.local_batch_size 8 "
#define ZERO                                                                                       \
    "{\"train_micro_batch_size_per_gpu\": 2, \"gradient_accumulation_steps\": 4, "                 \
    "\"zero_optimization\": "
#define MIX LLAMA " --num-experts 8 --moe-router-topk 2 --expert-model-parallel-size 4 "
    static const struct {
        const char *framework, *text, *key, *want;
    } cases[] = {
  /* megatron/training/arguments.py, core/transformer/transformer_config.py */
        {"megatron",   LLAMA,                                                                        "train.overlap",          "none"         },
        {"megatron",   LLAMA,                                                                        "train.fp8_scaling",      "delayed"      },
        {"megatron",   LLAMA " --fp8-recipe tensorwise",                                             "train.fp8_scaling",      "current"      },
        {"megatron",   LLAMA " --tp-comm-overlap",                                                   "train.overlap",          "tensor"       },
        {"megatron",   MIX "--overlap-moe-expert-parallel-comm --tp-comm-overlap",                   "train.overlap",
         "all"                                                                                                                                },
        {"megatron",   MIX "--moe-token-dispatcher-type flex",                                       "train.dispatcher",       "flex"         },
        {"megatron",   MIX "--moe-layer-freq ([0]*3+[1]*29)",                                        "model.dense_layers",     "3"            },
        {"megatron",   MIX "--moe-layer-freq [0,1]*16",                                              "model.moe_every",        "2"            },
        {"megatron",   MIX "--moe-router-num-groups 4 --moe-router-group-topk 2",
         "model.groups_active",                                                                                                "2"            },
        {"megatron",   MIX "--expert-tensor-parallel-size 1",                                        "pipeline.expert_tensor", "1"            },
        {"megatron",   LLAMA " --cp-comm-type a2a --context-parallel-size 2",                        "pipeline.context_comm",
         "ulysses"                                                                                                                            },
        {"megatron",   LLAMA " --grad-reduce-in-bf16",                                               "train.gradient_bytes",   "2"            },
        {"megatron",   LLAMA " --num-distributed-optimizer-instances 2",                             "pipeline.shard_group",   "4"            },
        {"megatron",   LLAMA " --optimizer muon",                                                    "train.optimizer.kind",   "sgd"          },
        {"megatron",
         LLAMA " --use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params",
         "pipeline.shard",                                                                                                     "weights"      },
        {"megatron",   LLAMA " --mtp-num-layers 1",                                                  "model.layers",           "33"           },
        {"megatron",   LLAMA " --cuda-graph-impl full_iteration",                                    "train.cuda_graphs",      "step"         },
 /* torchtitan/distributed/parallel_dims.py */
        {"torchtitan", TITAN "--parallelism.context_parallel_degree 4",                              "pipeline.context",       "4"            },
        {"torchtitan", TITAN "--parallelism.data_parallel_replicate_degree 4",
         "pipeline.shard_group",                                                                                               "16"           },
        {"torchtitan", TITAN "--parallelism.fsdp-reshard-after-forward=never",                       "pipeline.shard",
         "gradients"                                                                                                                          },
        {"torchtitan", TITAN "activation-checkpoint:full",                                           "pipeline.recompute",     "layer"        },
        {"torchtitan",
         TITAN "--parallelism.pipeline_parallel_degree 4 --parallelism.pipeline_parallel_schedule "
               "interleaved1f1b",                                                                    "pipeline.schedule",      "interleaved"  },
 /* deepspeed/runtime/config.py */
        {"deepspeed",  ZERO "{\"stage\": 3}}",                                                       "train.batch.global",     "512"          },
        {"deepspeed",  ZERO "{\"stage\": 3}}",                                                       "pipeline.shard",         "weights"      },
        {"deepspeed",  ZERO "{\"stage\": 2}, \"bf16\": {\"enabled\": true}}",                        "train.dtype",            "bf16"         },
        {"deepspeed",  ZERO "{\"stage\": 2, \"offload_optimizer\": {\"device\": \"cpu\"}}}",
         "pipeline.offload",                                                                                                   "optimizer"    },
        {"deepspeed",  ZERO "{\"stage\": 1, \"overlap_comm\": true, \"reduce_bucket_size\": 5e7}}",
         "pipeline.bucket_bytes",                                                                                              "200000000"    },
 /* transformers/training_args.py */
        {"hf",
         "train.py --model_name_or_path meta-llama/Llama-2-7b-hf --bf16 True "
         "--per_device_train_batch_size 4 --gradient_accumulation_steps 2 --output_dir x",           "train.batch.global",     "512"          },
        {"hf",         "train.py --model_name_or_path gpt2 --bf16 --gradient_checkpointing",
         "pipeline.recompute",                                                                                                 "layer"        },
        {"hf",         "train.py --model_name_or_path gpt2 --fsdp \"full_shard auto_wrap\"",
         "pipeline.shard",                                                                                                     "weights"      },
        {"hf",         "train.py --model_name_or_path gpt2 --fsdp \"shard_grad_op auto_wrap\"",
         "pipeline.shard",                                                                                                     "gradients"    },
        {"hf",         "train.py --model_name_or_path gpt2 --fsdp full_shard --torch_compile",
         "train.framework",                                                                                                    "fsdp-compiled"},
        {"hf",
         "{\"model_name_or_path\": \"gpt2\", \"fp16\": true, \"per_device_train_batch_size\": 2}",   "train.dtype",            "fp16"         },
        {"hf",
         "{\"deepspeed\": {\"zero_optimization\": {\"stage\": 3}, \"train_batch_size\": \"auto\"}}", "train.framework",        "deepspeed"    },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct command_job made = {0};
        struct err err = {0};
        char *text = NULL;
        if (command_job_read(cases[i].framework, cases[i].text, 64, 0, &made, &err) != OK)
            fail_msg("%s: %s", cases[i].text, err.msg);
        const struct json *value = json_path(made.job, cases[i].key);
        assert_int_equal(json_text(value, false, &text, &err), OK);
        const char *got = json_string(value) ? json_string(value) : text;
        if (strcmp(got, cases[i].want) != 0)
            fail_msg("%s: %s is %s, not %s", cases[i].text, cases[i].key, got, cases[i].want);
        free(text);
        command_job_clear(&made);
    }
}

/* What the programs refuse has no time: the rule and its numbers are in the line. */
static void refusals__name_rule_and_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *framework, *text, *says;
    } cases[] = {
        {"torchtitan", TITAN "--parallelism.pipeline_parallel_degree 16",
         "1F1B needs at least as many micro-batches as stages: 8 < 16"                                                                                  },
        {"torchtitan",
         "--module llama3 --config llama3_8b --training.local_batch_size 9 "
         "--parallelism.pipeline_parallel_degree 2 "
         "--parallelism.pipeline_parallel_schedule Interleaved1F1B",                         "9 micro-batches are not a multiple of 4 rounds"           },
        {"torchtitan", "--module llama3 --config llama9",                                    "--config must be one of llama3_8b"                        },
        {"deepspeed",  "{\"train_batch_size\": 100, \"train_micro_batch_size_per_gpu\": 3}",
         "train_batch_size 100 is not"                                                                                                                  },
        {"deepspeed",  "{\"zero_optimization\": {\"stage\": 2}}",                            "are missing"                                              },
        {"deepspeed",
         "{\"train_batch_size\": 64, \"zero_optimization\": {\"offload_optimizer\": {\"device\": "
         "\"cpu\"}}}",                                                                       "needs a stage of 1"                                       },
        {"hf",         "train.py --use_cpu True",                                            "nothing runs on a GPU"                                    },
        {"megatron",   "pretrain_t5.py --num-layers 12 --hidden-size 768",
         "pretrain_t5.py is not read"                                                                                                                   },
        {"megatron",   LLAMA " --cp-comm-type a2a+p2p",
         "must be one of p2p all_gather allgather a2a, got 'a2a+p2p'"                                                                                   },
        {"jax",        "x",                                                                  "must be one of megatron torchtitan deepspeed hf automodel"},
        {"megatron",   "no-such-script.sh",                                                  "cannot read the script"                                   },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct command_job made = {0};
        struct err err = {0};
        if (command_job_read(cases[i].framework, cases[i].text, 64, 0, &made, &err) == OK)
            fail_msg("%s: accepted", cases[i].text);
        if (!strstr(err.msg, cases[i].says))
            fail_msg("%s: %s", cases[i].text, err.msg);
    }
}

/* What no list has is named, and so is a launcher that starts another number of processes. */
static void what_is_not_counted__is_said(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {LLAMA " --of-a-fork 3",            "--of-a-fork 3: Megatron-LM core 0.19.2 has no such flag"},
        {LLAMA " --softmax-type learnable", "the plain softmax is counted"                           },
        {LLAMA " --mtp-num-layers 1",       "without their projection"                               },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct command_job made = {0};
        struct err err = {0};
        char *text = NULL;
        const enum status rc = command_job_read("megatron", cases[i].text, 64, 0, &made, &err);
        assert_int_equal(rc, OK);
        assert_int_equal(json_text(made.not_counted, false, &text, &err), OK);
        if (!strstr(text, cases[i].says))
            fail_msg("%s: %s", cases[i].text, text);
        free(text);
        command_job_clear(&made);
    }
}

/* The op lists of a file count, and not the name beside them, which only places stages. */
static void op_lists__are_those_of_their_schedule(void **state)
{
    (void)state;
    static const enum schedule_kind kinds[] = {SCHEDULE_1F1B, SCHEDULE_INTERLEAVED, SCHEDULE_ZB_H1,
                                               SCHEDULE_LOOPED_BFS};
    char name[] = "/tmp/elapse-lists-XXXXXX", text[1200];
    const int made_file = mkstemp(name);
    assert_true(made_file >= 0);
    close(made_file);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct schedule lists = {0};
        struct command_job made = {0};
        struct err err = {0};
        char *csv = NULL;
        const int chunks = schedule_default_chunks(kinds[i]);
        assert_int_equal(schedule_generate(kinds[i], 4, 8, chunks, &lists, &err), OK);
        assert_int_equal(schedule_to_csv(&lists, &csv, &err), OK);
        FILE *out = fopen(name, "w");
        assert_true(out && fputs(csv, out) >= 0 && fclose(out) == 0);
        snprintf(text, sizeof text,
                 TITAN "--parallelism.pipeline_parallel_degree 4 "
                       "--parallelism.pipeline_parallel_schedule Interleaved1F1B "
                       "--parallelism.pipeline_parallel_schedule_csv %s %s",
                 name, chunks == 1 ? "--parallelism.pipeline_parallel_layers_per_stage 9" : "");
        if (command_job_read("torchtitan", text, 64, 0, &made, &err) != OK)
            fail_msg("%s", err.msg);
        assert_string_equal(json_string(json_path(made.job, "pipeline.schedule")),
                            schedule_kind_name(kinds[i]));
        assert_int_equal(made.num_stages, 4 * chunks);
        command_job_clear(&made);
        strcat(text, " --training.local_batch_size 16");
        assert_int_equal(command_job_read("torchtitan", text, 64, 0, &made, &err), ERR_INPUT);
        assert_non_null(strstr(err.msg, "8 micro-batches, the layout 4"));
        free(csv);
        schedule_clear(&lists);
    }
    unlink(name);
}

/* Files that settings and flags name, in forms that the programs read: LLaMA-Factory's YAML, accelerate's,
 * DeepSpeed's JSON with comments (it reads HJSON), YAML with mappings in braces. Launchers say how many
 * devices they start; run_train.sh of torchtitan takes its model from variables. */
static void files_and_launchers__are_followed(void **state)
{
    (void)state;
    static const char *const files[][2] = {
        {"z3.json",   "{\"bf16\": {\"enabled\": \"auto\"}, \"zero_optimization\": {\"stage\": 3}, "
                    "\"train_batch_size\": \"auto\"}"                                    },
        {"lf.yaml",
         "### model\nmodel_name_or_path: gpt2\nfinetuning_type: full\ndeepspeed: z3.json\n"
         "cutoff_len: 512\nper_device_train_batch_size: 1\nbf16: true\n"                                    },
        {"gone.yaml", "model_name_or_path: gpt2\ndeepspeed: no-such.json\n"                                 },
        {"acc.yaml",
         "deepspeed_config:\n  gradient_accumulation_steps: 4\n  offload_optimizer_device: cpu\n"
         "  zero_stage: 3\ndistributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_processes: 4\n"          },
        {"ds.json",
         "{\n  \"train_batch_size\": 64, // in all\n  \"train_micro_batch_size_per_gpu\": 2,\n"
         "  /* \"stage\": 3 */\n  \"zero_optimization\": {\"stage\": 2,}, # two\n"
         "  \"wall_clock_breakdown\": false,\n}\n"                                                          },
        {"am.yaml",   "step_scheduler: {global_batch_size: 32, local_batch_size: 4}\n"
                    "model: {pretrained_model_name_or_path: Qwen/Qwen3-0.6B}\n"
                    "distributed: {strategy: ddp, activation_checkpointing: selective}\n"},
        {"cut.sh",
         "torchrun pretrain_gpt.py --num-layers 24 --hidden-size 2048 --num-attention-heads 16 \\\n"
         "  --seq-length 2048 --max-position-embeddings 2048 --vocab-size 50304 --micro-batch-size "
         "2 "
         "--tensor-model-parallel-size 2\n  --bf16 --use-distributed-optimizer\n"                           },
        {"case.sh",
         "case ${1:-7b} in\n  7b|8b) L=32; H=4096 ;;\n  13b)\n    L=40\n    H=5120\n    ;;\n  *) "
         "L=2; H=128;;\n"
         "esac\ncase \"$PREC\" in bf16) P=--bf16 ;; esac\ncase x in y) H=1 ;; x) TP=2 ;; x) TP=4 "
         ";; esac\n"
         "torchrun pretrain_gpt.py --num-layers $L --hidden-size $H --num-attention-heads 32 "
         "--seq-length 2048 --max-position-embeddings 2048 --vocab-size 50304 --micro-batch-size 2 "
         "--tensor-model-parallel-size $TP $P --global-batch-size $((${GPUS:-8} * ${2:-8} / 2))\n"          },
        {"old.toml",
         "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[experimental]\npipeline_parallel_degree = "
         "2\n"                                                                                              },
        {"t.sh",
         "EXTRA=\"--tensor-model-parallel-size 2\"\n[[ -n \"$USE_SP\" ]] && EXTRA+=\" "
         "--sequence-parallel\"\n[ \"${PP:-1}\" -gt 1 ] && EXTRA=\"$EXTRA "
         "--pipeline-model-parallel-size $PP\"\n[ 1 -eq 2 ] || EXTRA+=\" --bf16\"\n"
         "[ 1 -eq 1 ] && [ 2 -eq 1 ] && { EXTRA+=\" --fp16\"; EXTRA+=\" --fp8-format e4m3\"; }\n"
         "[ 1 -eq 1 ] || exit 1\ncd /tmp && torchrun --nproc-per-node 8 pretrain_gpt.py "
         "--num-layers 24 "
         "--hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings "
         "2048 --vocab-size 50304 --micro-batch-size 2 $EXTRA\n"                                            },
        {"m.sh",
         "export LAUNCHER=\"python -m torch.distributed.run --nproc_per_node 8\"\n"
         "export CMD=\"pretrain_gpt.py --num-layers 24 --hidden-size 2048 --num-attention-heads 16 "
         "--seq-length 2048 --max-position-embeddings 2048 --vocab-size 50304 --micro-batch-size 2 "
         "--tensor-model-parallel-size 2\"\n"
         "srun bash -c '$LAUNCHER --node_rank $SLURM_PROCID $CMD' 2>&1 | tee log\n"                         },
    };
#define HF "--model_name_or_path gpt2 --per_device_train_batch_size 2 "
    static const struct {
        const char *framework, *text, *key,
            *want; /* of the job; NULL: of not_counted, or the error */
    } cases[] = {
        {"hf",         "lf.yaml",                                                                           "pipeline.shard",             "weights"                                            },
        {"hf",         "lf.yaml",                                                                           "train.framework",            "deepspeed"                                          },
        {"hf",         "gone.yaml",                                                                         NULL,                         "no-such.json"                                       },
        {"hf",
         "accelerate launch --config_file acc.yaml t.py " HF "--gradient_accumulation_steps 4",
         "pipeline.offload",                                                                                                              "optimizer"                                          },
        {"hf",
         "accelerate launch --config_file acc.yaml t.py " HF "--gradient_accumulation_steps 4",
         NULL,                                                                                                                            "num_processes 4: the cluster's 8 devices"           },
        {"hf",         "accelerate launch --config_file acc.yaml t.py " HF,                                 NULL,
         "deepspeed_config.gradient_accumulation_steps 4 must be gradient_accumulation_steps, got "
         "1"                                                                                                                                                                                   },
        {"hf",
         "accelerate launch --use_deepspeed --zero_stage 2 --offload_optimizer_device=cpu t.py " HF,
         "pipeline.shard",                                                                                                                "gradients"                                          },
        {"hf",
         "accelerate launch --use_deepspeed --zero_stage 2 --offload_optimizer_device=cpu t.py " HF,
         "pipeline.offload",                                                                                                              "optimizer"                                          },
        {"hf",
         "accelerate launch --mixed_precision bf16 --use_fsdp --fsdp_sharding_strategy "
         "SHARD_GRAD_OP t.py " HF,
         "pipeline.shard",                                                                                                                "gradients"                                          },
        {"hf",         "accelerate launch --mixed_precision bf16 --use_fsdp t.py " HF,                      "train.dtype",
         "bf16"                                                                                                                                                                                },
        {"hf",         "accelerate launch --deepspeed_config_file z3.json t.py " HF,                        "pipeline.shard",
         "weights"                                                                                                                                                                             },
        {"megatron",   "PREC=bf16 case.sh",                                                                 "model.layers",               "32"                                                 },
        {"megatron",   "PREC=bf16 case.sh 13b",                                                             "model.hidden",               "5120"                                               },
        {"megatron",   "PREC=bf16 case.sh 70b",                                                             "model.layers",               "2"                                                  },
        {"megatron",   "PREC=bf16 case.sh 8b",                                                              "train.dtype",                "bf16"                                               },
        {"megatron",   "PREC=fp16 case.sh 8b",                                                              "pipeline.tensor",            "2"                                                  },
        {"megatron",   "PREC=bf16 case.sh 8b",                                                              "train.batch.global",         "32"                                                 },
        {"megatron",   "GPUS=16 case.sh 8b 4",                                                              "train.batch.global",         "32"                                                 },
        {"megatron",   "GPUS=16 case.sh 8b 16",                                                             "train.batch.global",         "128"                                                },
        {"megatron",   "case.sh 8b",                                                                        NULL,                         "a case is not evaluated: $PREC"                     },
        {"torchtitan", "old.toml",                                                                          NULL,                         "it stands in [parallelism] since 2025"              },
        {"hf",         "deepspeed --include=localhost:2,3 t.py --deepspeed --deepspeed_config z3.json " HF,
         "pipeline.shard",                                                                                                                "weights"                                            },
        {"hf",         "deepspeed --include=localhost:2,3 t.py --deepspeed z3.json " HF,                    NULL,
         "deepspeed starts 2 processes"                                                                                                                                                        },
        {"hf",         "deepspeed -i a:0,1@b:0,1 t.py --deepspeed z3.json " HF,                             NULL,
         "deepspeed starts 4 processes"                                                                                                                                                        },
        {"hf",         "run_clm.py --config_name gpt2 --block_size 512",                                    "model.preset",               "gpt2"                                               },
        {"deepspeed",  "ds.json",                                                                           "pipeline.shard",             "gradients"                                          },
        {"automodel",  "am.yaml",                                                                           "train.batch.global",         "32"                                                 },
        {"automodel",  "am.yaml",                                                                           "pipeline.recompute",         "never"                                              },
        {"automodel",  "am.yaml",                                                                           NULL,                         "activation_checkpointing selective: none is counted"},
        {"megatron",   "m.sh",                                                                              "pipeline.tensor",            "2"                                                  },
        {"megatron",   "t.sh",                                                                              "pipeline.sequence_parallel", "false"                                              },
        {"megatron",   "t.sh",                                                                              "pipeline.num_stages",        "1"                                                  },
        {"megatron",   "t.sh",                                                                              "train.dtype",                "bf16"                                               },
        {"megatron",   "t.sh",                                                                              NULL,                         "a test is not evaluated, and taken as false: -n"    },
        {"megatron",   "USE_SP=1 PP=2 t.sh",                                                                "pipeline.sequence_parallel", "true"                                               },
        {"megatron",   "USE_SP=1 PP=2 t.sh",                                                                "pipeline.num_stages",        "2"                                                  },
        {"megatron",   "USE_SP= PP=2 t.sh",                                                                 "pipeline.sequence_parallel", "false"                                              },
        {"torchtitan", "NGPU=4 MODULE=llama3 CONFIG=llama3_8b ./run_train.sh --training.steps 9",
         "model.preset",                                                                                                                  "llama3.1-8b"                                        },
        {"torchtitan", "NGPU=4 MODULE=llama3 CONFIG=llama3_8b ./run_train.sh --training.steps 9",
         NULL,                                                                                                                            "NGPU 4: the cluster's 8 devices are counted"        },
    };
    char folder[] = "/tmp/elapse-files-XXXXXX", home[4096];
    assert_true(getcwd(home, sizeof home) && mkdtemp(folder) && chdir(folder) == 0);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        FILE *out = fopen(files[i][0], "w");
        assert_true(out && fputs(files[i][1], out) >= 0 && fclose(out) == 0);
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct command_job made = {0};
        struct err err = {0};
        char *text = NULL;
        const enum status rc =
            command_job_read(cases[i].framework, cases[i].text, 8, 0, &made, &err);
        const struct json *value =
            cases[i].key ? json_path(made.job, cases[i].key) : made.not_counted;
        if (rc == OK)
            assert_int_equal(json_text(value, false, &text, NULL), OK);
        const char *got = rc != OK ? err.msg : json_string(value) ? json_string(value) : text;
        if ((cases[i].key && rc != OK) || !strstr(got, cases[i].want))
            fail_msg("%s: %s, not %s", cases[i].text, got, cases[i].want);
        free(text);
        command_job_clear(&made);
    }
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        unlink(files[i][0]);
    assert_true(chdir(home) == 0 && rmdir(folder) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flags__become_a_job),
        cmocka_unit_test(layouts__become_stages),
        cmocka_unit_test(bad_flags__are_named),
        cmocka_unit_test(values__are_those_of_the_programs),
        cmocka_unit_test(refusals__name_rule_and_numbers),
        cmocka_unit_test(what_is_not_counted__is_said),
        cmocka_unit_test(files_and_launchers__are_followed),
        cmocka_unit_test(op_lists__are_those_of_their_schedule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
