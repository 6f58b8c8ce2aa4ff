/* partition/search/rank_places.h. The judge lists every assignment of ranks to devices and keeps one of
 * each set of equal ones, found by trying every renaming of nodes. */
#include "partition/search/rank_places.h"
#include "tests/unit/test.h"

enum { MOST_DEVICES = 7, MOST_KEYS = 6000 };

static int random_int(int least, int most)
{
    return (int)random_between(least, most);
}

/* Some nodes of some devices; few figures, so that devices and nodes are often equal. */
static void make_cluster(struct cluster *cluster)
{
    const int num_nodes = random_int(1, 3), per_node = random_int(1, num_nodes == 3 ? 2 : 3);
    const bool mixed = random_int(0, 1), memories = random_int(0, 1);
    assert_int_equal(cluster_grid(num_nodes, per_node, cluster, NULL), OK);
    cluster->uplink_bytes_per_s[0] *= random_int(0, 3) ? 1 : 2;
    for (int d = 0; d < cluster->num_devices; d++) {
        struct device *device = &cluster->devices[d];
        device->speed = random_int(0, 2) || !mixed ? 1 : 0.5;
        device->mem_bytes = memories && random_int(0, 2) == 0 ? 1000 : INT64_MAX;
    }
    if (num_nodes > 1 && per_node > 1 && random_int(0, 2) == 0)
        cluster->num_devices--; /* the last node is smaller */
}

static bool same_device(const struct cluster *c, int a, int b)
{
    const struct device *one = &c->devices[a], *other = &c->devices[b];
    return one->speed == other->speed && one->mem_bytes == other->mem_bytes &&
           c->uplink_bytes_per_s[one->node] == c->uplink_bytes_per_s[other->node];
}

/* The name of a device in a key: its node and its type. */
static int label(const struct cluster *c, int device, const int *node_as)
{
    const struct device *d = &c->devices[device];
    return node_as[d->node] * 100 + (d->speed == 1 ? 0 : 10) + (d->mem_bytes == INT64_MAX ? 0 : 1);
}

struct key {
    int label[MOST_DEVICES];
};

static int compare_keys(const void *a, const void *b)
{
    const struct key *one = a, *other = b;
    for (int i = 0; i < MOST_DEVICES; i++)
        if (one->label[i] != other->label[i])
            return one->label[i] < other->label[i] ? -1 : 1;
    return 0;
}

static void sort_replicas(struct key *key, int K, int R)
{
    for (int i = 1; i < R; i++)
        for (int r = i; r > 0; r--) {
            int *one = &key->label[(r - 1) * K], *other = &key->label[r * K], k = 0;
            while (k < K && one[k] == other[k])
                k++;
            if (k == K || one[k] < other[k])
                break;
            for (k = 0; k < K; k++) {
                const int swap = one[k];
                one[k] = other[k];
                other[k] = swap;
            }
        }
}

/* Whether two nodes have equally many devices of each type. */
static bool same_nodes(const struct cluster *c, int a, int b)
{
    if (c->uplink_bytes_per_s[a] != c->uplink_bytes_per_s[b])
        return false;
    int types[2][12] = {{0}};
    const int node_as[3] = {0};
    for (int d = 0; d < c->num_devices; d++)
        for (int side = 0; side < 2; side++)
            types[side][label(c, d, node_as)] += c->devices[d].node == (side ? b : a);
    return memcmp(types[0], types[1], sizeof types[0]) == 0;
}

/* The least key of all equal assignments. */
static struct key key_of(const struct cluster *c, const int *device, int K, int R, bool with_first)
{
    static const int orders[6][3] = {
        {0, 1, 2},
        {0, 2, 1},
        {1, 0, 2},
        {1, 2, 0},
        {2, 0, 1},
        {2, 1, 0}
    };
    struct key best = {{0}};
    bool any = false;
    for (int o = 0; o < 6; o++) {
        bool legal = !with_first || orders[o][0] == 0; /* node 0 has no equal then */
        for (int n = 0; n < 3 && legal; n++)
            legal = n >= c->num_nodes ? orders[o][n] == n
                                      : orders[o][n] < c->num_nodes &&
                                            (n == orders[o][n] || same_nodes(c, n, orders[o][n]));
        if (!legal)
            continue;
        struct key key = {{0}};
        for (int i = 0; i < K * R; i++)
            key.label[i] = label(c, device[i], orders[o]);
        sort_replicas(&key, K, R);
        if (!any || compare_keys(&key, &best) < 0)
            best = key;
        any = true;
    }
    return best;
}

static struct key keys[MOST_KEYS];
static int num_keys;

/* Add the keys of all assignments that continue device[0 .. at). */
static void list_all(const struct cluster *c, int *device, int at, int K, int R, bool with_first)
{
    if (at == K * R) {
        bool first = !with_first;
        for (int i = 0; i < at; i++)
            first = first || device[i] == 0;
        assert_true(num_keys < MOST_KEYS);
        if (first)
            keys[num_keys++] = key_of(c, device, K, R, with_first);
        return;
    }
    for (int d = 0; d < c->num_devices; d++) {
        bool used = false;
        for (int i = 0; i < at; i++)
            used = used || device[i] == d;
        if (used)
            continue;
        device[at] = d;
        list_all(c, device, at + 1, K, R, with_first);
    }
}

