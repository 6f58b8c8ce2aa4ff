/* exec/data/picks.c - draws samples from sources.
 *
 * The groups of a source are put into a random order (the sampler's permutation). Training samples
 * are taken from its front, test samples of a source without a test split from its back, and then
 * those for the probe. Read picks_make() first, then draw(). */
#include "exec/data/picks.h"

#include <stdlib.h>

#include "exec/data/sampler.h"
#include "partition/base/units.h"

enum { TEST_PART = 10 };

/* The random order of a source's groups, and how many are taken from its two ends. */
struct deck {
    enum split source;
    struct sampler order;
    int64_t num_groups, front, back;
    int64_t *first; /* owned; [num_groups + 1]: the first sample of each group; NULL: its number */
};

static enum status deck_order(struct deck *deck, uint64_t seed, struct err *err)
{
    const struct sampler_spec spec = {.num_samples = deck->num_groups,
                                      .seed = seed,
                                      .shuffle = true,
                                      .num_replicas = 1,
                                      .batch = 1,
                                      .num_microbatches = 1};
    return sampler_init(&deck->order, &spec, err);
}

static enum status deck_init(const struct dataset *dataset, enum split source, uint64_t seed,
                             struct deck *deck, struct err *err)
{
    const int64_t num = dataset->num_samples[source];
    *deck = (struct deck){.source = source, .num_groups = num};
    if (dataset->group) {
        deck->num_groups = dataset->group(dataset, source, num - 1) + 1;
        deck->first = malloc(((size_t)deck->num_groups + 1) * sizeof *deck->first);
        if (!deck->first)
            return err_nomem(err);
        for (int64_t g = 0; g <= deck->num_groups; g++)
            deck->first[g] = num;
        for (int64_t id = num - 1; id >= 0; id--)
            deck->first[dataset->group(dataset, source, id)] = id;
        for (int64_t g = deck->num_groups - 1; g >= 0; g--) /* a group may be empty */
            if (deck->first[g] > deck->first[g + 1])
                deck->first[g] = deck->first[g + 1];
    }
    return deck_order(deck, seed, err);
}

/* Takes samples from one end of the deck, into the picks of a split: `want`, or fewer where no group
 * is left. The last group may be taken in part. */
static enum status draw(struct deck *deck, bool from_back, int64_t want, struct dataset *dataset,
                        enum split split, struct err *err)
{
    struct picks *picks = &dataset->picks[split];
    int64_t count = 0;
    picks->ids = malloc(((size_t)want + 1) * sizeof *picks->ids);
    if (!picks->ids)
        return err_nomem(err);
    while (count < want && deck->front + deck->back < deck->num_groups) {
        const int64_t place = from_back ? deck->num_groups - 1 - deck->back++ : deck->front++;
        /* Epochs of training are not negative, so no epoch is in this order. */
        const int64_t group = sampler_id(&deck->order, -1 - (int64_t)deck->source, place);
        const int64_t begin = deck->first ? deck->first[group] : group;
        const int64_t end = deck->first ? deck->first[group + 1] : group + 1;
        for (int64_t id = begin; id < end && count < want; id++)
            picks->ids[count++] = id;
    }
    qsort(picks->ids, (size_t)count, sizeof *picks->ids, compare_int64);
    picks->chosen = true;
    picks->source = deck->source;
    dataset->num_samples[split] = count;
    return OK;
}

static enum status too_few(const struct job *job, enum split split, int64_t have, int64_t want,
                           struct err *err)
{
    static const char *const keys[SPLIT_COUNT] = {"train_samples", "test_samples"};
    return err_set(err, ERR_INPUT, "'%s' holds %lld %s samples, data.%s asks for %lld",
                   job->data.path, (long long)have, dataset_split_name(split), keys[split],
                   (long long)want);
}

static enum status note_drawn(struct dataset *dataset, enum split split, int64_t of,
                              struct err *err)
{
    return dataset_note(dataset, err, "%lld of %lld %s samples, drawn by train.seed",
                        (long long)dataset->num_samples[split], (long long)of,
                        dataset_split_name(split));
}

/* Samples are computed by number, so nothing has to be drawn: the probe's come after the others. */
static void pick_synthetic(const struct job *job, struct dataset *dataset)
{
    const int64_t train = dataset->num_samples[SPLIT_TRAIN];
    dataset->num_samples[SPLIT_VALID] = job_held_out(job, train);
    dataset->picks[SPLIT_VALID] =
        (struct picks){.chosen = true, .source = SPLIT_TRAIN, .first = train};
}

