/* Write the C text of shipped_kinds from the files of device kinds: write_kinds FILE... >kinds.c. The
 * build runs it, so that partition has the figures without reading a file. They are in the order of
 * the arguments. */
#include <stdio.h>

#include "profiles/job/kind_json.h"

/* This program writes the table of shipped kinds, so it is linked with an empty one. */
const struct kind shipped_kinds[1];
const int num_shipped_kinds;
const char *const shipped_kind_names[] = {NULL};
const char *const shipped_curve_names[] = {NULL};

static void write_text(const char *text)
{
    putchar('"');
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            putchar('\\');
        putchar(*text);
    }
    printf("\",\n");
}

static void write_kind(const struct kind *kind)
{
    printf("{\n.name = ");
    write_text(kind->name);
    printf(".source = ");
    write_text(kind->source);
    printf(".roof.kind = ");
    write_text(kind->name);
    printf(".roof.source = ");
    write_text(kind->source);
    printf(".node.kind = ");
    write_text(kind->name);
    printf(".node.source = ");
    write_text(kind->node.source);
    printf(".node.copy_source = ");
    write_text(kind->node.copy_source);
    printf(".collectives.kind = ");
    write_text(kind->name);
    printf(".collectives.source = ");
    write_text(kind->collectives.source);
    printf(".collectives.others = ");
    write_text(kind->collectives.others);
    if (kind->collectives.rings_of) {
        printf(".collectives.rings_of = ");
        write_text(kind->collectives.rings_of);
    }
    if (kind->curve.sms > 0) {
        printf(".curve.fitted_on = ");
        write_text(kind->curve.fitted_on);
    }
    for (int f = 0; f < NUM_KIND_FIGURES; f++) {
        const double value = kind_figure_value(kind, f);
        if (!kind->sources[f])
            continue;
        if (value > 9e18)
            printf(".%s = INT64_MAX,\n", kind_figures[f].member);
        else
            printf(".%s = %.17g,\n", kind_figures[f].member, value);
        printf(".sources[%d] = ", f);
        write_text(kind->sources[f]);
    }
    printf("},\n");
}

int main(int argc, char **argv)
{
    enum { MANY = 512 };
    struct kind *kinds[MANY] = {0};
    struct err err = {0};
    enum status rc = OK;
    if (argc < 2 || argc > MANY)
        rc = err_set(&err, ERR_INPUT, "usage: write_kinds FILE..., at most %d", MANY - 1);
    for (int i = 1; i < argc && rc == OK; i++)
        rc = kind_read_file(argv[i], &kinds[i], &err);
    if (rc != OK) {
        fprintf(stderr, "write_kinds: %s\n", err.msg);
        return status_exit_code(rc);
    }
    printf(
        "#include \"partition/cluster/device_kinds.h\"\nconst struct kind shipped_kinds[] = {\n");
    for (int i = 1; i < argc; i++)
        write_kind(kinds[i]);
    printf("};\nconst int num_shipped_kinds = %d;\nconst char *const shipped_kind_names[] = {\n",
           argc - 1);
    for (int i = 1; i < argc; i++)
        write_text(kinds[i]->name);
    printf("NULL};\nconst char *const shipped_curve_names[] = {\n");
    for (int i = 1; i < argc; i++)
        if (kinds[i]->curve.sms > 0)
            write_text(kinds[i]->name);
    printf("NULL};\n");
    for (int i = 1; i < argc; i++)
        kind_release(kinds[i]);
    return 0;
}
