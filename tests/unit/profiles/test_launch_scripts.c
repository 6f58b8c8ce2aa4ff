/* Launch scripts as people write them, each in the manner of one in a public repository (named), with
 * other numbers. Right is what the program would print for the command that bash makes of them. */
#include "profiles/frameworks/command_job.h"
#include "tests/unit/test.h"

#define DIMS                                                                                       \
    "--num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 "               \
    "--max-position-embeddings 2048"

static const struct {
    const char *framework, *script;
    int devices;
    const char *want; /* "key=value ..." of the job */
} scripts[] = {
    {"megatron",   /* NVIDIA/Megatron-LM examples/gpt3/train_gpt3_175b_distributed.sh: arrays, positional paths */
     "#!/bin/bash\nexport "
     "CUDA_DEVICE_MAX_CONNECTIONS=1\nGPUS_PER_NODE=8\nNUM_NODES=2\nCHECKPOINT_PATH=$1 #<Specify "
     "path>\nDATA_PATH=$2\n"
     "DISTRIBUTED_ARGS=(\n    --nproc_per_node $GPUS_PER_NODE\n    --nnodes "
     "$NUM_NODES\n)\nGPT_MODEL_ARGS=(\n    " DIMS
     "\n    --attention-backend auto # flash, fused\n)\n"
     "TRAINING_ARGS=(\n    --micro-batch-size 2\n    --global-batch-size 256\n    # "
     "--rampup-batch-size 16 16 5859375\n    --fp16\n)\n"
     "MODEL_PARALLEL_ARGS=(\n\t--tensor-model-parallel-size 4\n\t--pipeline-model-parallel-size "
     "2\n)\nDATA_ARGS=(\n    --data-path $DATA_PATH\n    --vocab-file v.json\n)\n"
     "torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \\\n    ${GPT_MODEL_ARGS[@]} \\\n    "
     "${TRAINING_ARGS[@]} \\\n    ${MODEL_PARALLEL_ARGS[@]} \\\n    ${DATA_ARGS[@]} "
     "--tokenizer-type GPT2BPETokenizer\n",                                                     16,
     "pipeline.tensor=4 pipeline.num_stages=2 pipeline.num_replicas=2 train.batch.global=256 "
     "train.dtype=fp16 model.family=gpt model.vocab=50688"                                                                                                                                                    },
    {"megatron",   /* examples/llama: defaults of variables, an if for the format */
     "TP=${TP:-2}\nCP=${CP_SIZE:-1}\nDTYPE=${DTYPE:-\"fp8\"}\nMODEL_ARGS=(" DIMS
     " --group-query-attention --num-query-groups 4 --swiglu --normalization RMSNorm\n"
     "  --untie-embeddings-and-output-weights --disable-bias-linear --vocab-size 32000 "
     "--position-embedding-type rope)\nDTYPE_ARGS=()\n"
     "if [[ \"$DTYPE\" == \"fp8\" ]]; then\n  DTYPE_ARGS+=(\"--fp8-format hybrid\" "
     "\"--fp8-amax-history-len 1024\")\nfi\n"
     "torchrun --nproc_per_node 8 pretrain_gpt.py ${MODEL_ARGS[@]} --bf16 ${DTYPE_ARGS[@]} "
     "--micro-batch-size 1 --global-batch-size 128 \\\n"
     " --tensor-model-parallel-size $TP --context-parallel-size $CP --sequence-parallel "
     "--use-distributed-optimizer\n",                                                           8,
     "train.dtype=fp8 pipeline.tensor=2 pipeline.sequence_parallel=true pipeline.shard=optimizer "
     "model.kv_heads=4"                                                                                                                                                                                       },
    {"megatron",   /* examples/mixtral/train_mixtral_8x7b_distributed.sh: an if on the environment */
     "MOE_ARGS=(\n  --num-experts 8\n  --moe-router-topk 2\n  # --moe-grouped-gemm\n  "
     "--moe-token-dispatcher-type alltoall\n)\nLOG=(--log-interval 1)\n"
     "if [ -n \"${WANDB_API_KEY:-}\" ]; then\n  LOG+=(\n  --wandb-project ${W:-\"x\"}\n  "
     ")\nfi\ntorchrun pretrain_gpt.py " DIMS " --swiglu --vocab-size 32000 --bf16 \\\n"
     " --micro-batch-size 1 --global-batch-size 64 --expert-model-parallel-size 8 ${MOE_ARGS[@]} "
     "${LOG[@]}\n",                                                                             8,  "model.experts=8 model.experts_active=2 pipeline.expert=8 train.batch.global=64"          },
    {"megatron",   /* msrasys/nnscaler benchmark_gpt.sh: quoted blocks, an environment before the command */
     "GPT_ARGS=\"" DIMS " \\\n   --micro-batch-size 8 \\\n   --global-batch-size 8 \\\n   "
     "--fp16\"\nDISTRIBUTED_ARGS=\"--nproc_per_node 8 \\\n --nnodes 1\"\ncd Megatron-LM\n"
     "OMP_NUM_THREADS=4 python -m torch.distributed.launch $DISTRIBUTED_ARGS \\\n   "
     "pretrain_gpt_synthetic.py $GPT_ARGS \\\n   --tensor-model-parallel-size 8 \\\n   "
     "--vocab-size 50257\ncd ..\n",                                                             8,  "pipeline.tensor=8 pipeline.num_replicas=1 train.batch.micro=8"                           },
    {"megatron",   /* a command in a variable, printed and then run by eval */
     "MBS=4; GBS=$((MBS * 8 * 4))\nARGS=(" DIMS
     "\n --bf16)\ncmd=\"torchrun --nproc_per_node 8 $ROOT/pretrain_gpt.py \\\n ${ARGS[@]} \\\n "
     "--vocab-size 50304 --micro-batch-size $MBS --global-batch-size $GBS\"\n"
     "printf \"Executing...\\n${cmd}\\n\"\neval $cmd 2>&1 | tee $OUTDIR/logs.txt\n",            8,  "train.batch.global=128 train.batch.micro=4"                                              },
    {"megatron",   /* srun, a container and bash -c */
     "GPT=(" DIMS " --vocab-size 50304 --bf16 --micro-batch-size 2)\nCMD=\"pretrain_gpt.py \\\n "
     "${GPT[@]} --pipeline-model-parallel-size 4 --global-batch-size 32\"\n"
     "LAUNCHER=\"singularity exec --nv $IMAGE python -u -m torch.distributed.run --nproc-per-node "
     "8 --nnodes 2 --tee 3\"\n"
     "srun --wait=60 --jobid $SLURM_JOB_ID bash -c \"$LAUNCHER --node_rank \\$SLURM_PROCID "
     "$CMD\"\n",                                                                                16, "pipeline.num_stages=4 pipeline.num_replicas=4 train.batch.global=32"                     },
    {"megatron",   /* mpirun, blended data in single quotes */
     "DATA_PATH='\n   5 a_text_document\n   1 b_text_document\n'\nNUM_LAYERS=24\nmpirun -np 4 "
     "-npernode 4 python pretrain_gpt.py \\\n  --num-layers $NUM_LAYERS --hidden-size 1024 "
     "--num-attention-heads 16 \\\n"
     "  --micro-batch-size 1 --global-batch-size 80 --seq-length 2048 --max-position-embeddings "
     "2048 --train-samples 300000 \\\n  --data-path $DATA_PATH --vocab-size 50000 --split 949,50,1 "
     "--hidden-dropout 0\n",                                                                    4,  "train.batch.global=80 pipeline.num_replicas=4 data.train_samples=300000 train.dtype=fp32"},
    {"megatron",   /* sums of the batch, an if with else, a bare continuation */
     "NNODES=${1:-2}\nNPROC=${2:-8}\nPREC=\"${4:-bf16}\"\nMICRO=8\nDP=$(( NNODES * NPROC )) # "
     "tp=pp=1\nGLOBAL=$(( MICRO * DP * 4 ))\nif [ \"$PREC\" = \"fp8\" ]; then\n  P=\"--bf16 "
     "--fp8-format hybrid\"\nelse\n  P=\"--bf16\"\nfi\n"
     "torchrun --nnodes=$NNODES --nproc_per_node=$NPROC \\\n  pretrain_gpt.py \\\n  --mock-data "
     "--tokenizer-type NullTokenizer --vocab-size 50304 \\\n  \\\n  " DIMS
     " \\\n  --micro-batch-size $MICRO --global-batch-size $GLOBAL \\\n"
     "  --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 $P\n", 16, "train.batch.global=512 train.dtype=bf16 pipeline.recompute=layer"                        },
    {"megatron",   /* uneven pipelines behind an if of numbers */
     "PP_SIZE=4\nUNEVEN=()\nif [[ \"${PP_SIZE}\" -gt 1 ]]; then\n  UNEVEN=(\n   "
     "--decoder-first-pipeline-num-layers 5\n   --decoder-last-pipeline-num-layers 7\n  )\nfi\n"
     "python pretrain_gpt.py " DIMS
     " --vocab-size 50304 --micro-batch-size 1 --global-batch-size 32 "
     "--pipeline-model-parallel-size ${PP_SIZE} \"${UNEVEN[@]}\"\n",                            8,  "pipeline.num_stages=4 pipeline.chunks=1 pipeline.num_replicas=2"                         },
    {"megatron",   /* a launcher of one's own before the program, and two dashes */
     "run() {\n  echo start\n}\nrun\npython3 \"launcher.py\" \\\n --nproc-per-node \"8\" \\\n "
     "--nnodes \"1\" \\\n -- \\\n python3 ./Megatron-LM/pretrain_gpt.py \\\n " DIMS
     " --vocab-size 50304 --micro-batch-size 1 --global-batch-size 16\n",                       8,  "train.batch.global=16 train.batch.micro=1"                                               },
    {"megatron",   /* yanring/Megatron-MoE-ModelZoo: flags in a YAML that the script writes */
     "TP=2\ncat <<EOF > config.yaml\nENV_VARS:\n  NCCL_DEBUG: WARN\nMODEL_ARGS:\n  # layout\n  "
     "--tensor-model-parallel-size: ${TP}\n  --num-layers: 24\n  --hidden-size: 2048\n  "
     "--num-attention-heads: 16\n"
     "  --seq-length: 2048\n  --vocab-size: 50304\n  --micro-batch-size: 1\n  --global-batch-size: "
     "64\n  --bf16: true\n  --sequence-parallel: true\nEOF\npython run.py config.yaml\n",       8,  "pipeline.tensor=2 train.batch.global=64 train.dtype=bf16 pipeline.sequence_parallel=true"},
    {"megatron",   /* NVIDIA-NeMo/Megatron-Bridge: overrides by the names of its configuration */
     "cat > override.yaml <<'EOF'\nmodel:\n  num_layers: 24\n  hidden_size: 2048\n  "
     "num_attention_heads: 16\n  seq_length: 2048\n  vocab_size: 50304\n  "
     "tensor_model_parallel_size: 4\n  sequence_parallel: true\n"
     "train:\n  micro_batch_size: 1\n  global_batch_size: 64\nEOF\ntorchrun --nproc_per_node 8 "
     "pretrain.py\n",                                                                           8,  "pipeline.tensor=4 train.batch.global=64"                                                 },
    {"megatron",   /* latent attention and a pattern of experts */
     "ARGS=\"" DIMS " --multi-latent-attention --kv-lora-rank 512 --q-lora-rank 1536 --num-experts "
     "64 --moe-router-topk 6 --moe-ffn-hidden-size 1408\"\n"
     "python pretrain_gpt.py $ARGS --moe-layer-freq '([0]*1+[1]*23)' --swiglu --vocab-size 102400 "
     "--micro-batch-size 1 --global-batch-size 64 --expert-model-parallel-size 8 --bf16\n",     8,  "model.kv_rank=512 model.q_rank=1536 model.dense_layers=1 pipeline.expert=8"              },
    {"torchtitan", /* pytorch/torchtitan run_train.sh of 0.3 */
     "NGPU=${NGPU:-\"8\"}\nMODULE=${MODULE:-\"llama3\"}\nCONFIG=${CONFIG:-\"llama3_8b\"}\ntorchrun "
     "--nproc_per_node=${NGPU} --rdzv_backend c10d --local-ranks-filter 0 --role rank --tee 3 \\\n "
     "-m torchtitan.train --module ${MODULE} --config ${CONFIG} \"$@\" "
     "--parallelism.tensor_parallel_degree 2 --training.local_batch_size 4\n",                8,  "pipeline.tensor=2 train.batch.global=16 model.preset=llama3.1-8b"                        },
    {"torchtitan", /* a job of several nodes */
     "#SBATCH --nodes=4\nsrun torchrun --nnodes 4 --nproc_per_node 8 -m torchtitan.train --module "
     "llama3 --config llama3_70b \\\n --parallelism.pipeline_parallel_degree 4 "
     "--parallelism.pipeline_parallel_schedule=Interleaved1F1B --training.local_batch_size 16 "
     "activation-checkpoint:full\n",                                                          32,
     "pipeline.num_stages=4 pipeline.tensor=8 pipeline.schedule=interleaved "
     "pipeline.recompute=layer"                                                                                                                                                                               },
    {"hf",         /* huggingface/transformers examples: run_clm.py by torchrun */
     "MODEL=meta-llama/Llama-2-7b-hf\ntorchrun --nproc_per_node 8 run_clm.py \\\n "
     "--model_name_or_path $MODEL \\\n --per_device_train_batch_size 2 \\\n "
     "--gradient_accumulation_steps 8 \\\n --block_size 2048 --bf16 True --fsdp \"full_shard "
     "auto_wrap\" \\\n --fsdp_transformer_layer_cls_to_wrap LlamaDecoderLayer "
     "--gradient_checkpointing --output_dir out\n",                                                   8,
     "train.batch.global=128 pipeline.shard=weights pipeline.recompute=layer model.seq=2048 "
     "train.dtype=bf16 train.framework=fsdp"                                                                                                                                                                  },
    {"hf",         /* tatsu-lab/stanford_alpaca: DDP without a shard */
     "torchrun --nproc_per_node=4 --master_port=3000 train.py \\\n  --model_name_or_path "
     "facebook/opt-6.7b \\\n  --bf16 True \\\n  --per_device_train_batch_size 4 \\\n  "
     "--gradient_accumulation_steps 8 \\\n  --lr_scheduler_type \"cosine\" --tf32 True\n",            4,  "train.batch.global=128 pipeline.shard=none train.framework=hf-eager"                     },
    {"hf",         /* accelerate with its number of processes */
     "accelerate launch --num_processes 8 --mixed_precision bf16 sft.py --model_name_or_path "
     "Qwen/Qwen3-8B --max_seq_length 4096 --per_device_train_batch_size 1 "
     "--gradient_accumulation_steps 4 --optim adamw_torch\n",                                         8,  "train.batch.global=32 model.seq=4096"                                                    },
    {"deepspeed",  /* the JSON of DeepSpeed's examples */
     "{\"train_batch_size\": 256, \"train_micro_batch_size_per_gpu\": 4, \"zero_optimization\": "
     "{\"stage\": 2, \"overlap_comm\": true, \"reduce_bucket_size\": 2e8},\n"
     " \"bf16\": {\"enabled\": true}, \"gradient_clipping\": 1.0, \"optimizer\": {\"type\": "
     "\"AdamW\", \"params\": {\"lr\": 1e-4}}}",                                                16, "train.batch.micro=4 pipeline.shard=gradients pipeline.bucket_bytes=800000000"            },
    {"megatron",   /* loops and commands that only bring paths */
     "DATA=$(find /data -name '*.bin' | head -1)\nfor f in a b; do\n  ln -s $f\ndone\npython "
     "pretrain_gpt.py " DIMS
     " --data-path $DATA --tokenizer-type Llama2Tokenizer --micro-batch-size 1 --global-batch-size "
     "8 --bf16 > log 2>&1 &\nwait\n",                                                           8,  "model.vocab=32000 train.batch.global=8"                                                  },
};

