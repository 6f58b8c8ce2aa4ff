/* `elapse generate` (generate_request.h). open_source() finds model, weights and tokenizer;
 * write_on() is the loop: read a token, choose the next, show what is certain of the text. */
#include "exec/serve/generate_request.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exec/data/counter.h"
#include "exec/data/tokenizer.h"
#include "exec/device/cores.h"
#include "exec/device/devices.h"
#include "exec/serve/generator.h"
#include "exec/run/resume.h"
#include "exec/weights/adapter_files.h"
#include "exec/weights/weights_files.h"
#include "profiles/base/clock.h"
#include "profiles/job/job_json.h"
#include "profiles/json/json.h"

enum { PIECE_BYTES = 1024 };

/* The model, its weights and its tokenizer. */
struct source {
    struct job job;     /* of a run; its model is the model */
    struct model model; /* of weights with a config.json */
    const struct model *of;
    struct checkpoint_choice weights;
    struct tokenizer *tokenizer;
    int context;
};

static void source_clear(struct source *source)
{
    job_clear(&source->job);
    model_clear(&source->model);
    tokenizer_free(source->tokenizer);
    checkpoint_choice_clear(&source->weights);
}

static enum status beside(const char *path, const char *name, char **file, struct err *err)
{
    const char *slash = strrchr(path, '/');
    struct stat st;
    const bool folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    const int n = folder
                      ? asprintf(file, "%s/%s", path, name)
                      : asprintf(file, "%.*s%s", slash ? (int)(slash + 1 - path) : 0, path, name);
    if (n < 0)
        *file = NULL;
    return n < 0 ? err_nomem(err) : OK;
}

/* The longest sequence: the positions of config.json beside the weights. */
static enum status read_context(const char *config, struct source *source, struct err *err)
{
    struct json *root = NULL;
    int64_t positions = 0;
    enum status rc = json_read_file(config, &root, err);
    if (rc == OK && json_int64(json_get(root, "max_position_embeddings"), &positions) &&
        positions > 0 && positions <= INT32_MAX)
        source->context = (int)positions;
    json_free(root);
    return rc;
}

static enum status open_foreign(const struct generate_request *q, struct source *source,
                                char **vocab, struct err *err)
{
    static const char *const names[] = {"tokenizer.json", "vocab.json"};
    char *config = NULL;
    source->weights.foreign = true;
    source->weights.dir = strdup(q->from);
    enum status rc =
        source->weights.dir ? beside(q->from, "config.json", &config, err) : err_nomem(err);
    THEN(model_load(config, &source->model, err));
    struct lora_ask ask = {0};
    if (rc == OK && q->adapter)
        rc = adapter_files_ask(q->adapter, &ask, err);
    THEN(model_set_lora(&source->model, &ask, err));
    source->of = &source->model;
    source->context = source->model.max_seq > 0 ? source->model.max_seq : source->model.seq;
    THEN(read_context(config, source, err));
    for (int i = 0; rc == OK && i < 2 && !*vocab; i++) {
        rc = beside(q->from, names[i], vocab, err);
        if (rc == OK && access(*vocab, F_OK) != 0) {
            free(*vocab);
            *vocab = NULL;
        }
    }
    free(config);
    return rc;
}

static enum status open_run(const struct generate_request *q, struct source *source, char **vocab,
                            struct err *err)
{
    const struct option_list none = {0};
    struct job_ask ask = {.set = &none, .evaluates = true};
    char *differences = NULL;
    enum status rc = checkpoint_choose(NULL, q->from, &source->weights, err);
    ask.checkpoint = source->weights.dir;
    THEN(resume_job(&ask, &source->job, &differences, err));
    free(differences);
    source->of = &source->job.model;
    source->context = source->of->max_seq > 0 ? source->of->max_seq : source->of->seq;
    if (rc == OK && source->job.data.vocab) {
        *vocab = strdup(source->job.data.vocab);
        rc = *vocab ? OK : err_nomem(err);
    }
    return rc;
}

static enum status open_source(const struct generate_request *q, struct source *source,
                               struct err *err)
{
    char *vocab = NULL;
    struct stat st;
    enum status rc;
    if (stat(q->from, &st) != 0)
        return err_set(err, ERR_SYSTEM, "cannot open '%s'", q->from);
    rc = adapter_files_refuse(q->from, err);
    if (rc != OK)
        return rc;
    const bool foreign = weights_are_at(q->from);
    if (q->adapter && !foreign)
        return err_set(err, ERR_INPUT,
                       "--adapter %s needs the weights of its base: a folder of transformers",
                       q->adapter);
    rc = foreign ? open_foreign(q, source, &vocab, err) : open_run(q, source, &vocab, err);
    if (rc == OK)
        rc = tokenizer_open(q->vocab ? q->vocab : vocab, q->vocab ? NULL : source->job.data.merges,
                            source->job.data.lower_case, &source->tokenizer, err);
    const int size = rc == OK ? tokenizer_size(source->tokenizer) : 0;
    if (size > source->of->vocab)
        rc = err_set(err, ERR_INPUT, "'%s' has %d tokens, model '%s' has room for %d",
                     q->vocab ? q->vocab
                     : vocab  ? vocab
                              : "bytes",
                     size, source->of->name, source->of->vocab);
    free(vocab);
    return rc;
}

