/* Spans of question answering: the best one against brute force, probabilities of a stage. */
#include "exec/cpu/backend_cpu.h"
#include "exec/trainer/qa_eval.h"
#include "tests/unit/test.h"

enum { SEQ = 60 };

static void qa_best_span__is_the_most_probable_of_all(void **state)
{
    float p[2 * SEQ];
    (void)state;
    srand(1);
    for (int round = 0; round < 300; round++) {
        int first = rand() % SEQ, end = first + rand() % (SEQ - first + 1);
        double best = 0;
        for (int i = 0; i < 2 * SEQ; i++)
            p[i] = (float)rand() / (float)RAND_MAX;
        for (int s = 0; s < SEQ; s++)
            for (int e = 0; e < SEQ; e++) {
                bool legal = s >= first && e < end && s <= e && e - s < 30;
                double score = (double)p[2 * s] * (double)p[2 * e + 1];
                best = legal && score > best ? score : best;
            }
        struct span span = qa_best_span(p, first, end);
        if (span.score != best)
            fail_msg("round %d: %g, wanted %g", round, span.score, best);
        if (best > 0) {
            assert_true(span.start >= first && span.end < end && span.start <= span.end);
            assert_true(span.score == (double)p[2 * span.start] * (double)p[2 * span.end + 1]);
        }
    }
}

static void stage_span_probabilities__do_not_depend_on_the_labels(void **state)
{
    enum { N = 3, S = 8 };
    struct job job = {0};
    struct err err = {0};
    struct stage *stage = NULL;
    int32_t tokens[N * S], types[N * S] = {0}, lengths[N] = {8, 5, 8}, labels[2 * N];
    int64_t ids[N] = {0, 1, 2};
    float first[N * S * 2], p[N * S * 2];
    void *out = NULL;
    struct backend *be = backend_cpu_new(DTYPE_FP32, 1, &err);
    (void)state;
    for (int round = 0; round < 4; round++) {
        job_defaults(&job);
        job.train.label_smoothing = round < 2 ? 0 : .1;
        assert_int_equal(
            model_parse("bert-base:task=qa,layers=1,hidden=8,heads=2,mlp=8,vocab=20,seq=8",
                        &job.model, &err),
            OK);
        const struct stage_spec spec = {.model = &job.model,
                                        .job = &job,
                                        .backend = be,
                                        .end_item = job.model.num_items,
                                        .max_samples = N,
                                        .max_live = 1};
        assert_int_equal(stage_new(&spec, &stage, &err), OK);
        assert_int_equal(stage_init_weights(stage, 1, &err), OK);
        for (int i = 0; i < N * S; i++)
            tokens[i] = 7 * i % 20;
        for (int i = 0; i < 2 * N; i++)
            labels[i] = (i + 3 * round) % S;
        const struct sample_block block = {.num_samples = N,
                                           .ids = ids,
                                           .tokens = tokens,
                                           .token_types = types,
                                           .lengths = lengths,
                                           .labels = labels};
        struct loss_sums loss;
        assert_int_equal(stage_forward(stage,
                                       &(struct stage_batch){.block = &block, .step = STEP_EVAL},
                                       NULL, &out, false, &err),
                         OK);
        assert_int_equal(stage_loss(stage, 0, &loss, &err), OK);
        assert_int_equal(stage_span_probabilities(stage, &block, p, &err), OK);
        double nll = 0;
        for (int i = 0; i < 2 * N; i++) {
            double sum = 0;
            for (int t = 0; t < S; t++) {
                float one = p[(i / 2 * S + t) * 2 + i % 2];
                assert_true(one > 0);
                sum += (double)one;
            }
            assert_true(fabs(sum - 1) < 1e-5);
            nll -= log((double)p[(i / 2 * S + labels[i]) * 2 + i % 2]);
        }
        if (round < 2) /* without smoothing the loss is made of just these */
            assert_true(fabs(nll - loss.loss) < 1e-4);
        if (round == 0)
            memcpy(first, p, sizeof p);
        for (int i = 0; i < N * S * 2; i++)
            assert_true(fabsf(first[i] - p[i]) < 1e-6f);
        stage_free(stage);
        job_clear(&job);
    }
    backend_free(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(qa_best_span__is_the_most_probable_of_all),
        cmocka_unit_test(stage_span_probabilities__do_not_depend_on_the_labels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
