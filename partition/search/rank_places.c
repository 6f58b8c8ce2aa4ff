/* Places of ranks: rules, and the enumeration of all places up to symmetry.
 *
 * The enumeration writes a place as the sequence of its ranks' classes, replica by replica. Groups
 * of one class are interchangeable, so the sequence says everything. Of equal places the
 * lexicographically least sequence is wanted. Its replicas ascend, and of equal nodes it uses an
 * earlier one first; enumerate() lists the sequences that do both. Read rank_places_of() at the end
 * first, then enumerate(). */
#include "partition/search/rank_places.h"

#include <stdlib.h>
#include <string.h>

#include "partition/plan/autodp.h"
#include "partition/layout/tensor_group.h"
#include "partition/base/arrays.h"

/* Places of a K and an R that are all listed. The search opens every one whose bound may win, at
 * some 10 to 100 us each. With 256 the cuts of the best were improved less: 2 nodes of 4 GPUs took
 * 10 s in place of 1.6 and the plan was slower. */
#define MOST_PLACES 64
/* Steps after which an enumeration gives up, and ranks from which on none is begun. */
#define MOST_STEPS (256 * MOST_PLACES)
#define MOST_ENUMERATED 32
/* With at most this many types of devices all orders of types are tried: 15 of three types. */
#define MOST_TYPES 3
#define MOST_ORDERS 20
/* In clusters of at most this many groups each number of first groups has rules, in larger ones
 * each number of first nodes. */
#define MOST_FIRST_GROUPS 16
/* Places of at most this many ranks are compared; of clusters with at most that many groups some
 * have rules for their first groups. */
#define MOST_COMPARED 64

/* Groups of one node and one type. */
struct place_class {
    int node, type;
    int num_groups;
    int room;  /* scratch of enumerate(): groups that may be used */
    int taken; /* scratch of enumerate(): groups in use */
};

/* A rank map over the groups of an order that are among the first groups of the cluster. */
struct place_rule {
    const int *order;
    int num_order;
    int below; /* only groups with lower numbers */
    enum rank_map map;
    bool fewest; /* over as many of their nodes as have enough groups */
};

struct rank_places {
    const struct cluster *cluster; /* borrowed */
    bool with_first;
    bool by_stage; /* rank_places_by_stage() */
    bool equal;    /* all nodes are alike and have one type of device */
    int num_groups, num_nodes, num_classes, num_types;
    struct arrays arrays;        /* those from first_device to classes */
    int *first_device;           /* by group */
    int *node_of;                /* by group: ordinal of its node */
    int *pod_of;                 /* by node */
    int *type_of;                /* by group */
    int *class_of;               /* by group */
    int *first_class;            /* by node: its first class; num_nodes + 1 entries */
    int *like;                   /* by node: the first node that is alike */
    int *next_other;             /* by node: the next node that is not alike, or num_nodes */
    int *uses;                   /* by node: scratch of enumerate() */
    struct place_class *classes; /* ascending node, then type */
    int *orders[MOST_ORDERS];    /* owned; num_groups entries each */
    int num_orders;
    struct place_rule *rules; /* owned */
    int num_rules;
    int64_t room_rules;
    /* Owned: sequences of listed places. A place from num_rules on is the sequence that begins at
     * listed[place - num_rules]. */
    int *listed;
    int64_t num_listed, room_listed;
    int *found; /* owned: the answer of rank_places_of() */
    int num_found;
    int64_t room_found;
};

/* --- nodes, types and classes ---------------------------------------------------------------- */

static bool devices_alike(const struct device *a, const struct device *b)
{
    return a->speed == b->speed && a->mem_bytes == b->mem_bytes &&
           a->link_bytes_per_s == b->link_bytes_per_s && a->nic_bytes_per_s == b->nic_bytes_per_s &&
           a->copy_bytes_per_s == b->copy_bytes_per_s && strcmp(a->kind, b->kind) == 0;
}

/* Whether two groups have equal devices, one by one, and equal uplinks. */
static bool groups_alike(const struct cluster *cluster, int tensor, int a, int b)
{
    const struct device *one = &cluster->devices[a], *other = &cluster->devices[b];
    bool same = cluster->uplink_bytes_per_s[one->node] == cluster->uplink_bytes_per_s[other->node];
    for (int i = 0; i < tensor && same; i++)
        same = devices_alike(&one[i], &other[i]);
    return same;
}

