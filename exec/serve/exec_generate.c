/* exec/serve/exec_generate.c - text after a prompt. */
#include "exec/commands/exec_begin.h"
#include "exec/serve/generate_request.h"

static enum status run_generate(const struct exec_command *command, struct call *call,
                                struct err *err)
{
    struct generate_request q = {
        .max_tokens = 128, .seed = 1, .rule = {.temperature = 1.0, .top_p = 1.0}
    };
    const struct option table[] = {
        OPTION("prompt", STRING, &q.prompt, "TEXT", "what the text begins with"),
        ADAPTER_OPTION(&q.adapter),
        OPTION("max-tokens", INT, &q.max_tokens, "N", "tokens at most (default 128)", .min = 1,
               .max = 1 << 24),
        OPTION("temperature", RATIO, &q.rule.temperature, "X",
               "divides the logits; 0: always the likeliest token (default 1)"),
        OPTION("top-k", INT, &q.rule.top_k, "N", "of the N likeliest tokens (default: of all)",
               .min = 1, .max = INT32_MAX),
        OPTION("top-p", RATIO, &q.rule.top_p, "P",
               "of the likeliest tokens that together have probability P (default 1)"),
        OPTION("seed", INT, &q.seed, "N", "of the draws (default 1)", .max = INT64_MAX),
        OPTION("stop", LIST, &q.stops, "TEXT", "end in front of TEXT (repeatable)"),
        OPTION("vocab", STRING, &q.vocab, "FILE",
               "tokenizer.json or vocab.json (default: the run's, or the one next to the weights)"),
        OPTION("threads", INT, &q.threads, "N", "threads (default: the available cores)", .min = 1,
               .max = MAX_THREADS),
        OPTION("json", FLAG, &q.json, NULL,
               "print one JSON object at the end: text, tokens, their log-probabilities, times"),
    };
    struct command_line line = COMMAND_LINE(table, 1);
    enum status rc = exec_parse(command, call, &line, err);
    if (rc != OK || line.help)
        return rc;
    if (!q.prompt)
        return err_set(err, ERR_INPUT, "--prompt TEXT is missing");
    if (q.rule.top_p <= 0.0 || q.rule.top_p > 1.0)
        return err_set(err, ERR_INPUT, "--top-p must be above 0 and at most 1, got %g",
                       q.rule.top_p);
    if (q.rule.temperature < 0.0)
        return err_set(err, ERR_INPUT, "--temperature must be at least 0, got %g",
                       q.rule.temperature);
    for (int i = 0; i < q.stops.count; i++)
        if (!*q.stops.items[i])
            return err_set(err, ERR_INPUT, "--stop must not be empty");
    q.from = line.positional[0];
    return generate_request_run(&q, err);
}

const struct exec_command exec_generate = {
    .name = "generate",
    .args = "CHECKPOINT --prompt TEXT [options]",
    .summary = "Continue a prompt, by a run or a model of Hugging Face.",
    .num_needed = 1,
    .run = run_generate,
};
