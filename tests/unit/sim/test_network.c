/* Fair sharing: against the definition of max-min fairness, and against times by hand. */
#include "sim/step/network.h"
#include "tests/unit/test.h"

struct net_case {
    struct cluster cluster;
    struct event_queue queue;
    struct network network;
};

static void build(struct net_case *c, int nodes, int devices, double link, double uplink,
                  int channels, const int (*pairs)[2])
{
    struct err err = {0};
    *c = (struct net_case){0};
    assert_int_equal(cluster_grid(nodes, devices, &c->cluster, &err), OK);
    for (int d = 0; d < nodes * devices; d++)
        c->cluster.devices[d].link_bytes_per_s = link;
    for (int n = 0; n < nodes; n++)
        c->cluster.uplink_bytes_per_s[n] = uplink;
    assert_int_equal(event_queue_init(&c->queue, channels, &err), OK);
    assert_int_equal(
        network_init(&c->network, &c->cluster, channels, 4 * channels, NULL, &c->queue, 0, &err),
        OK);
    for (int i = 0; i < channels; i++)
        network_add_pair(&c->network, i, pairs[i][0], pairs[i][1]);
    network_ready(&c->network);
}

static void clear(struct net_case *c)
{
    network_clear(&c->network);
    event_queue_clear(&c->queue);
    cluster_clear(&c->cluster);
}

static void start(struct net_case *c, int channel, int64_t bytes, int64_t now)
{
    int32_t t = network_take(&c->network);
    assert_true(t >= 0);
    c->network.transfers[t].message = channel;
    int64_t rate = c->network.channels[channel].solo_rate;
    network_start(&c->network, channel, t, (bytes * 1000000000 + rate - 1) / rate, now);
}

/* The next end: its channel, and the time in *now. */
static int next_end(struct net_case *c, int64_t *now)
{
    enum event_kind kind;
    if (network_unsettled(&c->network))
        network_settle(&c->network, *now);
    int32_t channel = event_queue_pop(&c->queue, &kind, now);
    if (channel < 0)
        return -1;
    int32_t t = network_finished(&c->network, channel, *now);
    assert_true(t >= 0);
    network_give(&c->network, t);
    assert_int_equal(network_finished(&c->network, channel, *now), -1);
    return channel;
}

static void network__two_on_a_port_take_twice_as_long(void **state)
{
    (void)state;
    static const int pairs[2][2] = {
        {0, 1},
        {0, 2}
    };
    struct net_case c;
    int64_t now = 0;
    build(&c, 1, 3, 1e9, 1e9, 2, pairs);
    start(&c, 0, 1000, 0);
    assert_int_equal(next_end(&c, &now), 0);
    assert_int_equal(now, 1000); /* alone */
    start(&c, 0, 1000, 1000);
    start(&c, 1, 500, 1000);
    assert_int_equal(next_end(&c, &now), 1);
    assert_int_equal(now, 2000); /* 500 B at half the port */
    assert_int_equal(next_end(&c, &now), 0);
    assert_int_equal(now, 2500); /* its other 500 B alone */
    assert_int_equal(next_end(&c, &now), -1);
    clear(&c);
}

static void network__a_channel_shares_with_itself(void **state)
{
    (void)state;
    static const int pairs[1][2] = {
        {0, 1}
    };
    struct net_case c;
    int64_t now = 0;
    build(&c, 1, 2, 1e9, 1e9, 1, pairs);
    start(&c, 0, 1000, 0);
    now = 500;
    network_settle(&c.network, 0);
    start(&c, 0, 100, 500); /* a small one behind: 100 B at half take 200 ns */
    assert_int_equal(next_end(&c, &now), 0);
    assert_int_equal(now, 700);
    assert_int_equal(next_end(&c, &now), 0);
    assert_int_equal(now, 1100);
    clear(&c);
}

/* Every active channel has a bottleneck: a full resource on which nobody has more (that is what
 * max-min fairness means), and no resource carries more than it can. */
