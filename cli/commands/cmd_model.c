/* cli/commands/cmd_model.c - `elapse model`: the sublayers of a model. */
#include "cli/base/command.h"

#include "partition/model/model.h"
#include "partition/base/units.h"
#include "profiles/job/job_json.h"
#include "profiles/json/columns.h"

static const char *work_text(const void *row, char *buf, size_t size)
{
    const struct item *item = row;
    if (item->kind == ITEM_OPAQUE)
        return format_ns(item->fwd_ns, buf, size);
    snprintf(buf, size, "%.4f", (double)item->fwd_flops / 1e9);
    return buf;
}

#define ITEM(type, member, ...) COLUMN(item, #member, type, member, __VA_ARGS__)
static const struct row_table item_table = ROW_TABLE_BESIDES(
    4, item, ITEM(TEXT, name, SHOWN("  name", -12)),
    ITEM(NAME, kind, SHOWN(" kind", -10), .leaves = 1, .names = item_kind_names),
    ITEM(INT, layer, SHOWN(" layer", 5), .leaves = 2), ITEM(INT, params, SHOWN(" params", 14)),
    ITEM(INT, tied_params, .flags = MEMBER_OPTIONAL),
    ITEM(INT, fwd_flops, SHOWN(" fwd GFLOP", 12), .leaves = 4, .text = work_text),
    ITEM(INT, act_bytes, SHOWN(" act", 10), .leaves = 3),
    ITEM(INT, stash_bytes, SHOWN(" stash", 10), .leaves = 5));
static const struct row_table opaque_table =
    ROW_TABLE(item, ITEM(INT, fwd_ns), ITEM(INT, bwd_input_ns), ITEM(INT, bwd_weight_ns),
              ITEM(INT, bwd_rest_ns), ITEM(INT, fwd_stash_ns), ITEM(INT, update_ns));
#define SKIP(member) COLUMN(skip_edge, #member, INT, member)
static const struct row_table skip_table = ROW_TABLE(skip_edge, SKIP(from), SKIP(to), SKIP(bytes));

static enum status print_json(const struct command *command, const struct model *model,
                              struct err *err)
{
    struct json *json = command_json(command), *list;
    json_add_string(json, "model", model->name);
    json_add_string(json, "family", model_family_name(model->family));
    json_add_int(json, "num_layers", model->num_layers);
    json_add_int(json, "total_params", model_total_params(model));
    json_add_bool(json, "per_microbatch", model->per_microbatch);
    json_add_int(json, "elem_bytes", model->elem_bytes);
    if (model->hidden) {
        json_add_int(json, "hidden", model->hidden);
        json_add_int(json, "heads", model->heads);
        json_add_int(json, "mlp", model->mlp);
        json_add_int(json, "seq", model->seq);
    }
    list = json_add_array(json, "items");
    for (int i = 0; i < model->num_items; i++) {
        const struct item *item = &model->items[i];
        struct json *one = json_add_object(list, NULL);
        row_to_json(one, &item_table, item);
        if (item->kind == ITEM_OPAQUE)
            row_to_json(one, &opaque_table, item);
    }
    rows_to_json(json, "skips", &skip_table, model->skips, model->num_skips);
    return command_answer(json, err);
}

static void print_table(const struct model *model)
{
    const char *per = model->per_microbatch ? "micro-batch" : "sample";
    char act[32];
    struct member columns[ROW_COLUMNS];
    const struct row_table table = row_table_without(&item_table, 0, columns);
    for (int c = 0; c < table.num_columns; c++)
        if (columns[c].text == work_text && model->items[0].kind == ITEM_OPAQUE)
            columns[c].head = " forward";
    printf("%s: %s, %s, %lld parameters; sizes per %s\n\n", model->name,
           COUNT_TEXT(model->num_items, "item"), COUNT_TEXT(model->num_layers, "layer"),
           (long long)model_total_params(model), per);
    if (model->note[0])
        printf("note: %s\n\n", model->note);
    printf("item");
    row_print_head(stdout, &table);
    putchar('\n');
    for (int i = 0; i < model->num_items; i++) {
        printf("%4d", i);
        row_print(stdout, &table, &model->items[i]);
        putchar('\n');
    }
    for (int e = 0; e < model->num_skips; e++)
        printf("skip  item %d -> item %d  %s\n", model->skips[e].from, model->skips[e].to,
               format_bytes(model->skips[e].bytes, act, sizeof act));
}

static enum status run(const struct command *command, int argc, char **argv, struct err *err)
{
    bool as_json = false;
    struct model model = {0};
    const struct option options[] = {
        OPTION_JSON(&as_json),
    };
    struct command_line line = COMMAND_LINE(options, 1);
    enum status rc = command_parse(command, &line, argc, argv, err);
    if (rc != OK || line.help)
        return rc;
    if (line.num_positional < 1) {
        rc = err_set(err, ERR_INPUT, "model: MODEL is missing");
        err_hint(err, "for example: elapse model vit-b16:classes=10");
        return rc;
    }
    rc = model_load(line.positional[0], &model, err);
    if (rc != OK)
        return rc;
    if (as_json)
        rc = print_json(command, &model, err);
    else
        print_table(&model);
    model_clear(&model);
    return rc;
}

const struct command command_model = {.name = "model",
                                      .args = "MODEL",
                                      .summary =
                                          "the sublayers of a model: parameters, operations, bytes",
                                      .takes = "MODEL",
                                      .run = run};
