/* exec/commands/exec_export.c - a checkpoint as files of Hugging Face. */
#include <stdio.h>
#include <string.h>

#include "exec/commands/exec_command.h"
#include "exec/checkpoint/checkpoint_check.h"
#include "exec/checkpoint/export.h"
#include "partition/base/units.h"

static enum status run_export(const struct exec_command *command, struct call *call,
                              struct err *err)
{
    const char *out = NULL;
    bool json = false, merged = false;
    const struct option table[] = {
        OPTION("o", STRING, &out, "PATH",
               "FILE.safetensors, with config.json next to it, or a folder for from_pretrained() "
               "of transformers, or adapters for peft"),
        OPTION("merged", FLAG, &merged, NULL,
               "add adapters to the weights with which they trained"),
        OPTION_JSON(&json),
    };
    struct checkpoint_choice choice = {0};
    struct export_answer answer = {0};
    struct command_line line = COMMAND_LINE(table, 1);
    enum status rc = exec_parse(command, call, &line, err);
    if (rc != OK || line.help)
        return rc;
    if (!out)
        return err_set(err, ERR_INPUT, "-o PATH is missing");
    rc = checkpoint_choose(NULL, line.positional[0], &choice, err);
    THEN(checkpoint_export(choice.dir, out, merged ? EXPORT_MERGED : EXPORT_AS_TRAINED, &answer,
                           err));
    if (choice.note[0])
        fprintf(stderr, "note: %s\n", choice.note);
    if (answer.note[0])
        fprintf(stderr, "note: %s\n", answer.note);
    if (rc == OK && json) {
        struct json *root = exec_answer("export");
        json_add_string(root, "checkpoint", choice.dir);
        json_add_string(root, "out", out);
        json_add_int(root, "tensors", answer.num_tensors);
        json_add_copy(root, "files", answer.files);
        if (answer.note[0])
            json_add_string(root, "note", answer.note);
        rc = exec_print(root, err);
        json_free(root);
    } else if (rc == OK && strcmp(out, "/dev/stdout") != 0) {
        const struct json *file = json_first(answer.files);
        printf("wrote %s to %s\n", COUNT_TEXT(answer.num_tensors, "tensor"), json_string(file));
        while ((file = json_next(file)))
            printf("wrote %s\n", json_string(file));
    }
    export_answer_clear(&answer);
    checkpoint_choice_clear(&choice);
    return rc;
}

const struct exec_command exec_export = {
    .name = "export",
    .args = "CHECKPOINT -o DIR|FILE.safetensors",
    .summary =
        "Write a checkpoint as a model of Hugging Face: safetensors, config.json, in DIR also the "
        "tokenizer.",
    .num_needed = 1,
    .run = run_export,
};