/* Number the nodes that have groups, and the types of groups. */
static enum status set_types(struct rank_places *p, int tensor, struct err *err)
{
    int *example = malloc((size_t)p->num_groups * sizeof *example); /* a group of each type */
    if (!example)
        return err_nomem(err);
    for (int g = 0; g < p->num_groups; g++) {
        const int device = p->first_device[g], node = p->cluster->devices[device].node;
        if (g == 0 || node != p->cluster->devices[p->first_device[g - 1]].node)
            p->num_nodes++;
        p->node_of[g] = p->num_nodes - 1;
        p->pod_of[p->num_nodes - 1] = cluster_pod(p->cluster, node);
        int type = g > 0 && groups_alike(p->cluster, tensor, p->first_device[g - 1], device)
                       ? p->type_of[g - 1]
                       : 0;
        while (type < p->num_types &&
               !groups_alike(p->cluster, tensor, p->first_device[example[type]], device))
            type++;
        if (type == p->num_types)
            example[p->num_types++] = g;
        p->type_of[g] = type;
    }
    free(example);
    return OK;
}

/* Make the classes: node by node, ascending type. */
static void set_classes(struct rank_places *p)
{
    for (int first = 0, end; first < p->num_groups; first = end) {
        const int node = p->node_of[first];
        p->first_class[node] = p->num_classes;
        for (end = first; end < p->num_groups && p->node_of[end] == node; end++) {
            int at = p->first_class[node];
            while (at < p->num_classes && p->classes[at].type < p->type_of[end])
                at++;
            if (at == p->num_classes || p->classes[at].type != p->type_of[end]) {
                memmove(&p->classes[at + 1], &p->classes[at],
                        (size_t)(p->num_classes - at) * sizeof *p->classes);
                p->classes[at] = (struct place_class){.node = node, .type = p->type_of[end]};
                p->num_classes++;
            }
            p->classes[at].num_groups++;
        }
        for (int g = first; g < end; g++)
            for (int c = p->first_class[node]; c < p->num_classes; c++)
                if (p->classes[c].type == p->type_of[g])
                    p->class_of[g] = c;
        p->first_class[node + 1] = p->num_classes;
    }
}

/* A node of another pod is another node. */
static bool nodes_alike(const struct rank_places *p, int a, int b)
{
    const struct place_class *one = &p->classes[p->first_class[a]],
                             *other = &p->classes[p->first_class[b]];
    const int n = p->first_class[a + 1] - p->first_class[a];
    bool same = p->first_class[b + 1] - p->first_class[b] == n && p->pod_of[a] == p->pod_of[b];
    for (int i = 0; i < n && same; i++)
        same = one[i].type == other[i].type && one[i].num_groups == other[i].num_groups;
    return same;
}

static void set_likes(struct rank_places *p)
{
    p->equal = p->num_types <= 1;
    for (int n = 0; n < p->num_nodes; n++) {
        const bool equal = nodes_alike(p, 0, n);
        p->equal = p->equal && equal;
        p->like[n] = equal && !p->with_first ? 0 : n; /* node 0 may have to be used */
        /* Most nodes of a pod are like the one before. */
        if (p->like[n] == n && n > 1 && nodes_alike(p, n - 1, n))
            p->like[n] = p->like[n - 1];
        for (int before = 1; p->like[n] == n && before < n; before++)
            if (p->like[before] == before && nodes_alike(p, before, n))
                p->like[n] = before;
    }
    for (int n = p->num_nodes - 1; n >= 0; n--)
        p->next_other[n] =
            n + 1 < p->num_nodes && p->like[n + 1] == p->like[n] ? p->next_other[n + 1] : n + 1;
}

/* --- rules ----------------------------------------------------------------------------------- */

static enum status add_rule(struct rank_places *p, struct place_rule rule, struct err *err)
{
    if (!array_grow(&p->rules, p->num_rules + 1, &p->room_rules, sizeof *p->rules))
        return err_nomem(err);
    p->rules[p->num_rules++] = rule;
    return OK;
}

