/* The topics of `elapse help`. A topic is a few sentences and the rows of one or more tables.
 * struct rows prints a table: one walk measures its left column, a second one prints. */
#include "cli/commands/help.h"

#include <stdio.h>
#include <string.h>

/* wall: cli/figures */
#include "cli/figures/figures.h"
/* wall end */
#include "partition/cluster/cluster.h"
#include "partition/cost/cost.h"
#include "partition/freeze/freeze.h"
#include "partition/model/model.h"
#include "partition/schedule/schedule.h"
#include "profiles/job/job_json.h"
#include "profiles/store/profile.h"

#define LINE_WIDTH 100

/* --- rows ------------------------------------------------------------------------------------- */

/* Print text from the given column on, `space` columns after what stands there. Lines break at
 * spaces and after "|", and go on at `indent`. */
static void print_wrapped(const char *text, int space, int indent, int *column)
{
    while (*text) {
        size_t length = strcspn(text, " |");
        length += text[length] == '|';
        if (*column + space + (int)length > LINE_WIDTH && *column > indent)
            *column = printf("\n%*s", indent, "") - 1;
        else
            *column += printf("%*s", space, "");
        *column += printf("%.*s", (int)length, text);
        text += length;
        space = *text == ' ';
        text += space;
    }
}

static void print_text(const char *text)
{
    int column = 0;
    print_wrapped(text, 0, 0, &column);
    putchar('\n');
}

static void print_row(int width, const char *key, const char *takes, const char *meaning)
{
    const int indent = width + 4;
    int column = printf("  %-*s  ", width, key);
    print_wrapped(takes, 0, indent, &column);
    print_wrapped(meaning, *takes ? 2 : 0, indent, &column);
    putchar('\n');
}

/* The rows of one table of keys. `group` (NULL: all) keeps the keys that start with it. */
struct rows {
    const char *group;
    int width;
    bool printing;
};

static void visit_row(const struct key_help *key, void *ctx)
{
    struct rows *rows = ctx;
    if (rows->group && strncmp(key->key, rows->group, strlen(rows->group)) != 0)
        return;
    if (rows->printing)
        print_row(rows->width, key->key, key->takes, key->meaning);
    else if ((int)strlen(key->key) > rows->width)
        rows->width = (int)strlen(key->key);
}

static void print_keys(enum key_table table, const char *group, const char *heading)
{
    struct rows rows = {.group = group};
    printf("\n%s:\n", heading);
    keys_each(table, visit_row, &rows);
    rows.printing = true;
    keys_each(table, visit_row, &rows);
}

/* "  LEFT  name name ...", wrapped. */
static void print_names(int width, const char *left, const char *const *names)
{
    char all[2048] = "";
    size_t used = 0;
    for (; *names && used < sizeof all; names++)
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", used ? " " : "", *names);
    print_row(width, left, "", all);
}

static void print_units(void)
{
    putchar('\n');
    print_text("A time has a unit: \"20us\" (ns us ms s); keys that end in _ns also take whole ns. "
               "A size may have one: \"16GiB\" (B KB MB GB TB "
               "KiB MiB GiB TiB). Bandwidths: \"25GBps\", \"200Gbps\". A number may be a fraction: "
               "\"1/3\".");
}

/* --- model ------------------------------------------------------------------------------------ */

/* The names of the families of a key but uniform: "vit, bert". */
static void key_families(const struct model_key *key, char *buf, size_t size)
{
    size_t used = 0;
    buf[0] = '\0';
    for (int f = 0; f < FAMILY_UNIFORM; f++)
        if (key->families & 1 << f && used < size)
            used += (size_t)snprintf(buf + used, size - used, "%s%s", used ? ", " : "",
                                     model_family_name((enum model_family)f));
}

