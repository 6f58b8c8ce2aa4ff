/* Profiles in memory: the tables of columns, adding rows, keys, and checks. The rows of all tables
 * are handled by their columns, so a new column needs only a line in its table. Read struct member
 * in profile.h first. */
#include "profiles/store/profile.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partition/base/units.h"

/* --- the columns ------------------------------------------------------------------------------ */

#define KEY(row, name, type, member, ...)                                                          \
    COLUMN(row, name, type, member, .flags = MEMBER_KEY, __VA_ARGS__)
#define TEXT(row, name) KEY(row, #name, TEXT, name)
#define WHOLE(row, name) KEY(row, #name, INT, name)
#define SHAPE(name) KEY(layer_row, #name, INT, key.name)
#define SPREAD(row)                                                                                \
    COLUMN(row, "median_ns", REAL, ns.median_ns), COLUMN(row, "p10_ns", REAL, ns.p10_ns),          \
        COLUMN(row, "p90_ns", REAL, ns.p90_ns),                                                    \
        COLUMN(row, "count", INT, ns.count, .flags = MEMBER_ABOVE)

#define INFO(name, type, head_) COLUMN(profile_info, #name, type, name, .head = (head_))
const struct row_table profile_info_table = {
    .name = "profile",
    .row_size = sizeof(struct profile_info),
    COLUMNS(KEY(profile_info, "name", TEXT, name, .head = "profile"), INFO(source, TEXT, "source"),
            INFO(note, TEXT, "note"), INFO(device_kind, TEXT, "device"),
            INFO(device_name, TEXT, "name"), INFO(mem_bytes, INT, "memory"),
            INFO(cores, INT, "cores"), INFO(clock_mhz, INT, "clock"), INFO(driver, TEXT, "driver"),
            INFO(libraries, TEXT, "libraries"), INFO(host, TEXT, "host"),
            INFO(measured_at, TEXT, "measured at"), INFO(version, TEXT, "version"),
            COLUMN(profile_info, "load", REAL, load, .head = "load", .format = "%.2f"),
            INFO(bf16_kernel, TEXT, "bf16 kernel"), INFO(fp32_kernel, TEXT, "fp32 kernel"), )};

static const struct member layer_columns[] = {
    TEXT(layer_row, backend),
    TEXT(layer_row, dtype),
    WHOLE(layer_row, threads),
    WHOLE(layer_row, ranks),
    KEY(layer_row, "item", TEXT, key.item),
    KEY(layer_row, "variant", TEXT, key.variant),
    SHAPE(hidden),
    SHAPE(heads),
    SHAPE(mlp),
    SHAPE(seq),
    SHAPE(patch),
    SHAPE(image),
    SHAPE(vocab),
    SHAPE(classes),
    TEXT(layer_row, pass),
    WHOLE(layer_row, samples),
    SPREAD(layer_row),
};
static const struct member link_columns[] = {
    TEXT(link_row, backend), TEXT(link_row, place), WHOLE(link_row, ranks),
    WHOLE(link_row, bytes),  SPREAD(link_row),
};
static const struct member collective_columns[] = {
    TEXT(collective_row, op),     TEXT(collective_row, backend), TEXT(collective_row, place),
    WHOLE(collective_row, ranks), WHOLE(collective_row, bytes),  SPREAD(collective_row),
};
static const struct member host_columns[] = {
    TEXT(host_row, what),   TEXT(host_row, backend),  WHOLE(host_row, threads),
    WHOLE(host_row, ranks), WHOLE(host_row, samples), WHOLE(host_row, bytes),
    SPREAD(host_row),
};
static const struct member memory_columns[] = {
    TEXT(memory_row, what),
    COLUMN(memory_row, "predicted_bytes", INT, predicted_bytes),
    COLUMN(memory_row, "measured_bytes", INT, measured_bytes),
};

#define TABLE(name_, array, row, rows, count)                                                      \
    {                                                                                              \
        .name = (name_), .owner = "profile_id", .columns = (array),                                \
        .num_columns = sizeof(array) / sizeof *(array), .row_size = sizeof(struct row),            \
        .rows_offset = offsetof(struct profile, rows),                                             \
        .count_offset = offsetof(struct profile, count)                                            \
    }
const struct row_table profile_tables[PROFILE_TABLES] = {
    TABLE("layer_cost", layer_columns, layer_row, layers, num_layers),
    TABLE("link_cost", link_columns, link_row, links, num_links),
    TABLE("collective_cost", collective_columns, collective_row, collectives, num_collectives),
    TABLE("host_cost", host_columns, host_row, hosts, num_hosts),
    TABLE("memory_use", memory_columns, memory_row, memories, num_memories),
};