/* Add an order of the groups of these types, type by type. type -1 stands for all groups. */
static enum status add_order(struct rank_places *p, const int *types, int num_types,
                             struct err *err)
{
    int *order = malloc((size_t)p->num_groups * sizeof *order), n = 0;
    if (!order)
        return err_nomem(err);
    p->orders[p->num_orders++] = order;
    for (int i = 0; i < num_types; i++)
        for (int g = 0; g < p->num_groups; g++)
            if (types[i] < 0 || p->type_of[g] == types[i])
                order[n++] = g;
    enum status rc = OK;
    for (int below = p->num_groups; below > 0 && rc == OK; below--) {
        const bool whole = below == p->num_groups;
        const bool part = p->num_groups > MOST_FIRST_GROUPS &&
                          p->node_of[below - 1] == p->node_of[below - !whole];
        if (!whole && (p->equal || p->num_groups > MOST_COMPARED || part))
            continue;
        for (int map = 0; map < MAP_COUNT && rc == OK; map++)
            rc = add_rule(p, (struct place_rule){order, n, below, (enum rank_map)map, false}, err);
    }
    return rc;
}

/* Add an order for each selection of types and each sequence of it, which continues types[0 ..
 * n). */
static enum status add_orders(struct rank_places *p, int *types, int n, struct err *err)
{
    enum status rc = OK;
    for (int type = 0; n < MOST_TYPES && type < p->num_types && rc == OK; type++) {
        bool used = false;
        for (int i = 0; i < n; i++)
            used = used || types[i] == type;
        if (used)
            continue;
        types[n] = type;
        rc = add_order(p, types, n + 1, err);
        THEN(add_orders(p, types, n + 1, err));
    }
    return rc;
}

static enum status set_rules(struct rank_places *p, struct err *err)
{
    int types[MOST_TYPES] = {-1};
    enum status rc = add_order(p, types, 1, err);
    THEN(add_rule(
        p,
        (struct place_rule){p->orders[0], p->num_groups, p->num_groups, MAP_PIPELINE_INSIDE, true},
        err));
    if (rc != OK || p->num_types < 2)
        return rc;
    if (p->num_types <= MOST_TYPES)
        return add_orders(p, types, 0, err);
    for (int type = 0; rc == OK && type < p->num_types && p->num_orders < MOST_ORDERS; type++)
        rc = add_order(p, &type, 1, err);
    return rc;
}

/* Write the group of each rank under a rule. Returns false if the rule has too few groups. scratch:
 * 2 * num_groups entries. */
static bool map_by_rule(const struct rank_places *p, const struct place_rule *rule, int num_ranks,
                        int num_pipelines, int *scratch, int *group)
{
    const int64_t need = (int64_t)num_ranks * num_pipelines;
    int *seen = scratch, *node = scratch + p->num_groups, n = 0;
    for (int i = 0; i < rule->num_order; i++) {
        const int g = rule->order[i];
        if (rule->fewest && n >= need && p->node_of[g] != node[n - 1])
            break;
        if (g < rule->below) {
            seen[n] = g;
            node[n++] = p->node_of[g];
        }
    }
    if (n < need)
        return false;
    autodp_map_nodes(node, n, rule->map, num_ranks, num_pipelines, group);
    for (int64_t i = 0; i < need; i++)
        group[i] = seen[group[i]];
    return true;
}

/* Whether a rule certainly equals an earlier one for these counts. */
static bool repeats(const struct rank_places *p, const struct place_rule *rule, int num_ranks,
                    int num_pipelines)
{
    const int64_t need = (int64_t)num_ranks * num_pipelines;
    if (rule->map == MAP_STAGE_INSIDE)
        return num_ranks == 1 || p->num_nodes == 1 || (p->equal && num_pipelines == 1);
    if (!rule->fewest)
        return false;
    const int width = p->classes[0].num_groups; /* of every node if they are equal */
    const int64_t nodes = (need + width - 1) / width;
    return p->num_nodes == 1 || (p->equal && (num_ranks == 1 || num_pipelines == 1 ||
                                              width / num_ranks * nodes >= num_pipelines));
}

/* --- enumeration ------------------------------------------------------------------------------ */

struct enumeration {
    struct rank_places *p;
    int num_ranks, num_pipelines;
    bool once;       /* a replica does not come back to a class that it has left */
    int part_node;   /* of which only some groups may be used, so it equals no other; -1: none */
    int *seq;        /* num_ranks * num_pipelines classes */
    int num_classes; /* those of the first groups */
    int64_t steps;
    int count;
    bool keep;   /* append what is found to p->listed and p->found */
    bool failed; /* too many, or no memory */
    struct err *err;
};

