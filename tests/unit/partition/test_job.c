/* Jobs: the defaults pass, and every rule names its key. */
#include "partition/plan/job.h"
#include "tests/unit/test.h"

static void setup(struct job *job)
{
    job_defaults(job);
    assert_int_equal(model_parse("vit-tiny", &job->model, NULL), OK);
    assert_int_equal(cluster_parse("1x4", &job->cluster, NULL), OK);
}

/* Refused with a message that has `word`; the job is fresh again afterwards. */
static void refused(struct job *job, enum status want, const char *word)
{
    struct err err = {0};
    enum status rc = job_check(job, &err);
    if (rc != want || !strstr(err.msg, word))
        fail_msg("status %d, '%s' lacks '%s'", (int)rc, err.msg, word);
    job_clear(job);
    setup(job);
    assert_int_equal(job_check(job, NULL), OK);
}

static void job_check__accepts_the_defaults(void **state)
{
    (void)state;
    struct job job;
    setup(&job);
    assert_int_equal(job_check(&job, NULL), OK);
    job_clear(&job);
    job_clear(&job);
}

static void job_check__names_the_key_when_a_value_is_out_of_range(void **state)
{
    (void)state;
    struct job job;
    setup(&job);
    model_clear(&job.model), refused(&job, ERR_INPUT, "model is missing");
    job.cluster.uplink_bytes_per_s[0] = 0, refused(&job, ERR_INPUT, "uplink");
    job.train.epochs = -1, refused(&job, ERR_INPUT, "train.epochs");
    job.train.max_steps = -1, refused(&job, ERR_INPUT, "train.max_steps");
    job.train.batch = 0, refused(&job, ERR_INPUT, "train.batch");
    job.train.batch = 1LL << 40, refused(&job, ERR_INPUT, "train.batch");
    job.train.optimizer.lr = NAN, refused(&job, ERR_INPUT, "train.optimizer.lr");
    job.train.optimizer.lr = -1, refused(&job, ERR_INPUT, "train.optimizer.lr");
    job.train.optimizer.momentum = 1, refused(&job, ERR_INPUT, "momentum");
    job.train.optimizer.eps = 0, refused(&job, ERR_INPUT, "eps");
    job.train.optimizer.weight_decay = INFINITY, refused(&job, ERR_INPUT, "weight_decay");
    job.train.dropout = 1.5, refused(&job, ERR_INPUT, "dropout");
    job.train.label_smoothing = -0.1, refused(&job, ERR_INPUT, "label_smoothing");
    job.train.clip_norm = -1, refused(&job, ERR_INPUT, "clip_norm");
    job.train.warmup_steps = -1, refused(&job, ERR_INPUT, "warmup_steps");
    job.train.checkpoint_every_steps = -1, refused(&job, ERR_INPUT, "checkpoint");
    job.pipeline.num_stages = -1, refused(&job, ERR_INPUT, "pipeline.num_stages");
    job.pipeline.num_stages = 28, refused(&job, ERR_INFEASIBLE, "must be 1..27");
    job.pipeline.num_replicas = -2, refused(&job, ERR_INPUT, "num_replicas");
    job.pipeline.num_microbatches = -2, refused(&job, ERR_INPUT, "num_microbatches");
    job.pipeline.num_microbatches = 33, refused(&job, ERR_INPUT, "at most the batch of 32");
    job.pipeline.chunks = 0, refused(&job, ERR_INPUT, "chunks");
    job.pipeline.bucket_bytes = -1, refused(&job, ERR_INPUT, "bucket_bytes");
    job.pipeline.schedule_auto = false, job.pipeline.chunks = 2;
    refused(&job, ERR_INPUT, "must be 1 for schedule 1f1b");
    job.pipeline.schedule_auto = false, job.pipeline.chunks = 3;
    job.pipeline.schedule = SCHEDULE_ZB_V;
    refused(&job, ERR_INPUT, "must be 2 for schedule zb-v, got 3");
    job.train.batch_mode = BATCH_GLOBAL, job.pipeline.num_replicas = 3;
    refused(&job, ERR_INPUT, "multiple of pipeline.num_replicas 3");
    job.train.batch_mode = BATCH_GLOBAL, job.pipeline.num_replicas = 2;
    job.pipeline.num_microbatches = 33, refused(&job, ERR_INPUT, "at most the batch of 32");
    job.freeze.policy = FREEZE_CLOSED_FORM, job.freeze.alpha = 1;
    refused(&job, ERR_INPUT, "freeze.alpha");
    job.freeze.policy = FREEZE_GRADIENT_NORM, job.freeze.alpha = NAN;
    refused(&job, ERR_INPUT, "freeze.alpha");
    for (int policy = 0; policy < FREEZE_POLICY_COUNT; policy++) {
        job.freeze.policy = policy, job.freeze.alpha = 0;
        refused(&job, ERR_INPUT, "freeze.alpha");
    }
    job.freeze.min_active = 13, refused(&job, ERR_INPUT, "min_active");
    job.freeze.policy = FREEZE_TABLE, refused(&job, ERR_INPUT, "freeze.table");
    job.freeze.policy = FREEZE_TABLE, job.freeze.num_table = 2;
    job.freeze.table = malloc(2 * sizeof(int));
    job.freeze.table[0] = 3, job.freeze.table[1] = 13;
    refused(&job, ERR_INPUT, "freeze.table[1] must be 0..12");
    job.norm_epochs = 1, job.norms = calloc(12, sizeof(double)), job.norms[5] = NAN;
    refused(&job, ERR_INPUT, "freeze.norms[0][5]");
    job.cache.limit_bytes = -1, refused(&job, ERR_INPUT, "cache.limit_bytes");
    job.cache.policy = CACHE_ON, job.data.augment = true;
    refused(&job, ERR_INPUT, "one view");
    job.cache.policy = CACHE_ON, job.model.task = TASK_MLM; /* masks change each epoch */
    refused(&job, ERR_INPUT, "each masked sample to one view");
    job.data.train_samples = -1, refused(&job, ERR_INPUT, "train_samples");
    job_clear(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(job_check__accepts_the_defaults),
        cmocka_unit_test(job_check__names_the_key_when_a_value_is_out_of_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