/* --- rows ------------------------------------------------------------------------------------- */

static void **rows_of(struct profile *profile, const struct row_table *table)
{
    return (void **)((char *)profile + table->rows_offset);
}

int profile_num_rows(const struct profile *profile, const struct row_table *table)
{
    return *(const int *)((const char *)profile + table->count_offset);
}

const void *profile_row(const struct profile *profile, const struct row_table *table, int i)
{
    const char *rows = *(const char *const *)((const char *)profile + table->rows_offset);
    return rows + (size_t)i * table->row_size;
}

enum status profile_add_row(struct profile *profile, const struct row_table *table, const void *row,
                            struct err *err)
{
    void **rows = rows_of(profile, table);
    int *count = (int *)((char *)profile + table->count_offset);
    if ((*count & (*count - 1)) == 0) { /* the array is full at 0, 1, 2, 4, 8, ... rows */
        if (*count > INT32_MAX / 2)
            return err_nomem(err);
        void *more = realloc(*rows, (size_t)(*count ? *count * 2 : 1) * table->row_size);
        if (!more)
            return err_nomem(err);
        *rows = more;
    }
    memcpy((char *)*rows + (size_t)*count * table->row_size, row, table->row_size);
    ++*count;
    return OK;
}

enum status profile_add_layer(struct profile *profile, const struct layer_row *row, struct err *err)
{
    return profile_add_row(profile, &profile_tables[0], row, err);
}

enum status profile_add_link(struct profile *profile, const struct link_row *row, struct err *err)
{
    return profile_add_row(profile, &profile_tables[1], row, err);
}

enum status profile_add_collective(struct profile *profile, const struct collective_row *row,
                                   struct err *err)
{
    return profile_add_row(profile, &profile_tables[2], row, err);
}

enum status profile_add_host(struct profile *profile, const struct host_row *row, struct err *err)
{
    return profile_add_row(profile, &profile_tables[3], row, err);
}

enum status profile_add_memory(struct profile *profile, const struct memory_row *row,
                               struct err *err)
{
    return profile_add_row(profile, &profile_tables[4], row, err);
}

void profile_clear(struct profile *profile)
{
    for (int t = 0; t < PROFILE_TABLES; t++)
        free(*rows_of(profile, &profile_tables[t]));
    *profile = (struct profile){0};
}

/* --- keys ------------------------------------------------------------------------------------- */

void layer_key_of_name(const char *name, struct layer_key *key)
{
    memset(key, 0, sizeof *key);
    snprintf(key->item, sizeof key->item, "%s", name);
    strcpy(key->variant, "own");
}

void layer_key_of(const struct model *model, int item, struct layer_key *key)
{
    static const char *const tasks[] = {"classify", "qa", "mlm", "causal"};
    const struct item *it = &model->items[item];
    const struct family_traits *family = model_family_traits(model->family);
    const char *variant = "";
    memset(key, 0, sizeof *key);
    if (it->kind == ITEM_OPAQUE) {
        if (model->family == FAMILY_EXPLICIT)
            layer_key_of_name(it->name, key);
        return;
    }
    strcpy(key->item, item_kind_name(it->kind)); /* not snprintf(), because this is a hot path */
    key->hidden = model->hidden;
    switch (it->kind) {
    case ITEM_EMBEDDING:
        key->seq = model->seq;
        variant = family->embedding;
        if (family->images) {
            key->patch = model->patch;
            key->image = model->image;
        } else {
            key->vocab = model->vocab;
        }
        break;
    case ITEM_ATTENTION:
        variant = family->attention;
        /* A long skip enters its attention item through an extra linear (U-ViT). */
        for (int s = 0; s < model->num_skips; s++)
            if (model->skips[s].to == item)
                variant = "full+skip";
        key->heads = model->heads;
        key->seq = model->seq;
        break;
    case ITEM_MLP:
        variant = model_item_has_experts(model, item) ? "experts" : family->mlp;
        key->mlp = model->mlp;
        key->seq = model->seq;
        break;
    case ITEM_NORM:
        variant = family->norm;
        key->seq = model->seq;
        break;
    case ITEM_HEAD:
        variant = tasks[model->task];
        if (model->task == TASK_CLASSIFY)
            key->classes = model->classes;
        else
            key->seq = model->seq;
        if (model->task == TASK_MLM || model->task == TASK_CAUSAL_LM)
            key->vocab = model->vocab;
        break;
    case ITEM_POOLER:
    case ITEM_STATE:
    case ITEM_OPAQUE:
    case ITEM_KIND_COUNT:
        break;
    }
    strcpy(key->variant, variant);
}