static void print_model_keys(bool uniform)
{
    const struct model_key *key;
    for (int i = 0; (key = model_key_at(i)); i++) {
        char takes[64], families[64], meaning[256];
        if ((key->families == 1 << FAMILY_UNIFORM) != uniform)
            continue;
        member_takes(&key->row, takes, sizeof takes);
        key_families(key, families, sizeof families);
        snprintf(meaning, sizeof meaning, "%s%s%s%s", key->row.help, uniform ? "" : " (", families,
                 uniform ? "" : ")");
        print_row(14, key->row.name, takes, meaning);
    }
}

static void print_families(void)
{
    for (int f = 0; f < FAMILY_UNIFORM; f++) {
        const char *names[256], *name;
        int n = 0;
        for (int i = 0; (name = model_preset_name(i)) && n < 255; i++) {
            struct model_spec spec;
            if (model_preset(name, &spec, NULL) == OK && (int)spec.family == f)
                names[n++] = name;
        }
        names[n] = NULL;
        print_names(8, model_family_name((enum model_family)f), names);
    }
    print_row(8, "uniform", "", "equal layers with given times");
}

static void print_model(void)
{
    print_text(
        "A MODEL is a preset, with keys after a colon (vit-b16:classes=10,image=224), a JSON "
        "file, the config.json of a Hugging Face model, or its id on the hub (org/name) if it is "
        "in "
        "the local cache. A job's \"model\" may also be an "
        "object: {\"preset\": \"gpt2\", \"seq\": 512}.");
    printf("\npresets by family:\n");
    print_families();
    printf("train refuses:");
    for (int f = 0; f < FAMILY_COUNT; f++)
        if (!model_family_traits((enum model_family)f)->trainable)
            printf(" %s", model_family_name((enum model_family)f));
    printf(" (plan, sim, balance and model take them)\n\nkeys of a preset or family:\n");
    print_model_keys(false);
    printf("\nkeys of uniform, for a micro-batch:\n");
    print_model_keys(true);
    print_keys(KEYS_CHAIN, NULL,
               "keys of a file with a chain of your own; sizes and times per sample");
    print_keys(KEYS_ITEM, NULL, "keys of each of its items");
    print_keys(KEYS_SKIP, NULL, "keys of each of its skips");
    print_units();
}

/* --- cluster ---------------------------------------------------------------------------------- */

static void print_cluster(void)
{
    print_text("A CLUSTER is a machine, with its number of nodes or without (dgx-h100, "
               "p4d.24xlarge-4), KIND-NODESxDEVICES (a100-2x8), NODESxDEVICES (2x8), this-machine, "
               "or a JSON file. A job's \"cluster\" may also be an object.");
    printf("\nmachines (devices of a node):\n");
    for (int i = 0; machine_at(i); i++) {
        const struct machine *machine = machine_at(i);
        char node[64];
        snprintf(node, sizeof node, "%d x %s", machine->devices, machine->kind);
        print_row(18, machine->name, "", node);
    }
    printf("\nkinds of device:\n");
    print_names(0, "", shipped_kind_names);
    print_keys(KEYS_CLUSTER, NULL, "keys of a file, or of a job's cluster");
    print_keys(KEYS_DEVICE, NULL, "keys of each of its devices");
    print_keys(KEYS_COLLECTIVE, NULL, "keys of its collective");
    print_keys(KEYS_KIND, NULL, "keys of a kind of device, an object or a file (docs/clusters.md)");
    print_units();
}

/* --- data, schedule, freeze, profile, job ----------------------------------------------------- */

static void print_data(void)
{
    print_text(
        "data.kind names the reader, data.path its folder or file. Only train opens it; plan "
        "and sim take the published number of samples, or data.train_samples.");
    printf("\nkinds:\n");
    for (int i = 0; i < DATA_KIND_COUNT; i++) {
        const struct data_set *set = &data_sets[i];
        char numbers[96] = "", about[256];
        if (set->num_train > 0)
            snprintf(numbers, sizeof numbers, "; %lld and %lld samples", (long long)set->num_train,
                     (long long)set->num_test);
        snprintf(about, sizeof about, "%s; models: %s%s", set->path, set->models, numbers);
        print_row(9, data_kind_names[i], "", about);
    }
    print_keys(KEYS_JOB, "data.", "keys of a job");
}