/* --- the text --------------------------------------------------------------------------------- */

struct answer {
    char *text; /* owned; NUL after `bytes` */
    size_t bytes, room, shown;
    struct token_list tokens;
    double *logprobs; /* owned, [max_tokens] */
    const char *ended_by;
    int num_prompt;
    int64_t read_ns, write_ns;
};

static enum status add_bytes(struct answer *answer, const char *bytes, size_t n, struct err *err)
{
    if (answer->bytes + n + 1 > answer->room) {
        const size_t room = 2 * (answer->bytes + n) + 256;
        char *text = realloc(answer->text, room);
        if (!text)
            return err_nomem(err);
        answer->text = text;
        answer->room = room;
    }
    memcpy(answer->text + answer->bytes, bytes, n);
    answer->bytes += n;
    answer->text[answer->bytes] = '\0';
    return OK;
}

/* Cut the text in front of the first stop text; true: there is one. */
static bool cut_at_stop(const struct option_list *stops, struct answer *answer)
{
    char *first = NULL;
    for (int i = 0; i < stops->count && answer->bytes > 0; i++) {
        char *found = strstr(answer->text, stops->items[i]);
        if (found && (!first || found < first))
            first = found;
    }
    if (first) {
        answer->bytes = (size_t)(first - answer->text);
        *first = '\0';
    }
    return first != NULL;
}

/* Length of the text that no later token changes: without the beginning of a stop text or of a
 * character of several bytes. */
static size_t certain(const struct option_list *stops, const struct answer *answer)
{
    size_t n = answer->bytes;
    for (size_t back = 1; back <= 3 && back <= answer->bytes; back++) {
        const unsigned char byte = (unsigned char)answer->text[answer->bytes - back];
        if (byte >= 0xc0) {
            const size_t length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
            n = length > back ? answer->bytes - back : n;
            break;
        }
        if (byte < 0x80)
            break;
    }
    for (int i = 0; i < stops->count; i++) {
        const size_t length = strlen(stops->items[i]);
        for (size_t part = length < answer->bytes ? length : answer->bytes; part > 0; part--)
            if (memcmp(answer->text + answer->bytes - part, stops->items[i], part) == 0) {
                n = answer->bytes - part < n ? answer->bytes - part : n;
                break;
            }
    }
    return n;
}

static void show(struct answer *answer, size_t up_to)
{
    if (up_to <= answer->shown)
        return;
    fwrite(answer->text + answer->shown, 1, up_to - answer->shown, stdout);
    fflush(stdout);
    answer->shown = up_to;
}

static enum status check_logits(const float *logits, int vocab, int64_t position, struct err *err)
{
    for (int i = 0; i < vocab; i++)
        if (!isfinite(logits[i]))
            return err_set(err, ERR_INFEASIBLE,
                           "the logits at position %lld are not finite: the weights overflow",
                           (long long)position);
    return OK;
}

/* Generate after the prompt, whose tokens `prompt` has. */
static enum status write_on(const struct generate_request *q, struct source *source,
                            struct generator *generator, const struct token_list *prompt,
                            struct answer *answer, struct err *err)
{
    const int vocab = source->of->vocab;
    const uint64_t key = counter_key((uint64_t)q->seed, 0, 0);
    struct token_work *work = malloc((size_t)vocab * sizeof *work);
    int32_t *ids = malloc((size_t)prompt->count * sizeof *ids);
    const float *logits = NULL;
    const int64_t begin_ns = clock_now_ns();
    enum status rc = work && ids ? OK : err_nomem(err);
    for (int64_t i = 0; rc == OK && i < prompt->count; i++)
        ids[i] = prompt->at[i].id;
    THEN(generator_read(generator, ids, (int)prompt->count, &logits, err));
    const int64_t read_ns = clock_now_ns();
    answer->read_ns = read_ns - begin_ns;
    answer->ended_by = "max_tokens";
    for (int64_t i = 0; rc == OK && i < q->max_tokens; i++) {
        rc = check_logits(logits, vocab, prompt->count + i, err);
        if (rc != OK)
            break;
        char piece[PIECE_BYTES];
        bool special;
        const int32_t id = choose_token(logits, vocab, &q->rule, counter_unit(key, (uint64_t)i),
                                        work, &answer->logprobs[i]);
        rc = token_list_add(&answer->tokens, (struct token){.id = id}, err);
        const size_t n = tokenizer_bytes(source->tokenizer, id, piece, sizeof piece, &special);
        if (special) {
            answer->ended_by = "special_token";
            break;
        }
        THEN(add_bytes(answer, piece, n, err));
        if (rc == OK && cut_at_stop(&q->stops, answer)) {
            answer->ended_by = "stop";
            break;
        }
        if (rc == OK && !q->json && answer->bytes > 0)
            show(answer, certain(&q->stops, answer));
        if (i + 1 == q->max_tokens)
            break;
        if (prompt->count + i + 1 == source->context) {
            answer->ended_by = "context";
            break;
        }
        THEN(generator_read(generator, &id, 1, &logits, err));
    }
    answer->write_ns = clock_now_ns() - read_ns;
    free(work);
    free(ids);
    return rc;
}

