/* cli/commands/cmd_model.c - `elapse model`: the sublayers of a model. */
#include "cli/base/command.h"

#include "partition/model/model.h"
#include "partition/base/units.h"
#include "profiles/job/job_json.h"

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
        json_add_string(one, "name", item->name);
        json_add_string(one, "kind", item_kind_name(item->kind));
        json_add_int(one, "layer", item->layer);
        json_add_int(one, "params", item->params);
        if (item->tied_params)
            json_add_int(one, "tied_params", item->tied_params);
        json_add_int(one, "fwd_flops", item->fwd_flops);
        json_add_int(one, "act_bytes", item->act_bytes);
        json_add_int(one, "stash_bytes", item->stash_bytes);
        if (item->kind == ITEM_OPAQUE) {
            json_add_int(one, "fwd_ns", item->fwd_ns);
            json_add_int(one, "bwd_input_ns", item->bwd_input_ns);
            json_add_int(one, "bwd_weight_ns", item->bwd_weight_ns);
            json_add_int(one, "bwd_rest_ns", item->bwd_rest_ns);
            json_add_int(one, "fwd_stash_ns", item->fwd_stash_ns);
            json_add_int(one, "update_ns", item->update_ns);
        }
    }
    list = json_add_array(json, "skips");
    for (int e = 0; e < model->num_skips; e++) {
        struct json *one = json_add_object(list, NULL);
        json_add_int(one, "from", model->skips[e].from);
        json_add_int(one, "to", model->skips[e].to);
        json_add_int(one, "bytes", model->skips[e].bytes);
    }
    return command_answer(json, err);
}

static void print_table(const struct model *model)
{
    const char *per = model->per_microbatch ? "micro-batch" : "sample";
    char act[32], stash[32];
    bool opaque = model->items[0].kind == ITEM_OPAQUE;
    printf("%s: %s, %s, %lld parameters; sizes per %s\n\n", model->name,
           COUNT_TEXT(model->num_items, "item"), COUNT_TEXT(model->num_layers, "layer"),
           (long long)model_total_params(model), per);
    if (model->note[0])
        printf("note: %s\n\n", model->note);
    printf("%4s  %-12s %-10s %5s %14s %12s %10s %10s\n", "item", "name", "kind", "layer", "params",
           opaque ? "forward" : "fwd GFLOP", "act", "stash");
    for (int i = 0; i < model->num_items; i++) {
        const struct item *item = &model->items[i];
        char work[32];
        if (opaque)
            format_ns(item->fwd_ns, work, sizeof work);
        else
            snprintf(work, sizeof work, "%.4f", (double)item->fwd_flops / 1e9);
        printf("%4d  %-12s %-10s %5d %14lld %12s %10s %10s\n", i, item->name,
               item_kind_name(item->kind), item->layer, (long long)item->params, work,
               format_bytes(item->act_bytes, act, sizeof act),
               format_bytes(item->stash_bytes, stash, sizeof stash));
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
        OPTION("json", FLAG, &as_json, NULL, "one JSON object on standard output"),
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