static enum status note_found(struct rank_places *p, int place, struct err *err)
{
    if (!array_grow(&p->found, p->num_found + 1, &p->room_found, sizeof *p->found))
        return err_nomem(err);
    p->found[p->num_found++] = place;
    return OK;
}

/* Whether a sequence of n classes is among the places found, which are all listed. */
static bool is_found(const struct rank_places *p, const int *seq, int64_t n)
{
    for (int i = 0; i < p->num_found; i++)
        if (memcmp(&p->listed[p->found[i] - p->num_rules], seq, (size_t)n * sizeof *seq) == 0)
            return true;
    return false;
}

static enum status list_place(struct rank_places *p, const int *seq, int64_t n, struct err *err)
{
    if (p->num_listed + n > INT32_MAX - p->num_rules)
        return OK; /* no room for its number; far more than any search opens */
    if (!array_grow(&p->listed, p->num_listed + n, &p->room_listed, sizeof *p->listed))
        return err_nomem(err);
    memcpy(p->listed + p->num_listed, seq, (size_t)n * sizeof *seq);
    const int place = (int)(p->num_rules + p->num_listed);
    p->num_listed += n;
    return note_found(p, place, err);
}

/* Whether this node and an equal one before it are unused. */
static bool skips_node(const struct enumeration *e, int node)
{
    const struct rank_places *p = e->p;
    if (p->uses[node] > 0 || node == e->part_node)
        return false;
    for (int before = node - 1; before >= p->like[node]; before--)
        if (p->like[before] == p->like[node])
            return p->uses[before] == 0;
    return false;
}

/* The first class after those of an unused node and of the equal nodes that follow it. Equal nodes
 * are used in order, so those are unused, too, but for the one of which only some groups may be
 * used. */
static int after_unused(const struct enumeration *e, int node)
{
    const int next = e->p->next_other[node];
    return e->p->first_class[e->part_node > node && e->part_node < next ? e->part_node : next];
}

/* With `once`: whether this replica has left the class before. */
static bool has_left(const struct enumeration *e, int at, int class)
{
    const int k = at % e->num_ranks;
    if (!e->once || k == 0 || e->seq[at - 1] == class)
        return false;
    for (int i = at - k; i < at - 1; i++)
        if (e->seq[i] == class)
            return true;
    return false;
}

/* Place rank `at` and those after it. tied: this replica equals the one before it so far. */
static void enumerate(struct enumeration *e, int at, bool tied)
{
    struct rank_places *p = e->p;
    const int n = e->num_ranks * e->num_pipelines;
    if (at % e->num_ranks == 0)
        tied = at > 0;
    if (at == n) {
        const struct place_class *first = &p->classes[p->class_of[0]];
        if (p->with_first && first->taken == 0)
            return;
        e->failed = e->failed || ++e->count > MOST_PLACES ||
                    (e->keep && !is_found(p, e->seq, n) && list_place(p, e->seq, n, e->err) != OK);
        return;
    }
    for (int c = tied ? e->seq[at - e->num_ranks] : 0; c < e->num_classes && !e->failed; c++) {
        struct place_class *class = &p->classes[c];
        if (class->taken == class->room || has_left(e, at, c))
            continue;
        if (skips_node(e, class->node)) {
            c = after_unused(e, class->node) - 1;
            continue;
        }
        if (++e->steps > MOST_STEPS) {
            e->failed = true;
            return;
        }
        class->taken++;
        p->uses[class->node]++;
        e->seq[at] = c;
        enumerate(e, at + 1, tied && c == e->seq[at - e->num_ranks]);
        class->taken--;
        p->uses[class->node]--;
    }
}

/* Enumerate the places on the first num_groups groups. Returns whether there are few enough. */
static bool run(struct enumeration *e, int num_groups, bool once, bool keep)
{
    struct rank_places *p = e->p;
    const int last = p->node_of[num_groups - 1];
    e->num_classes = p->first_class[last + 1];
    for (int c = 0; c < e->num_classes; c++) {
        p->classes[c].room = c < p->first_class[last] ? p->classes[c].num_groups : 0;
        p->classes[c].taken = 0;
    }
    for (int g = num_groups - 1; g >= 0 && p->node_of[g] == last; g--)
        p->classes[p->class_of[g]].room++;
    memset(p->uses, 0, ((size_t)last + 1) * sizeof *p->uses);
    const bool part =
        num_groups < p->num_groups && p->node_of[num_groups] == p->node_of[num_groups - 1];
    e->part_node = part ? p->node_of[num_groups] : -1;
    e->once = once;
    e->keep = keep;
    e->steps = e->count = 0;
    e->failed = false;
    enumerate(e, 0, false);
    return !e->failed;
}

