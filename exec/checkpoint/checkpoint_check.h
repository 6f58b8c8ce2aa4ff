/* exec/checkpoint/checkpoint_check.h - is a checkpoint whole, and which one does a run resume from. */
#pragma once

#include "exec/comm/comm.h"
#include "profiles/json/json.h"

/* Check the manifest, and length and SHA-256 of every num_parts-th file from file `part` on, so
 * that several ranks can share the work. A checkpoint of an older version has no digests; only its
 * manifest is checked. Each file is read once: 1.5 GB/s a rank where the processor has SHA
 * instructions. ERR_INPUT: damaged, or of another step; ERR_SYSTEM: a file cannot be read. */
enum status checkpoint_check(const char *dir, int part, int num_parts, struct err *err);

/* Length and SHA-256 of one file of the manifest. */
enum status checkpoint_file_check(const char *dir, const struct json *manifest, int index,
                                  struct err *err);

/* Check all files, whatever is wrong with some of them. Adds to answer "step", "run", "ok" and
 * "files", an array of {name, bytes, sha256, ok, reason}; manifest.json is the first one.
 * ERR_SYSTEM: there is no manifest; ERR_NOMEM. */
enum status checkpoint_verify(const char *dir, struct json *answer, struct err *err);

/* The checkpoint that was chosen. */
struct checkpoint_choice {
    char *dir;      /* owned; the checkpoint's folder */
    char note[480]; /* empty, or what the user should know */
    char *run;      /* owned; the run's folder, where dir is a copy in memory; else NULL */
    bool foreign;   /* dir is a file or a folder of weights of another tool */
};

/* Release what a choice owns and zero it; safe on {0}. */
void checkpoint_choice_clear(struct checkpoint_choice *choice);

/* Choose and check a checkpoint. `from` is its folder, or a run's folder, whose newest checkpoint is
 * taken. If that one is damaged, or of another run, the next older one is taken and the note says
 * why. Every file is checked on every node; the ranks of a node share the work. comm NULL: this
 * process alone. Collective; all ranks get the same choice and status. ERR_SYSTEM: none is there;
 * ERR_INPUT: none is good. */
enum status checkpoint_choose(const struct comm *comm, const char *from,
                              struct checkpoint_choice *choice, struct err *err);

/* The resolved job that the run had when it wrote the checkpoint, as a fresh tree; NULL: it was
 * written by an older version. */
enum status checkpoint_job(const char *dir, struct json **job, struct err *err);
