/* Device kinds in JSON. read_kind() takes the like's figures, then those of the object. Read struct
 * kind_figure in partition/cluster/device_kinds.h first. */
#include "profiles/job/kind_json.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "partition/base/arrays.h"
#include "partition/base/units.h"

/* Parts of struct kind whose figures may share one source. */
static const struct {
    const char *name;
    size_t offset, size;
} groups[] = {
    {"figures",    offsetof(struct kind, roof),        sizeof(struct roofline)         },
    {"network",    offsetof(struct kind, node),        sizeof(struct machine)          },
    {"kernels",    offsetof(struct kind, curve),       sizeof(struct device_curve)     },
    {"collective", offsetof(struct kind, collectives), sizeof(struct collective_source)}
};
enum { NUM_GROUPS = sizeof groups / sizeof *groups };
enum { GROUP_FIGURES, GROUP_NETWORK, GROUP_KERNELS, GROUP_COLLECTIVE };

static int group_of(int figure)
{
    const size_t at = kind_figures[figure].offset;
    int g = 0;
    while (!(at >= groups[g].offset && at < groups[g].offset + groups[g].size))
        g++;
    return g;
}

static bool has_group(const struct kind *kind, int group)
{
    for (int f = 0; f < NUM_KIND_FIGURES; f++)
        if (kind->sources[f] && group_of(f) == group)
            return true;
    return false;
}

/* --- keys ------------------------------------------------------------------------------------- */

static const struct member texts[] = {
    MEMBER_OWN("name", "in answers; in a file, the file's name counts"),
    MEMBER_OWN("like", "the kind that the figures not given are of"),
    MEMBER_OWN("kernels", "the kind whose kernels were measured"),
    MEMBER_OWN("rings", "the kind whose rings of 2 and 4 devices it has"),
    MEMBER_OWN("source", "where the figures are from [the file]"),
    MEMBER_OWN("sources", "an object: texts by figure, or by figures, "
                          "network, kernels, collective"),
    /* `elapse devices NAME --json` prints these, too. */
    MEMBER_OWN("kind", ""),
    MEMBER_OWN("schema", ""),
    MEMBER_OWN("version", ""),
    MEMBER_OWN("command", ""),
};
enum { NUM_TEXTS = sizeof texts / sizeof *texts, MAX_KEYS = NUM_TEXTS + 2 * NUM_KIND_FIGURES };

/* The keys of an object, which fields_read() checks. Returns their number. */
static int list_keys(struct member keys[MAX_KEYS])
{
    int n = 0;
    for (int i = 0; i < NUM_TEXTS; i++)
        keys[n++] = texts[i];
    for (int f = 0; f < NUM_KIND_FIGURES; f++) {
        keys[n++] = (struct member){.name = kind_figures[f].key, .type = MEMBER_OTHER};
        if (kind_figures[f].short_key)
            keys[n++] = (struct member){.name = kind_figures[f].short_key, .type = MEMBER_OTHER};
    }
    return n;
}

/* A figure as people write it: a text with its unit. */
static struct member text_row(const struct kind_figure *figure)
{
    return (struct member){.name = figure->key,
                           .type = figure->unit == FIGURE_US ? MEMBER_NS
                                                             : (enum member_type)figure->unit,
                           .size = sizeof(int64_t),
                           .min = -INFINITY};
}

void kind_keys_each(key_visitor *visit, void *ctx)
{
    char takes[32];
    for (int i = 0; i < NUM_TEXTS; i++)
        if (*texts[i].help)
            visit(&(struct key_help){texts[i].name, i < NUM_TEXTS - 5 ? "text" : "", texts[i].help},
                  ctx);
    for (int f = 0; f < NUM_KIND_FIGURES; f++) {
        const struct kind_figure *figure = &kind_figures[f];
        const struct member text = text_row(figure);
        visit(&(struct key_help){figure->short_key ? figure->short_key : figure->key,
                                 member_takes(&text, takes, sizeof takes), figure->words},
              ctx);
    }
}

/* --- reading ---------------------------------------------------------------------------------- */

/* The kinds that are being read, the innermost first. */
struct reading {
    const char *name, *folder; /* of files that this one may be like; NULL: the user's */
    const struct reading *outer;
};

static enum status read_file(const char *path, const char *name, const struct reading *outer,
                             struct kind **kind, struct err *err);

