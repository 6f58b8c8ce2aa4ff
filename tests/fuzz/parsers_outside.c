/* Files of other programs: flags of frameworks, traces of lost nodes and of steps, measured steps, device kinds. */
#include <stdlib.h>
#include <string.h>

#include "cli/base/fault_trace.h"
#include "cli/commands/measured_rows.h"
#include "cli/faults/sim_faults.h"
#include "cli/launch/losses.h"
#include "profiles/frameworks/command_job.h"
#include "profiles/job/job_json.h"
#include "profiles/job/kind_json.h"
#include "tests/fuzz/fuzz.h"

/* A command line, read as Megatron-LM's and as torchtitan's. */
void fuzz_flags(const uint8_t *data, size_t size)
{
    static const char *const cluster[] = {"cluster=h100-2x8"};
    char *text = fuzz_text(data, size);
    for (int i = 0; i < 2; i++) {
        struct command_job made = {0};
        struct job job = {0};
        struct err err = {0}, second = {0};
        const enum status rc =
            command_job_read(i == 0 ? "megatron" : "torchtitan", text, 16, 0, &made, &err);
        if (fuzz_judge(rc, &err) &&
            fuzz_judge(job_from_json(made.job, "flags", NULL, cluster, 1, &job, &second), &second))
            job_clear(&job);
        command_job_clear(&made);
    }
    free(text);
}

/* A trace of losses, by time and by step, of four nodes. */
void fuzz_losses(const uint8_t *data, size_t size)
{
    struct fault_event *events = NULL;
    struct losses losses = {0};
    struct err err = {0}, second = {0}, third = {0};
    int count = 0;
    fuzz_put("losses.csv", data, size);
    if (fuzz_judge(fault_trace_read(fuzz_path("losses.csv"), false, &events, &count, &err), &err))
        fuzz_judge(fault_trace_check(events, count, 4, &second), &second);
    free(events);
    if (fuzz_judge(losses_read(fuzz_path("losses.csv"), 4, &losses, &third), &third)) {
        char text[64];
        for (int64_t step = 0; step < 8; step++) {
            losses_text(&losses, text);
            losses_happen(&losses, step % 2 == 0, step);
        }
    }
    losses_clear(&losses);
}

/* Faults of a cluster, and over them those of --faults: as pairs, and as a file. */
void fuzz_faults(const uint8_t *data, size_t size)
{
    struct err err = {0}, second = {0};
    size_t length = 0;
    const uint8_t *part = fuzz_part(data, size, 0, &length);
    char *own = fuzz_text(part, length);
    part = fuzz_part(data, size, 1, &length);
    char *pairs = fuzz_text(part, length);
    fuzz_put("faults.json", part, length);
    /* A path in the input would open files that are not the fuzzer's. */
    if (!strstr(pairs, "trace") && !strstr(pairs, "run") && !strstr(own, "trace") &&
        !strstr(own, "run") && !strchr(pairs, '\\') && !strchr(own, '\\')) {
        fuzz_judge(sim_faults_check(own[0] ? own : NULL, pairs, &err), &err);
        fuzz_judge(sim_faults_check(NULL, fuzz_path("faults.json"), &second), &second);
    }
    free(own);
    free(pairs);
}

static const char step[] =
    "--model gpt2:layers=1,seq=8 --cluster a100-1x2 --microbatches 2 --batch 4";

/* A trace of torch.profiler. */
void fuzz_step_trace(const uint8_t *data, size_t size)
{
    struct measured_rows rows = {0};
    struct err err = {0};
    fuzz_put("trace.json", data, size);
    fuzz_judge(measured_rows_add(&rows, step, fuzz_path("trace.json"), NULL, &err), &err);
    measured_rows_clear(&rows);
}

/* Measured steps for `elapse calibrate`, whose cells are settings of a step. */
void fuzz_measured(const uint8_t *data, size_t size)
{
    struct measured_rows rows = {0};
    struct err err = {0};
    fuzz_put("rows.csv", data, size);
    fuzz_judge(measured_rows_add_csv(&rows, fuzz_path("rows.csv"), step, &err), &err);
    measured_rows_clear(&rows);
}

/* A device kind, and as it is written again. */
void fuzz_kind(const uint8_t *data, size_t size)
{
    const struct fields_source source = {.file = "again"};
    struct kind *kind = NULL, *again = NULL;
    struct err err = {0}, second = {0};
    fuzz_put("mine.json", data, size);
    if (fuzz_judge(kind_read_file(fuzz_path("mine.json"), &kind, &err), &err)) {
        struct json *written = json_object_new();
        kind_to_json(kind, written);
        if (!fuzz_judge(kind_from_json(written, &source, &again, &second), &second))
            fuzz_wrong(second.msg);
        json_free(written);
        kind_release(again);
        kind_release(kind);
    }
}