static void print_schedule(void)
{
    print_text("A schedule is the order of forwards and backwards on the devices of a pipeline. "
               "'elapse schedule' draws one, and checks one that comes from elsewhere.");
    printf("\nschedules (stages per device where that is not 1):\n");
    for (int i = 0; i < SCHEDULE_CUSTOM; i++) {
        const enum schedule_kind kind = (enum schedule_kind)i;
        char about[160];
        const int chunks = schedule_default_chunks(kind);
        snprintf(about, sizeof about, "%s%s", schedule_kind_about(kind),
                 chunks == 1                 ? ""
                 : schedule_any_chunks(kind) ? " (2 or more)"
                                             : " (2)");
        print_row(13, schedule_kind_name(kind), "", about);
    }
    print_keys(KEYS_JOB, "pipeline.", "keys of a job");
}

static void print_freeze(void)
{
    print_text(
        "Layers freeze as a prefix: the first F layers of the model stop training. A policy "
        "decides F before each epoch, or every freeze.every_steps steps. Freed devices become "
        "replicas (elastic.*), and a cache keeps the output of the frozen layers (cache.*).");
    printf("\npolicies:\n");
    for (int i = 0; i < FREEZE_POLICY_COUNT; i++)
        print_row(15, freeze_policy_name((enum freeze_policy)i), "",
                  freeze_policy_about((enum freeze_policy)i));
    print_keys(KEYS_JOB, "freeze.", "keys of a job");
    print_keys(KEYS_JOB, "elastic.", "what follows a freeze");
    print_keys(KEYS_JOB, "cache.", "the cache of the frozen layers' output");
    print_units();
}

static void print_table_columns(const struct row_table *table)
{
    const char *names[64];
    int n = 0;
    for (; n < table->num_columns && n < 63; n++)
        names[n] = table->columns[n].name;
    names[n] = NULL;
    print_names(17, table->name, names);
}

/* The kinds of device whose kernels others have measured, or those without. */
static void print_kinds(const char *left, bool measured)
{
    const char *names[64];
    int n = 0;
    for (const char *const *name = shipped_kind_names; *name && n < 63; name++)
        if ((device_curve_find(*name) != NULL) == measured)
            names[n++] = *name;
    names[n] = NULL;
    print_names(8, left, names);
}

static void print_profile(void)
{
    print_text(
        "A profile holds the measured times of layers, links, all-reduces and memory of one "
        "machine. 'elapse profile' measures them, 'elapse profiles' lists, exports and imports "
        "them. They are in the store of --db, else of $ELAPSE_DB, else in "
        "~/.local/share/elapse. plan and sim take the profile of the cluster's kind of "
        "device.");
    printf("\nwithout a profile, times come from kernels fitted to published measurements, else "
           "from a roofline:\n");
    print_kinds("kernels", true);
    print_kinds("roofline", false);
    print_keys(KEYS_JOB, "cost.", "keys of a job");
    printf("\ntables of a profile, and their columns:\n");
    print_table_columns(&profile_info_table);
    for (int i = 0; i < PROFILE_TABLES; i++)
        print_table_columns(&profile_tables[i]);
    printf("\ntimes of your own model come as CSV: 'elapse profiles import' (docs/models.md)\n");
}

static void print_job(void)
{
    print_text("A job is one JSON object for plan, sim and train. Keys are nested objects in the "
               "file: \"train\": {\"epochs\": 3}. --set train.epochs=3 overrides a value. Defaults "
               "are in brackets.");
    print_keys(KEYS_JOB, NULL, "keys");
    print_units();
}