bool profile_bits_independent_of_row_count(const struct profile_info *info, enum dtype dtype)
{
    const char *kernel = dtype == DTYPE_BF16 ? info->bf16_kernel : info->fp32_kernel;
    return *kernel && strcmp(kernel, "blas") != 0 && strcmp(kernel, "widened") != 0;
}

void layer_key_dropping(struct layer_key *key)
{
    strcat(key->variant, "+drop");
}

void stash_row_name(const struct layer_key *key, enum dtype dtype, char name[48])
{
    char text[256];
    snprintf(text, sizeof text, "%s %s/%s/%lld/%lld/%lld/%lld/%lld/%lld/%lld/%lld",
             dtype == DTYPE_BF16 ? "bf16" : "stash", key->item, key->variant,
             (long long)key->hidden, (long long)key->heads, (long long)key->mlp,
             (long long)key->seq, (long long)key->patch, (long long)key->image,
             (long long)key->vocab, (long long)key->classes);
    snprintf(name, 48, "%.47s", text);
}

void near_row_name(enum pass pass, enum dtype dtype, char name[24])
{
    snprintf(name, 24, "near_%s%s", pass_name(pass), dtype == DTYPE_BF16 ? "_bf16" : "");
}

const char *pass_name(enum pass pass)
{
    static const char *const names[] = {"fwd",      "bwd_input",  "bwd_weight",
                                        "bwd_rest", "fwd_nograd", "update"};
    return names[pass];
}

const char *dtype_text(int dtype)
{
    return dtype_names[dtype];
}

static double quantile(const double *sorted, int n, double q)
{
    double at = q * (n - 1);
    int low = (int)at;
    return low + 1 < n ? sorted[low] + (at - low) * (sorted[low + 1] - sorted[low]) : sorted[low];
}

struct spread spread_of(double *times_ns, int n)
{
    qsort(times_ns, (size_t)n, sizeof *times_ns, compare_doubles);
    return (struct spread){.median_ns = quantile(times_ns, n, 0.5),
                           .p10_ns = quantile(times_ns, n, 0.1),
                           .p90_ns = quantile(times_ns, n, 0.9),
                           .count = n};
}

struct profile_noise profile_noise(const struct profile *profile)
{
    struct profile_noise noise = {0};
    double range = 0, sum = 0;
    for (int i = 0; i < profile->num_layers; i++) {
        const struct spread *ns = &profile->layers[i].ns;
        if (ns->median_ns <= 0)
            continue;
        const double spread = (ns->p90_ns - ns->p10_ns) / ns->median_ns;
        noise.worst = spread > noise.worst ? spread : noise.worst;
        noise.num_noisy += spread > PROFILE_NOISY;
        noise.num_rows++;
        range += ns->p90_ns - ns->p10_ns;
        sum += ns->median_ns;
    }
    noise.mean = noise.num_rows ? range / sum : 0;
    return noise;
}

/* --- checks ----------------------------------------------------------------------------------- */

int profile_compare_rows(const struct row_table *table, const void *a, const void *b)
{
    for (int c = 0; c < table->num_columns; c++) {
        const struct member *column = &table->columns[c];
        int order;
        if (!(column->flags & MEMBER_KEY))
            continue;
        if (column->type == MEMBER_TEXT) {
            order = strcmp((const char *)a + column->offset, (const char *)b + column->offset);
        } else {
            int64_t x = member_int(column, a), y = member_int(column, b);
            order = (x > y) - (x < y);
        }
        if (order)
            return order;
    }
    return 0;
}

static int compare_with(const void *a, const void *b, void *table)
{
    return profile_compare_rows(table, a, b);
}

/* Write the key of a row for a reader: "mlp erf 192 768 65 fwd 8". */
static void row_text(const struct row_table *table, const void *row, char *buf, size_t size)
{
    size_t used = 0;
    *buf = '\0';
    for (int c = 0; c < table->num_columns && used < size; c++) {
        const struct member *column = &table->columns[c];
        if (!(column->flags & MEMBER_KEY))
            continue;
        if (column->type == MEMBER_TEXT && *((const char *)row + column->offset))
            used += (size_t)snprintf(buf + used, size - used, "%s%s", used ? " " : "",
                                     (const char *)row + column->offset);
        else if (column->type == MEMBER_INT && member_int(column, row))
            used += (size_t)snprintf(buf + used, size - used, "%s%s=%lld", used ? " " : "",
                                     column->name, (long long)member_int(column, row));
    }
}

