/* tests/fuzz/fuzz.h - the parsers of foreign input, as functions of one block of bytes.
 *
 * Most parsers read files, so an input becomes files of a scratch folder. Where a format has several
 * files, a line "--- next file" separates them. A parser passes when it returns: sanitizers judge
 * memory and undefined behaviour, libFuzzer judges time and memory, and fuzz_judge() judges the
 * error. What a parser accepts is then used, and read again from what the program writes of it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "partition/base/status.h"

struct fuzz_parser {
    const char *name;
    void (*run)(const uint8_t *data, size_t size);
};
enum { FUZZ_PARSERS = 40 };
extern const struct fuzz_parser fuzz_parsers[FUZZ_PARSERS];

/* Make the scratch folder, in TMPDIR or in memory; remove it. They end the program if they fail. */
void fuzz_begin(void);
void fuzz_end(void);
/* The path of a file in the scratch folder; valid until the fourth call after this one. "": the
 * folder itself. */
const char *fuzz_path(const char *name);
void fuzz_put(const char *name, const void *bytes, size_t size);

/* Part i of the input. A part that is missing is empty. */
const uint8_t *fuzz_part(const uint8_t *data, size_t size, int i, size_t *length);
/* A fresh copy with a NUL behind it. */
char *fuzz_text(const uint8_t *data, size_t size);

/* Abort unless a failure has its own status, and one line that says what failed. Returns whether
 * the call succeeded. */
bool fuzz_judge(enum status rc, const struct err *err);
/* Calls that fuzz_judge() saw succeed. */
extern int fuzz_accepted;
/* Abort with a line: the program contradicts itself. */
_Noreturn void fuzz_wrong(const char *what);

/* parsers_json.c */
void fuzz_json(const uint8_t *data, size_t size);
void fuzz_job(const uint8_t *data, size_t size);
void fuzz_model(const uint8_t *data, size_t size);
void fuzz_cluster(const uint8_t *data, size_t size);
void fuzz_plan(const uint8_t *data, size_t size);
void fuzz_arrays(const uint8_t *data, size_t size);
void fuzz_evidence(const uint8_t *data, size_t size);
/* parsers_text.c */
void fuzz_units(const uint8_t *data, size_t size);
void fuzz_options(const uint8_t *data, size_t size);
void fuzz_schedule(const uint8_t *data, size_t size);
void fuzz_profile(const uint8_t *data, size_t size);
void fuzz_hosts(const uint8_t *data, size_t size);
/* parsers_run.c */
void fuzz_store(const uint8_t *data, size_t size);
void fuzz_store_sql(const uint8_t *data, size_t size);
void fuzz_run(const uint8_t *data, size_t size);
void fuzz_manifest(const uint8_t *data, size_t size);
void fuzz_safetensors(const uint8_t *data, size_t size);
/* parsers_data.c */
void fuzz_image(const uint8_t *data, size_t size);
void fuzz_tsv(const uint8_t *data, size_t size);
void fuzz_table(const uint8_t *data, size_t size);
void fuzz_squad(const uint8_t *data, size_t size);
void fuzz_wordpiece(const uint8_t *data, size_t size);
void fuzz_bpe(const uint8_t *data, size_t size);
void fuzz_idx(const uint8_t *data, size_t size);
void fuzz_cifar(const uint8_t *data, size_t size);
void fuzz_lines(const uint8_t *data, size_t size);
void fuzz_json_lines(const uint8_t *data, size_t size);
void fuzz_tokenizer(const uint8_t *data, size_t size);
void fuzz_chat(const uint8_t *data, size_t size);
void fuzz_jinja(const uint8_t *data, size_t size);
/* parsers_weights.c */
void fuzz_adapter(const uint8_t *data, size_t size);
void fuzz_shards(const uint8_t *data, size_t size);
void fuzz_classes(const uint8_t *data, size_t size);
void fuzz_run_file(const uint8_t *data, size_t size);
/* parsers_outside.c */
void fuzz_flags(const uint8_t *data, size_t size);
void fuzz_losses(const uint8_t *data, size_t size);
void fuzz_faults(const uint8_t *data, size_t size);
void fuzz_step_trace(const uint8_t *data, size_t size);
void fuzz_measured(const uint8_t *data, size_t size);
void fuzz_kind(const uint8_t *data, size_t size);