static const struct topic topics[] = {
    {"job",      "keys of a job file",                                  print_job     },
    {"model",    "models: presets, their keys, files of your own",      print_model   },
    {"cluster",  "clusters: machines, kinds of device, keys of a file", print_cluster },
    {"data",     "data sets and the files of each kind",                print_data    },
    {"schedule", "pipeline schedules",                                  print_schedule},
    {"freeze",   "freeze policies, elastic training, the cache",        print_freeze  },
    {"profile",  "measured costs and where they are kept",              print_profile },
};
enum { NUM_TOPICS = sizeof topics / sizeof topics[0] };

const struct topic *topic_at(int i)
{
    return i < NUM_TOPICS ? &topics[i] : NULL;
}

const struct topic *topic_find(const char *name)
{
    for (int i = 0; i < NUM_TOPICS; i++)
        if (strcmp(topics[i].name, name) == 0)
            return &topics[i];
    return NULL;
}

/* --- for programs ----------------------------------------------------------------------------- */

/* "auto|1.." -> "auto": the words of a list of values, without ranges. */
static void print_values(const char *takes)
{
    bool first = true;
    for (; strchr(takes, '|') || !first; takes += strcspn(takes, "|") + 1) {
        const int length = (int)strcspn(takes, "|");
        if (!memmem(takes, (size_t)length, "..", 2))
            printf("%s%.*s", first ? "" : " ", length, takes);
        first = false;
        if (!takes[length])
            break;
    }
}

static void visit_key(const struct key_help *key, void *ctx)
{
    (void)ctx;
    printf("key\t%s\t", key->key);
    print_values(key->takes);
    printf("\t%s\n", key->meaning);
}

static void print_word(const char *class, const char *name)
{
    printf("word\t%s\t%s\t\n", class, name);
}

static void print_words(const char *class, const char *const *names)
{
    for (; *names; names++)
        print_word(class, *names);
}

static void visit_field(const struct key_help *key, void *ctx)
{
    printf("field\t%s\t%s\t%s\t%s\n", (const char *)ctx, key->key, key->takes, key->meaning);
}

/* The keys of objects inside a job: "field", the object, the key, what it takes, its meaning. */
static void print_fields(void)
{
    static const char *const tables[] = {[KEYS_CHAIN] = "chain",
                                         [KEYS_ITEM] = "item",
                                         [KEYS_SKIP] = "skip",
                                         [KEYS_CLUSTER] = "cluster",
                                         [KEYS_DEVICE] = "cluster.device",
                                         [KEYS_COLLECTIVE] = "cluster.collective"};
    const struct model_key *key;
    for (int i = 0; (key = model_key_at(i)); i++) {
        char takes[64];
        member_takes(&key->row, takes, sizeof takes);
        for (int f = 0; f < FAMILY_COUNT; f++)
            if (key->families & 1 << f)
                printf("field\t%s\t%s\t%s\t%s\n", model_family_name((enum model_family)f),
                       key->row.name, takes, key->row.help);
    }
    for (int t = KEYS_JOB + 1; t <= KEYS_COLLECTIVE; t++) {
        char name[32];
        snprintf(name, sizeof name, "%s", tables[t]);
        keys_each((enum key_table)t, visit_field, name);
    }
}

void help_rows(void)
{
    for (int i = 0; i < NUM_TOPICS; i++)
        printf("topic\t%s\t%s\n", topics[i].name, topics[i].summary);
    for (int i = 0; model_preset_name(i); i++)
        print_word("MODEL", model_preset_name(i));
    print_words("CLUSTER", cluster_preset_names());
    for (int i = 0; machine_at(i); i++)
        print_word("CLUSTER", machine_at(i)->name);
    print_words("DEVICE", shipped_kind_names);
    /* wall: cli/figures */
    for (int i = 0; i < num_figure_kinds; i++)
        printf("word\tFIGURE\t%s\t%s (%s)\n", figure_kinds[i].name, figure_kinds[i].summary,
               figure_kinds[i].takes);
    /* wall end */
    keys_each(KEYS_JOB, visit_key, NULL);
    print_fields();
}