/* List the places on as many first groups as have few enough. Returns how many groups that are. */
static int list_most(struct enumeration *e, bool once)
{
    int some = e->num_ranks * e->num_pipelines - 1, many = e->p->num_groups + 1;
    const int least = some;
    if (run(e, many - 1, once, false))
        some = many - 1;
    while (many - some > 1) { /* `some` groups have few places, `many` have not */
        const int middle = some + (many - some) / 2;
        *(run(e, middle, once, false) ? &some : &many) = middle;
    }
    if (some > least)
        run(e, some, once, true);
    return some;
}

/* List all places, or those that the header names. */
static enum status list_all(struct rank_places *p, int num_ranks, int num_pipelines, bool *complete,
                            struct err *err)
{
    struct err why = {0};
    struct enumeration e = {
        .p = p, .num_ranks = num_ranks, .num_pipelines = num_pipelines, .err = &why};
    e.seq = malloc((size_t)num_ranks * (size_t)num_pipelines * sizeof *e.seq);
    if (!e.seq)
        return err_nomem(err);
    *complete = list_most(&e, false) == p->num_groups;
    if (!*complete && why.status == OK)
        list_most(&e, true);
    free(e.seq);
    return why.status == OK ? OK : err_copy(err, &why);
}

/* Make the sequence of a place nearly the least of all equal places, so that most equal places get
 * equal sequences: replicas ascend, and of equal nodes the earlier ones come first. node_as:
 * scratch of num_nodes entries. */
static void order_sequence(struct rank_places *p, int num_ranks, int num_pipelines, int *seq,
                           int *node_as)
{
    const size_t size = (size_t)num_ranks * sizeof *seq;
    for (int round = 0; round < 2; round++) {
        for (int i = 1; i < num_pipelines; i++)
            for (int r = i; r > 0; r--) {
                int *one = seq + (size_t)(r - 1) * (size_t)num_ranks, *other = one + num_ranks;
                int k = 0;
                while (k < num_ranks && one[k] == other[k])
                    k++;
                if (k == num_ranks || one[k] < other[k])
                    break;
                for (; k < num_ranks; k++) {
                    const int class = one[k];
                    one[k] = other[k];
                    other[k] = class;
                }
            }
        memset(p->uses, 0, (size_t)p->num_nodes * sizeof *p->uses);
        for (int n = 0; n < p->num_nodes; n++)
            node_as[n] = -1;
        for (size_t i = 0; i < size / sizeof *seq * (size_t)num_pipelines; i++) {
            const int node = p->classes[seq[i]].node;
            for (int to = p->like[node]; node_as[node] < 0; to++)
                if (p->like[to] == p->like[node] && p->uses[to] == 0) {
                    node_as[node] = to;
                    p->uses[to] = 1;
                }
            seq[i] += p->first_class[node_as[node]] - p->first_class[node];
        }
    }
}

/* --- the front ------------------------------------------------------------------------------- */

void rank_places_free(struct rank_places *places)
{
    if (!places)
        return;
    for (int i = 0; i < places->num_orders; i++)
        free(places->orders[i]);
    arrays_clear(&places->arrays);
    free(places->rules);
    free(places->listed);
    free(places->found);
    free(places);
}