static enum status print_answer(const struct generate_request *q, const struct source *source,
                                const struct answer *answer, struct err *err)
{
    if (!q->json) {
        if (answer->bytes > answer->shown)
            fwrite(answer->text + answer->shown, 1, answer->bytes - answer->shown, stdout);
        putchar('\n');
        return OK;
    }
    struct json *root = json_object_new();
    json_add_int(root, "schema", 1);
    json_add_string(root, "version", ELAPSE_VERSION);
    json_add_string(root, "command", "generate");
    json_add_string(root, "weights", source->weights.dir);
    json_add_string(root, "model", source->of->name);
    json_add_string(root, "prompt", q->prompt);
    json_add_double(root, "temperature", q->rule.temperature);
    json_add_int(root, "top_k", q->rule.top_k);
    json_add_double(root, "top_p", q->rule.top_p);
    json_add_int(root, "seed", q->seed);
    json_add_string(root, "text", answer->text ? answer->text : "");
    json_add_string(root, "ended_by", answer->ended_by);
    json_add_int(root, "prompt_tokens", answer->num_prompt);
    struct json *ids = json_add_array(root, "tokens"), *logs = json_add_array(root, "logprobs");
    for (int64_t i = 0; i < answer->tokens.count; i++) {
        json_add_int(ids, NULL, answer->tokens.at[i].id);
        json_add_double(logs, NULL, answer->logprobs[i]);
    }
    json_add_int(root, "prompt_ns", answer->read_ns);
    json_add_int(root, "generate_ns", answer->write_ns);
    if (answer->write_ns > 0)
        json_add_double(root, "tokens_per_s",
                        1e9 * (double)answer->tokens.count / (double)answer->write_ns);
    const enum status rc = json_write(root, false, stdout, err);
    json_free(root);
    return rc;
}

enum status generate_request_run(const struct generate_request *q, struct err *err)
{
    struct source source = {0};
    struct token_list prompt = {0};
    struct answer answer = {0};
    struct generator *generator = NULL;
    struct backend *be = NULL;
    struct cores cores;
    enum status rc = open_source(q, &source, err);
    THEN(tokenizer_encode(source.tokenizer, q->prompt, strlen(q->prompt), ENCODE_AROUND, &prompt,
                          err));
    if (source.weights.note[0])
        fprintf(stderr, "note: %s\n", source.weights.note);
    if (rc == OK && prompt.count == 0)
        rc = err_set(err, ERR_INPUT, "the prompt has no tokens");
    if (rc == OK && prompt.count > source.context)
        rc = err_set(err, ERR_INPUT, "the prompt has %lld tokens, the context of model '%s' is %d",
                     (long long)prompt.count, source.of->name, source.context);
    THEN(cores_bind(0, 1, (int)q->threads, &cores, err));
    if (rc == OK) {
        be =
            backend_new(&(struct backend_spec){.dtype = DTYPE_FP32, .threads = cores.threads}, err);
        rc = be ? OK : err->status;
    }
    const int64_t most = prompt.count + q->max_tokens;
    THEN(generator_new(source.of, source.weights.dir, source.weights.foreign, q->adapter,
                       most < source.context ? (int)most : source.context, be, &generator, err));
    answer.num_prompt = (int)prompt.count;
    answer.logprobs = calloc((size_t)q->max_tokens + 1, sizeof *answer.logprobs);
    if (rc == OK && !answer.logprobs)
        rc = err_nomem(err);
    THEN(write_on(q, &source, generator, &prompt, &answer, err));
    THEN(print_answer(q, &source, &answer, err));
    generator_free(generator);
    backend_free(be);
    free(answer.text);
    free(answer.logprobs);
    token_list_clear(&answer.tokens);
    token_list_clear(&prompt);
    source_clear(&source);
    return rc;
}