static enum status check_row(const struct row_table *table, const void *row, const char *where,
                             struct err *err)
{
    char key[200];
    const struct spread *spread = NULL;
    for (int c = 0; c < table->num_columns; c++) {
        const struct member *column = &table->columns[c];
        const void *at = (const char *)row + column->offset;
        int64_t least = column->flags & MEMBER_ABOVE ? 1 : 0;
        double real = column->type == MEMBER_REAL ? *(const double *)at : 0;
        if (column->type == MEMBER_INT && member_int(column, row) < least) {
            row_text(table, row, key, sizeof key);
            return err_set(err, ERR_INPUT, "%s: %s (%s): %s must be at least %lld, got %lld", where,
                           table->name, key, column->name, (long long)least,
                           (long long)member_int(column, row));
        }
        /* Products of threads and ranks must fit int64. */
        const bool crowd =
            strcmp(column->name, "threads") == 0 || strcmp(column->name, "ranks") == 0;
        if (crowd && member_int(column, row) > INT32_MAX) {
            row_text(table, row, key, sizeof key);
            return err_set(err, ERR_INPUT, "%s: %s (%s): %s must be at most %d, got %lld", where,
                           table->name, key, column->name, INT32_MAX,
                           (long long)member_int(column, row));
        }
        /* No measured time comes near a year, and with this limit sums fit int64. */
        if (column->type == MEMBER_REAL && !(real >= 0 && real < 3.2e16)) {
            row_text(table, row, key, sizeof key);
            return err_set(err, ERR_INPUT,
                           "%s: %s (%s): %s must be a number of ns from 0 to a year, got %g", where,
                           table->name, key, column->name, real);
        }
        if (strcmp(column->name, "median_ns") == 0)
            spread = at;
        if (strcmp(column->name, "pass") == 0) {
            bool known = false;
            for (int p = 0; p < PASS_COUNT; p++)
                known = known || strcmp(pass_name(p), at) == 0;
            if (!known)
                return err_set(err, ERR_INPUT,
                               "%s: %s: pass must be "
                               "fwd|bwd_input|bwd_weight|bwd_rest|fwd_nograd|update, got '%s'",
                               where, table->name, (const char *)at);
        }
    }
    if (spread && (spread->p10_ns > spread->median_ns || spread->p90_ns < spread->median_ns)) {
        row_text(table, row, key, sizeof key);
        return err_set(err, ERR_INPUT,
                       "%s: %s (%s): p10_ns, median_ns, p90_ns must ascend, got %g, %g, %g", where,
                       table->name, key, spread->p10_ns, spread->median_ns, spread->p90_ns);
    }
    return OK;
}

enum status profile_check(struct profile *profile, const char *where, struct err *err)
{
    if (!*profile->info.name || !*profile->info.device_kind)
        return err_set(err, ERR_INPUT, "%s: a profile must have a name and a device_kind", where);
    for (const char *at = profile->info.name; *at; at++) {
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            return err_set(err, ERR_INPUT,
                           "%s: name must not hold control characters, got byte %d at %d", where,
                           (unsigned char)*at, (int)(at - profile->info.name));
    }
    if (profile->info.mem_bytes < 0 || profile->info.cores < 0 || profile->info.clock_mhz < 0 ||
        !(profile->info.load >= 0) || isinf(profile->info.load))
        return err_set(err, ERR_INPUT,
                       "%s: mem_bytes, cores, clock_mhz and load must be numbers of at least 0",
                       where);
    if (*profile->info.source == '\0')
        strcpy(profile->info.source, "measured");
    if (strcmp(profile->info.source, "measured") != 0 &&
        strcmp(profile->info.source, "published") != 0)
        return err_set(err, ERR_INPUT, "%s: source must be measured|published, got '%s'", where,
                       profile->info.source);
    for (int t = 0; t < PROFILE_TABLES; t++) {
        const struct row_table *table = &profile_tables[t];
        int n = profile_num_rows(profile, table);
        if (n > 0)
            qsort_r(*rows_of(profile, table), (size_t)n, table->row_size, compare_with,
                    (void *)(uintptr_t)table);
        for (int i = 0; i < n; i++) {
            const void *row = profile_row(profile, table, i);
            enum status rc = check_row(table, row, where, err);
            if (rc != OK)
                return rc;
            if (i > 0 &&
                profile_compare_rows(table, profile_row(profile, table, i - 1), row) == 0) {
                char key[200];
                row_text(table, row, key, sizeof key);
                return err_set(err, ERR_INPUT, "%s: %s (%s) is there twice", where, table->name,
                               key);
            }
        }
    }
    return OK;
}