/* A copy that lives as long as the kind; NULL without memory. */
static const char *keep_text(struct kind *kind, const char *text)
{
    char *copy = array_extend(&kind->strings, kind->num_strings, sizeof *kind->strings)
                     ? strdup(text)
                     : NULL;
    if (copy)
        kind->strings[kind->num_strings++] = copy;
    return copy;
}

/* Read a text of at most `most` characters; *text is untouched where the key is absent. */
static enum status read_text(struct kind *kind, const struct json *object, const char *key,
                             size_t most, const struct fields_source *source, const char **text,
                             struct err *err)
{
    const struct json *value = json_get(object, key);
    const char *got = json_string(value);
    char limit[64];
    if (!value)
        return OK;
    snprintf(limit, sizeof limit, "a text of 1..%zu characters, no control characters", most);
    bool plain = got && *got && strlen(got) <= most;
    for (const char *c = got; plain && *c; c++)
        plain = (unsigned char)*c >= ' ' && *c != 0x7f;
    if (!plain)
        return fields_refuse(source, key, limit, value, err);
    *text = keep_text(kind, got);
    return *text ? OK : err_nomem(err);
}

static enum status read_figure(struct kind *kind, int f, const struct json *value, const char *key,
                               const struct fields_source *source, struct err *err)
{
    static const char *const what[] = {[FIGURE_FLOPS] = "a speed like \"165TFLOPS\"",
                                       [FIGURE_RATE] = "a bandwidth like \"1008GB/s\"",
                                       [FIGURE_BYTES] = "a size like \"24GiB\"",
                                       [FIGURE_NS] = "a time like \"5us\" or whole ns",
                                       [FIGURE_US] = "a time like \"5us\" or in ns",
                                       [FIGURE_NUMBER] = "a number"};
    const struct kind_figure *figure = &kind_figures[f];
    const struct member row = text_row(figure);
    const bool whole = row.type == MEMBER_BYTES || row.type == MEMBER_NS;
    const char *text = json_string(value);
    int64_t place = 0;
    char limit[96];
    const enum status rc = text ? member_parse(&row, key, text, &place, NULL) : OK;
    const double number =
        text ? (whole ? (double)member_int(&row, &place) : member_real(&row, &place))
        : figure->unit == FIGURE_BYTES && json_type(value) == JSON_NULL ? 9.3e18 /* a host's */
                                                                        : json_number(value);
    snprintf(limit, sizeof limit, "%s %s", what[figure->unit],
             figure->above_zero ? "above 0" : "at least 0");
    if (rc != OK || !isfinite(number) || number > 1e19 ||
        !(figure->above_zero ? number > 0 : number >= 0))
        return fields_refuse(source, key, limit, value, err);
    kind_figure_set(kind, f, figure->unit == FIGURE_US ? number / 1e3 : number);
    return OK;
}

/* The text of `sources` for a figure: its own, or that of the group it is in. */
static const char *source_text(const struct json *sources, int figure)
{
    const struct kind_figure *f = &kind_figures[figure];
    const char *group = groups[group_of(figure)].name,
               *got = json_string(json_path(sources, f->key));
    char first[32];
    snprintf(first, sizeof first, "%.*s", (int)strcspn(f->key, "."), f->key);
    if (!got && f->short_key)
        got = json_string(json_get(sources, f->short_key));
    if (!got)
        got = json_string(json_get(sources, first));
    return got ? got : json_string(json_get(sources, group));
}

static enum status read_figures(struct kind *kind, const struct json *object,
                                const struct fields_source *source, struct err *err)
{
    const struct json *sources = json_get(object, "sources");
    const char *given = json_get(object, "source") ? kind->source : source->file;
    given = keep_text(kind, given);
    if (!given)
        return err_nomem(err);
    for (int f = 0; f < NUM_KIND_FIGURES; f++) {
        const struct kind_figure *figure = &kind_figures[f];
        const char *key = figure->key, *text = source_text(sources, f);
        const struct json *value = json_path(object, key);
        const struct json *other = figure->short_key ? json_get(object, figure->short_key) : NULL;
        if (value && other)
            return err_set(err, ERR_INPUT, "%s: %s%s%s and %s are one figure, so give one of them",
                           source->file, source->prefix, *source->prefix ? "." : "", key,
                           figure->short_key);
        if (other) {
            key = figure->short_key;
            value = other;
        }
        const enum status rc = value ? read_figure(kind, f, value, key, source, err) : OK;
        if (rc != OK)
            return rc;
        if (!value && !(text && kind->sources[f]))
            continue;
        kind->sources[f] = text ? keep_text(kind, text) : given;
        if (!kind->sources[f])
            return err_nomem(err);
    }
    return OK;
}