enum status rank_places_new(const struct cluster *cluster, int tensor, bool with_first,
                            struct rank_places **places, struct err *err)
{
    struct rank_places *p = calloc(1, sizeof *p);
    if (!p)
        return err_nomem(err);
    p->cluster = cluster;
    p->with_first = with_first;
    p->num_groups = tensor_group_list(cluster, tensor, NULL);
    const size_t groups = (size_t)p->num_groups + 1;
    p->first_device = arrays_new(&p->arrays, groups, sizeof *p->first_device);
    p->node_of = arrays_new(&p->arrays, groups, sizeof *p->node_of);
    p->pod_of = arrays_new(&p->arrays, groups, sizeof *p->pod_of);
    p->type_of = arrays_new(&p->arrays, groups, sizeof *p->type_of);
    p->class_of = arrays_new(&p->arrays, groups, sizeof *p->class_of);
    p->first_class = arrays_new(&p->arrays, groups, sizeof *p->first_class);
    p->like = arrays_new(&p->arrays, groups, sizeof *p->like);
    p->next_other = arrays_new(&p->arrays, groups, sizeof *p->next_other);
    p->uses = arrays_new(&p->arrays, groups, sizeof *p->uses);
    p->classes = arrays_new(&p->arrays, groups, sizeof *p->classes);
    enum status rc = p->arrays.failed ? err_nomem(err) : OK;
    if (rc == OK) {
        tensor_group_list(cluster, tensor, p->first_device);
        rc = set_types(p, tensor, err);
    }
    if (rc == OK) {
        set_classes(p);
        set_likes(p);
        rc = set_rules(p, err);
    }
    if (rc != OK) {
        rank_places_free(p);
        return rc;
    }
    *places = p;
    return OK;
}

void rank_places_by_stage(struct rank_places *places)
{
    places->by_stage = true;
}

enum status rank_places_of(struct rank_places *places, int num_ranks, int num_pipelines,
                           const int **place, int *num, struct err *err)
{
    struct rank_places *p = places;
    const int64_t need = (int64_t)num_ranks * num_pipelines;
    bool complete = false;
    enum status rc = OK;
    p->num_found = 0;
    *num = 0;
    if (need > p->num_groups)
        return OK;
    for (int i = 0; i < p->num_rules && p->by_stage; i++)
        if (p->rules[i].map == MAP_STAGE_INSIDE) {
            rc = note_found(p, i, err); /* the first order has all groups in cluster order */
            *place = p->found;
            *num = p->num_found;
            return rc;
        }
    int *group = malloc(3 * (size_t)p->num_groups * sizeof *group);
    if (!group)
        return err_nomem(err);
    int *scratch = group + p->num_groups;
    const bool by_sequence = !p->equal && need <= MOST_COMPARED;
    if (!p->equal && need <= MOST_ENUMERATED)
        rc = list_all(p, num_ranks, num_pipelines, &complete, err);
    for (int i = 0; i < p->num_rules && rc == OK && !complete; i++) {
        const struct place_rule *rule = &p->rules[i];
        bool wanted = rule->num_order >= need && !repeats(p, rule, num_ranks, num_pipelines);
        if (wanted && (p->with_first || by_sequence)) {
            wanted = map_by_rule(p, rule, num_ranks, num_pipelines, scratch, group);
            bool first = !p->with_first;
            for (int64_t g = 0; g < need && wanted && !first; g++)
                first = group[g] == 0;
            wanted = wanted && first;
        }
        if (!wanted)
            continue;
        if (!by_sequence) {
            rc = note_found(p, i, err);
            continue;
        }
        for (int64_t g = 0; g < need; g++)
            group[g] = p->class_of[group[g]];
        order_sequence(p, num_ranks, num_pipelines, group, scratch);
        if (!is_found(p, group, need))
            rc = list_place(p, group, need, err);
    }
    free(group);
    *place = p->found;
    *num = p->num_found;
    return rc;
}

enum status rank_places_map(const struct rank_places *places, int place, int num_ranks,
                            int num_pipelines, int *device, struct err *err)
{
    const struct rank_places *p = places;
    const int64_t need = (int64_t)num_ranks * num_pipelines;
    int *scratch = calloc(2 * (size_t)p->num_groups, sizeof *scratch);
    if (!scratch)
        return err_nomem(err);
    if (place < p->num_rules) {
        map_by_rule(p, &p->rules[place], num_ranks, num_pipelines, scratch, device);
    } else {
        const int *class = &p->listed[place - p->num_rules];
        int *next = scratch; /* by class: where to look for its next group */
        for (int64_t i = 0; i < need; i++) {
            int g = next[class[i]];
            while (p->class_of[g] != class[i])
                g++;
            next[class[i]] = g + 1;
            device[i] = g;
        }
    }
    for (int64_t i = 0; i < need; i++)
        device[i] = p->first_device[device[i]];
    free(scratch);
    return OK;
}