static void network__rates_are_max_min_fair_on_random_traffic(void **state)
{
    (void)state;
    enum { CHANNELS = 24 };
    srand(7);
    for (int n = 0; n < 400; n++) {
        int pairs[CHANNELS][2];
        for (int i = 0; i < CHANNELS; i++) {
            pairs[i][0] = rand() % 8;
            pairs[i][1] = (pairs[i][0] + 1 + rand() % 7) % 8;
        }
        struct net_case c;
        build(&c, 2, 4, 1e9, (1 + rand() % 4) * 0.5e9, CHANNELS, pairs);
        for (int i = 0; i < CHANNELS; i++)
            for (int k = rand() % 3; k > 0; k--)
                start(&c, i, 1000 + rand() % 100000, 0);
        int64_t now = 0, last = -1;
        int ended;
        do {
            if (network_unsettled(&c.network))
                network_settle(&c.network, now);
            struct network *net = &c.network;
            int64_t load[64] = {0}, most[64] = {0};
            for (int i = 0; i < CHANNELS; i++) {
                const struct channel *ch = &net->channels[i];
                for (int h = ch->first_hop; ch->num_active > 0 && h < ch->first_hop + ch->num_hops;
                     h++) {
                    int r = net->hops[h].resource;
                    load[r] += ch->rate * ch->num_active;
                    if (ch->rate > most[r])
                        most[r] = ch->rate;
                }
            }
            for (int i = 0; i < CHANNELS; i++) {
                const struct channel *ch = &net->channels[i];
                bool bottleneck = ch->num_active == 0;
                for (int h = ch->first_hop; h < ch->first_hop + ch->num_hops; h++) {
                    int r = net->hops[h].resource;
                    assert_true(load[r] <= net->resources[r].capacity);
                    /* rounding down leaves less than one B/s a transfer */
                    if (load[r] + 2 * CHANNELS * 2 > net->resources[r].capacity &&
                        ch->rate + 2 * CHANNELS >= most[r])
                        bottleneck = true;
                }
                assert_true(bottleneck);
            }
            ended = next_end(&c, &now);
            assert_true(now >= last);
            last = now;
        } while (ended >= 0);
        for (int i = 0; i < CHANNELS; i++)
            assert_int_equal(c.network.channels[i].num_active, 0);
        clear(&c);
    }
}

/* Filling near a change gives each channel the same rate, to the byte, as filling all that is connected. */
static void network__near_a_change_is_as_everywhere(void **state)
{
    (void)state;
    enum { CHANNELS = 40, ENDS = 200 };
    int64_t near = 0, all = 0;
    srand(11);
    for (int n = 0; n < 60; n++) {
        int pairs[CHANNELS][2];
        for (int i = 0; i < CHANNELS; i++) {
            pairs[i][0] = rand() % 16;
            pairs[i][1] = (pairs[i][0] + 1 + rand() % (n % 2 ? 2 : 15)) % 16;
        }
        const double uplink = (1 + rand() % 4) * (n % 3 ? 0.5e9 : 333333333.0);
        struct net_case c[2];
        for (int k = 0; k < 2; k++)
            build(&c[k], 4, 4, n % 3 ? 1e9 : 1e9 + 7 * (n % 5), uplink, CHANNELS, pairs);
        c[1].network.whole = true;
        int64_t now[2] = {0, 0};
        for (int e = 0, ended[2] = {0, 0}; e < ENDS && ended[0] >= 0; e++) {
            for (int i = e > 0 ? rand() % 3 : 8; i > 0 && e < ENDS / 2; i--) {
                const int channel = rand() % CHANNELS, bytes = 1000 + rand() % 100000;
                for (int k = 0; k < 2; k++)
                    start(&c[k], channel, bytes, now[k]);
            }
            for (int k = 0; k < 2; k++)
                ended[k] = next_end(&c[k], &now[k]);
            all++;
            near += !c[0].network.whole && c[0].network.num_tied == 0;
            assert_int_equal(ended[0], ended[1]);
            assert_int_equal(now[0], now[1]);
            for (int i = 0; i < CHANNELS; i++)
                assert_int_equal(c[0].network.channels[i].rate, c[1].network.channels[i].rate);
        }
        for (int k = 0; k < 2; k++)
            clear(&c[k]);
    }
    assert_true(all > 5000 && near > all / 4); /* the rest had ties */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(network__two_on_a_port_take_twice_as_long),
        cmocka_unit_test(network__a_channel_shares_with_itself),
        cmocka_unit_test(network__rates_are_max_min_fair_on_random_traffic),
        cmocka_unit_test(network__near_a_change_is_as_everywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
