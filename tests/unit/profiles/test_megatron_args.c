/* Megatron-LM's flags as a job: layout, defaults, what is named and what is refused. */
#include "profiles/job/command_job.h"
#include "profiles/job/job_json.h"
#include "tests/unit/test.h"

/* Llama 3 8B on 64 devices, TP 2 x PP 4 x DP 8. */
static const char llama[] =
    "torchrun --nproc_per_node 8 pretrain_gpt.py \\\n --num-layers 32 --hidden-size 4096 "
    "--num-attention-heads 32 "
    "--group-query-attention --num-query-groups 8 --ffn-hidden-size=14336 --seq-length 8192 "
    "--swiglu "
    "--normalization RMSNorm --untie-embeddings-and-output-weights --vocab-size 128256 "
    "--tensor-model-parallel-size 2 "
    "--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 2 "
    "--sequence-parallel "
    "--micro-batch-size 1 --global-batch-size 128 --bf16 --use-distributed-optimizer --lr 3e-4 "
    "--fp8-format hybrid --tp-comm-overlap-cfg x --recompute-granularity full --recompute-method "
    "block "
    "--recompute-num-layers 1";

static void flags__become_a_job(void **state)
{
    (void)state;
    struct command_job made = {0};
    struct err err = {0};
    struct job job = {0};
    if (megatron_job(llama, 64, &made, &err) != OK)
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
    assert_string_equal(json_string(json_at(made.not_counted, 0)), "--tp-comm-overlap-cfg x");
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
    snprintf(text, sizeof text, "%s --pipeline-model-parallel-layout Et*3|(t*2|)*14,tL", llama);
    if (megatron_job(text, 64, &made, &err) != OK)
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
        {"--context-parallel-size 3",                    "CP 3"                   },
        {"--pipeline-model-parallel-size 3",             "TP 2 x PP 3"            },
        {"--global-batch-size 100",                      "--global-batch-size 100"},
        {"--num-layers x",                               "got 'x'"                },
        {"--micro-batch-size",                           "got ''"                 },
        {"--pipeline-model-parallel-layout Et*31|t|L|",  "layout must have"       },
        {"--pipeline-model-parallel-layout Et*32|L|m|t", "layout must have"       },
        {"--pipeline-model-parallel-layout (E*32L",      "layout must have"       },
        {"--pipeline-model-parallel-layout Et*16|t*16L", "is no multiple of PP 4" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct command_job made = {0};
        struct err err = {0};
        char text[2000];
        snprintf(text, sizeof text, "%s %s", llama, cases[i].more);
        assert_int_equal(megatron_job(text, 64, &made, &err), ERR_INPUT);
        if (!strstr(err.msg, cases[i].says))
            fail_msg("%s: %s", cases[i].more, err.msg);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flags__become_a_job),
        cmocka_unit_test(layouts__become_stages),
        cmocka_unit_test(bad_flags__are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