/* A network that gives its uplink alone has round figures for the rest, as a plain grid. */
static void complete_network(struct kind *kind)
{
    const struct {
        size_t offset;
        double value;
    } usual[] = {
        {offsetof(struct kind, node.copy_bytes_per_s),  kind->roof.link_bytes_per_s},
        {offsetof(struct kind, node.link_latency_ns),   5000                       },
        {offsetof(struct kind, node.uplink_latency_ns), 10000                      },
        {offsetof(struct kind, node.nic_bytes_per_s),   0                          },
        {offsetof(struct kind, node.message_share),     0                          },
        {offsetof(struct kind, node.context_bytes),     0                          },
    };
    for (int f = 0; f < NUM_KIND_FIGURES; f++)
        for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
            if (kind_figures[f].offset == usual[i].offset && !kind->sources[f]) {
                kind_figure_set(kind, f, usual[i].value);
                kind->sources[f] = "not given: a round figure";
            }
}

/* A collective that is not given has the figures of the all-reduce. */
static void complete_collectives(struct kind *kind)
{
    const struct collective_source *own = &kind->collectives;
    for (int f = 0; f < NUM_KIND_FIGURES; f++) {
        const size_t at = kind_figures[f].offset;
        const bool share = at - offsetof(struct kind, collectives.link) < sizeof own->link;
        if (kind->sources[f] ||
            !(share || at - offsetof(struct kind, collectives.fixed_ns) < sizeof own->fixed_ns))
            continue;
        const double value =
            share ? own->link[COLLECTIVE_ALLREDUCE] : (double)own->fixed_ns[COLLECTIVE_ALLREDUCE];
        kind_figure_set(kind, f, value);
        if (own->link[COLLECTIVE_ALLREDUCE] > 0)
            kind->sources[f] = "not given: as all-reduce";
    }
}

/* Every figure that a kind needs is there. */
static enum status check_whole(struct kind *kind, const struct fields_source *source,
                               struct err *err)
{
    static const char *const needed[] = {"mem_bytes", "mem_bytes_per_s", "link_bytes_per_s"};
    bool peak = false;
    for (int f = 0; f < NUM_KIND_FIGURES; f++) {
        const struct kind_figure *figure = &kind_figures[f];
        bool must = false;
        for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
            must |= strcmp(needed[i], figure->key) == 0;
        peak |= figure->unit == FIGURE_FLOPS && kind_figure_value(kind, f) > 0;
        if (must && !kind->sources[f]) {
            err_set(err, ERR_INPUT, "%s: device kind '%s' must have %s (%s)", source->file,
                    kind->name, figure->short_key, figure->words);
            err_hint(err, "or \"like\" names a kind that has it");
            return ERR_INPUT;
        }
    }
    if (!peak)
        return err_set(err, ERR_INPUT, "%s: device kind '%s' must have a peak, such as peak_bf16",
                       source->file, kind->name);
    if (kind->node.uplink_bytes_per_s > 0)
        complete_network(kind);
    complete_collectives(kind);
    for (int f = 0; f < NUM_KIND_FIGURES; f++)
        if (!kind->sources[f] && group_of(f) != GROUP_FIGURES && has_group(kind, group_of(f))) {
            err_set(err, ERR_INPUT, "%s: device kind '%s' has figures of its %s, but no %s",
                    source->file, kind->name, groups[group_of(f)].name, kind_figures[f].key);
            err_hint(err, "or \"like\" names a kind that has them");
            return ERR_INPUT;
        }
    return OK;
}

enum { PATH_SIZE = 4096 };

/* The user's folder of kinds. False: there is no place for one. */
static bool own_folder(char path[PATH_SIZE])
{
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    const bool set = config && *config;
    if (!set && !(home && *home))
        return false;
    return snprintf(path, PATH_SIZE, "%s%s/elapse/devices", set ? config : home,
                    set ? "" : "/.config") < PATH_SIZE;
}

/* Whether a folder has NAME.json, whose path is then written. */
static bool has_file(const char *folder, const char *name, char path[PATH_SIZE])
{
    return *name && *name != '.' && !strchr(name, '/') &&
           snprintf(path, PATH_SIZE, "%s/%s.json", folder, name) < PATH_SIZE &&
           access(path, F_OK) == 0;
}