static void scripts__become_the_jobs_of_their_programs(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        struct command_job made = {0};
        struct err err = {0};
        char want[400], *rest = NULL;
        snprintf(want, sizeof want, "%s", scripts[i].want);
        if (command_job_read(scripts[i].framework, scripts[i].script, scripts[i].devices, 0, &made,
                             &err) != OK)
            fail_msg("script %zu: %s", i, err.msg);
        for (char *pair = strtok_r(want, " ", &rest); pair; pair = strtok_r(NULL, " ", &rest)) {
            char *const equals = strchr(pair, '='), *text = NULL;
            *equals = '\0';
            const struct json *value = json_path(made.job, pair);
            assert_int_equal(json_text(value, false, &text, &err), OK);
            const char *const got = json_string(value) ? json_string(value) : text;
            if (strcmp(got, equals + 1) != 0)
                fail_msg("script %zu: %s is %s, not %s", i, pair, got, equals + 1);
            free(text);
        }
        command_job_clear(&made);
    }
}

/* What cannot be read says so in one line. */
static void other_scripts__are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *script, *says;
    } cases[] = {
        {"#!/bin/bash\necho hello\n",                                                             "--hidden-size is missing"  },
        {"for L in 24 32; do\npython pretrain_gpt.py --num-layers $L --hidden-size 1024\ndone\n",
         "leaves '$L' open"                                                                                                   },
        {"python pretrain_gpt.py --num-layers $1 --hidden-size 1024\n",                           "leaves '$1' open"          },
        {"python pretrain_gpt.py --num-layers $(nproc)\n",                                        "leaves '$(nproc)' open"    },
        {"python pretrain_gpt.py --num-layers '24\n",                                             "a quote is not closed"     },
        {"python pretrain_t5.py --num-layers 24\n",                                               "pretrain_t5.py is not read"},
        {"python pretrain_gpt.py " DIMS
         " --tokenizer-type HuggingFaceTokenizer --micro-batch-size 1\n",                "--vocab-size is missing"   },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct command_job made = {0};
        struct err err = {0};
        if (command_job_read("megatron", cases[i].script, 8, 0, &made, &err) == OK)
            fail_msg("%s: accepted", cases[i].script);
        if (!strstr(err.msg, cases[i].says))
            fail_msg("%s: %s", cases[i].script, err.msg);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scripts__become_the_jobs_of_their_programs),
        cmocka_unit_test(other_scripts__are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