static int distinct(struct key *list, int n)
{
    int kept = 0;
    qsort(list, (size_t)n, sizeof *list, compare_keys);
    for (int i = 0; i < n; i++)
        if (kept == 0 || compare_keys(&list[i], &list[kept - 1]) != 0)
            list[kept++] = list[i];
    return kept;
}

static bool uses_first(const int *device, int n)
{
    for (int i = 0; i < n; i++)
        if (device[i] == 0)
            return true;
    return false;
}

static void rank_places_of__lists_each_place_once_in_unequal_clusters(void **state)
{
    (void)state;
    int complete = 0, several = 0;
    for (int trial = 0; trial < 300; trial++) {
        struct cluster c = {0};
        struct rank_places *places;
        random_state = (uint64_t)trial * 99991 + 5;
        make_cluster(&c);
        const bool with_first = trial % 2;
        const int K = random_int(1, c.num_devices), R = random_int(1, c.num_devices / K);
        int device[MOST_DEVICES];
        const int *place;
        int num;
        assert_int_equal(rank_places_new(&c, 1, with_first, &places, NULL), OK);
        assert_int_equal(rank_places_of(places, K, R, &place, &num, NULL), OK);
        num_keys = 0;
        list_all(&c, device, 0, K, R, with_first);
        const int all = distinct(keys, num_keys);
        static struct key got[MOST_KEYS];
        for (int i = 0; i < num; i++) {
            assert_int_equal(rank_places_map(places, place[i], K, R, device, NULL), OK);
            for (int a = 0; a < K * R; a++)
                for (int b = 0; b < a; b++)
                    assert_int_not_equal(device[a], device[b]);
            assert_true(!with_first || uses_first(device, K * R));
            got[i] = key_of(&c, device, K, R, with_first);
        }
        bool equal = true;
        for (int d = 0; d < c.num_devices; d++)
            equal = equal && same_device(&c, d, 0) && same_nodes(&c, 0, c.devices[d].node);
        const int different = distinct(got, num);
        assert_true(different <= all);
        if (!equal && all <= 32) { /* the limit of 64 counts some places twice */
            if (different != all)
                fail_msg("trial %d: %d of %d places of %d x %d", trial, different, all, R, K);
            complete++;
            several += all > 5;
        }
        rank_places_free(places);
        cluster_clear(&c);
    }
    assert_true(complete > 100 && several > 50);
}

/* Every place on the first devices of a cluster is a place on all of them. */
static void rank_places_of__keeps_the_places_of_fewer_devices(void **state)
{
    (void)state;
    int compared = 0;
    for (int trial = 0; trial < 100; trial++) {
        struct cluster c = {0};
        random_state = (uint64_t)trial * 99991 + 5;
        assert_int_equal(cluster_grid(random_int(2, 4), random_int(2, 4), &c, NULL), OK);
        for (int d = 0; d < c.num_devices; d++)
            c.devices[d].speed = random_int(1, 3);
        for (int n = 0; n < c.num_nodes; n++)
            c.uplink_bytes_per_s[n] *= n + 1; /* no two nodes are equal */
        const int whole = c.num_devices, fewer = random_int(2, whole - 1);
        const int K = random_int(1, fewer), R = random_int(1, fewer / K);
        int device[16];
        struct rank_places *small, *large;
        const int *place;
        int num_small, num_large, maps[2000][16];
        assert_int_equal(rank_places_new(&c, 1, false, &large, NULL), OK);
        assert_int_equal(rank_places_of(large, K, R, &place, &num_large, NULL), OK);
        assert_in_range(num_large, 1, sizeof maps / sizeof *maps);
        for (int i = 0; i < num_large; i++)
            assert_int_equal(rank_places_map(large, place[i], K, R, maps[i], NULL), OK);
        c.num_devices = fewer;
        c.num_nodes = c.devices[fewer - 1].node + 1;
        assert_int_equal(rank_places_new(&c, 1, false, &small, NULL), OK);
        assert_int_equal(rank_places_of(small, K, R, &place, &num_small, NULL), OK);
        for (int i = 0; i < num_small; i++) {
            assert_int_equal(rank_places_map(small, place[i], K, R, device, NULL), OK);
            bool found = false;
            for (int j = 0; j < num_large && !found; j++) {
                bool used[16] = {false}; /* replicas of the other place that have a partner */
                int partners = 0;
                for (int r = 0; r < R; r++)
                    for (int q = 0; q < R; q++) {
                        bool same = !used[q];
                        for (int k = 0; k < K && same; k++) {
                            const struct device *a = &c.devices[device[r * K + k]],
                                                *b = &c.devices[maps[j][q * K + k]];
                            same = a->node == b->node && a->speed == b->speed;
                        }
                        if (!same)
                            continue;
                        used[q] = true;
                        partners++;
                        break;
                    }
                found = partners == R;
            }
            compared++;
            if (!found)
                fail_msg("trial %d: place %d of %d replicas of %d on %d of %d devices", trial, i, R,
                         K, fewer, whole);
        }
        rank_places_free(small);
        rank_places_free(large);
        c.num_devices = whole;
        cluster_clear(&c);
    }
    assert_true(compared > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rank_places_of__lists_each_place_once_in_unequal_clusters),
        cmocka_unit_test(rank_places_of__keeps_the_places_of_fewer_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