/* Whether the user has a file of that name. */
static bool has_own(const char *name, char path[PATH_SIZE])
{
    char folder[PATH_SIZE];
    return own_folder(folder) && has_file(folder, name, path);
}

/* Find the kind of that name: a shipped one, or a file of the folder or of the user. *own is fresh
 * where it is a file. */
static enum status find_like(const char *name, const struct reading *reading,
                             const struct kind **found, struct kind **own, struct err *err)
{
    for (const struct reading *r = reading; r; r = r->outer)
        if (strcmp(r->name, name) == 0)
            return err_set(err, ERR_INPUT, "device kind '%s' is like itself%s%s", name,
                           r == reading ? "" : ", by way of ", r == reading ? "" : reading->name);
    char path[PATH_SIZE];
    *found = kind_find(name);
    if (*found ||
        !((reading->folder && has_file(reading->folder, name, path)) || has_own(name, path)))
        return OK;
    const enum status rc = read_file(path, name, reading, own, err);
    *found = *own;
    return rc;
}

enum status kind_unknown(const char *what, const char *name, struct err *err)
{
    int n = 0;
    char list[200];
    while (shipped_kind_names[n])
        n++;
    const char *near = nearest_name(name, shipped_kind_names, n);
    const enum status rc = err_set(err, ERR_INPUT, "%s '%.64s'%s%s%s", what, name,
                                   near ? ", nearest is '" : "", near ? near : "", near ? "'" : "");
    err_hint(err, "devices: %s", join_names(shipped_kind_names, n, list, sizeof list));
    return rc;
}

static enum status take_like(struct kind *kind, const char *like, const struct reading *reading,
                             const struct fields_source *source, struct err *err)
{
    const struct kind *found = NULL;
    struct kind *own = NULL;
    char what[256];
    const enum status rc = find_like(like, reading, &found, &own, err);
    if (rc != OK)
        return rc;
    if (!found) {
        snprintf(what, sizeof what, "%.200s: like names an unknown device kind", source->file);
        return kind_unknown(what, like, err);
    }
    const struct kind mine = *kind;
    *kind = *found;
    kind->base = own;
    kind->references = 1;
    kind->strings = mine.strings;
    kind->num_strings = mine.num_strings;
    kind->like = found->name;
    kind->name = mine.name;
    return OK;
}

/* name NULL: none is given. A shipped kind's name is refused. */
static enum status name_kind(struct kind *got, const char *name, const char *like,
                             const struct fields_source *source, struct err *err)
{
    char plain[40] = "own";
    if (like)
        snprintf(plain, sizeof plain, "like-%.26s", like);
    if (!name)
        name = plain;
    if (kind_find(name)) {
        err_set(err, ERR_INPUT, "%s: device kind '%s' is a shipped one", source->file, name);
        err_hint(err, "give yours a name of its own, and \"like\": \"%s\"", name);
        return ERR_INPUT;
    }
    got->name = keep_text(got, name);
    return got->name ? OK : err_nomem(err);
}

/* Read a kind. Its name is that of `reading`, else the one that the object gives. */
static enum status read_kind(const struct json *object, const struct fields_source *source,
                             struct reading *reading, struct kind **kind, struct err *err)
{
    struct member keys[MAX_KEYS];
    const char *like = NULL, *name = reading->name, *kernels = NULL, *from = NULL, *rings = NULL;
    const int n = list_keys(keys);
    struct kind *got = calloc(1, sizeof *got);
    if (!got)
        return err_nomem(err);
    got->references = 1;
    enum status rc = fields_read(keys, n, object, source, NULL, err);
    THEN(read_text(got, object, "like", 31, source, &like, err));
    if (rc == OK && !name)
        rc = read_text(got, object, "name", 31, source, &name, err);
    THEN(read_text(got, object, "kernels", 31, source, &kernels, err));
    THEN(read_text(got, object, "source", 200, source, &from, err));
    const struct json *none = json_get(object, "rings");
    if (rc == OK && json_type(none) != JSON_NULL)
        rc = read_text(got, object, "rings", 31, source, &rings, err);
    THEN(name_kind(got, name, like, source, err));
    if (rc == OK)
        reading->name = got->name;
    if (rc == OK && like)
        rc = take_like(got, like, reading, source, err);
    if (rc == OK) {
        got->source = from ? from : keep_text(got, source->file);
        rc = got->source ? read_figures(got, object, source, err) : err_nomem(err);
    }
    if (rc == OK && none)
        got->collectives.rings_of = rings;
    if (rc == OK && kernels)
        got->curve.fitted_on = kernels;
    if (rc == OK && got->curve.sms > 0 && !got->curve.fitted_on)
        got->curve.fitted_on = got->name;
    THEN(check_whole(got, source, err));
    if (rc != OK) {
        kind_release(got);
        return rc;
    }
    kind_finish(got);
    *kind = got;
    return OK;
}