/* The test split, and what a source without one takes from the training samples. */
static enum status pick_test(const struct job *job, struct deck *train, struct dataset *dataset,
                             struct err *err)
{
    const int64_t want = job->data.test_samples, all = dataset->num_samples[SPLIT_TRAIN];
    int64_t have = dataset->num_samples[SPLIT_TEST];
    struct deck test = {0};
    enum status rc = OK;
    if (have == 0) {
        have = all / TEST_PART > 0 ? all / TEST_PART : 1;
        if (want > have)
            return too_few(job, SPLIT_TEST, have, want, err);
        rc = draw(train, true, want > 0 ? want : have, dataset, SPLIT_TEST, err);
        return rc == OK ? note_drawn(dataset, SPLIT_TEST, all, err) : rc;
    }
    if (want > have)
        return too_few(job, SPLIT_TEST, have, want, err);
    if (want == 0 || want == have)
        return OK;
    rc = deck_init(dataset, SPLIT_TEST, job->train.seed, &test, err);
    THEN(draw(&test, false, want, dataset, SPLIT_TEST, err));
    THEN(note_drawn(dataset, SPLIT_TEST, have, err));
    free(test.first);
    return rc;
}

/* The training samples, and those held out for the probe. left: samples that the test leaves. */
static enum status pick_train(const struct job *job, struct deck *deck, int64_t left,
                              struct dataset *dataset, struct err *err)
{
    const int64_t all = dataset->num_samples[SPLIT_TRAIN], asked = job->data.train_samples;
    const int64_t held = job_held_out(job, left);
    int64_t want;
    enum status rc = OK;
    if (asked > left)
        return too_few(job, SPLIT_TRAIN, left, asked, err);
    if (held > left / 2)
        return err_set(err, ERR_INPUT,
                       "freeze.probe of %lld samples exceeds half of the %lld training samples",
                       (long long)held, (long long)left);
    want = job_train_samples(job, left);
    if (want == all)
        return OK;
    rc = draw(deck, false, want, dataset, SPLIT_TRAIN, err);
    THEN(note_drawn(dataset, SPLIT_TRAIN, all, err));
    if (rc == OK && held > 0)
        rc = draw(deck, true, held, dataset, SPLIT_VALID, err);
    if (rc == OK && held > 0)
        rc = dataset_note(dataset, err,
                          "freezing is judged by %lld training samples that are not trained on "
                          "(data.valid)",
                          (long long)dataset->num_samples[SPLIT_VALID]);
    return rc;
}

/* The probe's samples where they are not held out of training: some of the test samples, or of
 * data.valid's own. */
static enum status pick_probe(const struct job *job, struct dataset *dataset, struct err *err)
{
    const bool of_test = job_valid_source(job) == VALID_TEST;
    const enum split from = of_test ? SPLIT_TEST : SPLIT_VALID;
    const int64_t have = dataset->num_samples[from];
    const int64_t want = job_probe_samples(job, dataset->num_samples[SPLIT_TRAIN], have);
    struct picks *picks = &dataset->picks[SPLIT_VALID];
    struct deck deck = {.source = SPLIT_VALID, .num_groups = have};
    enum status rc;
    if (want > have)
        return err_set(err, ERR_INPUT, "freeze.probe of %lld samples exceeds the %lld %s samples",
                       (long long)want, (long long)have, dataset_split_name(from));
    rc = deck_order(&deck, job->train.seed, err);
    THEN(draw(&deck, false, want, dataset, SPLIT_VALID, err));
    if (rc != OK)
        return rc;
    if (!of_test)
        return dataset_note(dataset, err, "freezing is judged by %lld of the %lld samples of '%s'",
                            (long long)want, (long long)have, job->data.valid);
    for (int64_t i = 0; i < want; i++) /* places among the test samples, to their ids */
        picks->ids[i] = dataset_source(dataset, SPLIT_TEST, picks->ids[i], &picks->source);
    return dataset_note(dataset, err,
                        "freezing is judged by %lld of the test samples (data.valid test), so the "
                        "accuracy of this run is not one on unseen samples",
                        (long long)want);
}

enum status picks_make(const struct job *job, struct dataset *dataset, struct err *err)
{
    const int64_t all = dataset->num_samples[SPLIT_TRAIN];
    const bool divides = dataset->num_samples[SPLIT_TEST] == 0;
    struct deck train = {0};
    enum status rc = OK;
    for (int split = 0; split < SPLIT_COUNT; split++)
        dataset->picks[split] = (struct picks){.chosen = true, .source = (enum split)split};
    if (job->data.kind == DATA_SYNTHETIC) {
        pick_synthetic(job, dataset);
    } else {
        rc = deck_init(dataset, SPLIT_TRAIN, job->train.seed, &train, err);
        THEN(pick_test(job, &train, dataset, err));
        THEN(pick_train(job, &train, divides ? all - dataset->num_samples[SPLIT_TEST] : all,
                        dataset, err));
    }
    if (rc == OK && job_valid_source(job) != VALID_HELD_OUT) {
        if (job_lags(job))
            rc = pick_probe(job, dataset, err);
        else
            dataset->num_samples[SPLIT_VALID] = 0;
    }
    free(train.first);
    return rc;
}
