#include "cli/figures/report_freeze.h"

#include <limits.h>
#include <math.h>

#include "cli/figures/report_page.h"
#include "partition/freeze/freeze_safe.h"
#include "profiles/json/json.h"

static double number(const struct json *object, const char *key)
{
    const struct json *value = json_get(object, key);
    return value ? json_number(value) : NAN;
}

static void put_shares(FILE *out, const struct json *candidates)
{
    if (json_count(candidates) == 0)
        fputc('-', out);
    for (const struct json *one = json_first(candidates); one; one = json_next(one))
        fprintf(out, "%s%.0f: %.4f &#177; %.4f", one == json_first(candidates) ? "" : ", ",
                number(one, "frozen"), number(one, "share"), number(one, "share_se"));
}

static void put_row(FILE *out, const struct json *turn)
{
    const struct json *decision = json_get(turn, "decision");
    const char *reason = json_string(json_get(decision, "reason"));
    fprintf(out, "<tr><td>%.0f</td><td>%.0f</td><td>%.4f</td><td>%.4f</td><td>",
            number(turn, "turn"), number(turn, "step"), number(turn, "loss_before"),
            number(turn, "loss"));
    put_shares(out, json_get(turn, "candidates"));
    fprintf(out, "</td><td>%.0f</td><td>%.0f</td><td>%.2f</td><td>", number(turn, "frozen"),
            number(decision, "frozen"), number(decision, "left"));
    page_text(out, reason ? reason : "");
    fputs("</td></tr>\n", out);
}

void report_freeze(FILE *out, const char *run_dir)
{
    char path[PATH_MAX];
    struct json *root = NULL;
    const struct json *last = NULL;
    bool points = false;
    snprintf(path, sizeof path, "%s/evidence.json", run_dir);
    if (json_read_file(path, &root, NULL) != OK)
        return;
    const struct json *turns = json_get(root, "turns");
    for (const struct json *turn = json_first(turns); turn; turn = json_next(turn)) {
        const struct json *decision = json_get(turn, "decision");
        if (!decision)
            continue;
        if (!last) {
            page_put(out, "h3", "Decisions to freeze, and their evidence");
            page_table(out, "turn|step|loss, from|to|share of F, nats|F|F then|left|why");
        }
        put_row(out, turn);
        points = isfinite(number(turn, "accuracy"));
        last = decision;
    }
    if (last) {
        double low, high;
        freeze_safe_interval(number(last, "cost"), number(last, "cost_se"), &low, &high);
        page_table_end(out);
        page_put(out, "p",
                 "Freezing has cost an estimated %.2f %s, with 80 %% certainty %.2f to %.2f.",
                 number(last, "cost"), points ? "points of accuracy" : "% of the loss", low, high);
    }
    json_free(root);
}