static enum status read_file(const char *path, const char *name, const struct reading *outer,
                             struct kind **kind, struct err *err)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, (size_t)(slash - path)) : strdup(".");
    const struct fields_source source = {.file = path, .prefix = ""};
    struct reading reading = {name, folder, outer};
    struct json *root = NULL;
    enum status rc = folder ? json_read_file(path, &root, err) : err_nomem(err);
    THEN(read_kind(root, &source, &reading, kind, err));
    json_free(root);
    free(folder);
    return rc;
}

enum status kind_read_file(const char *path, struct kind **kind, struct err *err)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    char name[32];
    if (!path_is_json(base) || strlen(base) - 5 >= sizeof name)
        return err_set(err, ERR_INPUT,
                       "%s: the file of a device kind must be NAME.json, with a name of 1..31 "
                       "characters",
                       path);
    snprintf(name, sizeof name, "%.*s", (int)strlen(base) - 5, base);
    return read_file(path, name, NULL, kind, err);
}

enum status kind_from_json(const struct json *object, const struct fields_source *source,
                           struct kind **kind, struct err *err)
{
    struct reading reading = {NULL, NULL, NULL};
    return read_kind(object, source, &reading, kind, err);
}

enum status kind_find_own(const char *name, struct kind **kind, struct err *err)
{
    char path[PATH_SIZE];
    *kind = NULL;
    return has_own(name, path) ? kind_read_file(path, kind, err) : OK;
}

enum status kind_own_names(enum status (*visit)(const char *name, void *ctx, struct err *err),
                           void *ctx, struct err *err)
{
    char folder[PATH_SIZE], **names = NULL;
    DIR *dir = own_folder(folder) ? opendir(folder) : NULL;
    int n = 0;
    enum status rc = OK;
    for (struct dirent *entry; rc == OK && dir && (entry = readdir(dir));) {
        const size_t length = strlen(entry->d_name);
        if (*entry->d_name == '.' || !path_is_json(entry->d_name))
            continue;
        if (!array_extend(&names, n, sizeof *names) ||
            !(names[n] = strndup(entry->d_name, length - 5)))
            rc = err_nomem(err);
        else
            n++;
    }
    if (n > 1)
        qsort(names, (size_t)n, sizeof *names, compare_texts);
    for (int i = 0; i < n; i++) {
        THEN(visit(names[i], ctx, err));
        free(names[i]);
    }
    free(names);
    if (dir)
        closedir(dir);
    return rc;
}

/* --- writing ---------------------------------------------------------------------------------- */

/* The object that a key's last part goes into: root, or the group of its first part. */
static struct json *parent_of(struct json *root, const char *key, const char **last)
{
    const char *dot = strchr(key, '.');
    char first[32];
    *last = dot ? dot + 1 : key;
    if (!dot)
        return root;
    snprintf(first, sizeof first, "%.*s", (int)(dot - key), key);
    struct json *group = json_get(root, first);
    return group ? group : json_add_object(root, first);
}

void kind_to_json(const struct kind *kind, struct json *to)
{
    struct json *sources = json_add_object(to, "sources");
    json_add_string(to, "kind", kind->name);
    if (kind->like)
        json_add_string(to, "like", kind->like);
    json_add_string(to, "source", kind->source);
    for (int f = 0; f < NUM_KIND_FIGURES; f++) {
        const struct kind_figure *figure = &kind_figures[f];
        const double value = kind_figure_value(kind, f);
        const char *last;
        if (!kind->sources[f])
            continue;
        struct json *parent = parent_of(to, figure->key, &last);
        if (figure->unit == FIGURE_BYTES && value > 9e18)
            json_add_null(parent, last);
        else
            json_add_double(parent, last,
                            figure->unit == FIGURE_US ? round(value * 1e6) / 1e3 : value);
        parent = parent_of(sources, figure->key, &last);
        json_add_string(parent, last, kind->sources[f]);
    }
    if (kind->curve.sms > 0)
        json_add_string(to, "kernels", kind->curve.fitted_on);
    if (kind->collectives.link[0] > 0) /* NULL becomes null */
        json_add_string(to, "rings", kind->collectives.rings_of);
}
