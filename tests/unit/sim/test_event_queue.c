/* The wheel against a plain sorted list. */
#include "sim/step/event_queue.h"
#include "tests/unit/test.h"

enum { ENTRIES = 200 };

struct model_event {
    int64_t time_ns, inserted;
    int kind, present;
};

static int first_of(const struct model_event *events)
{
    int first = -1;
    for (int i = 0; i < ENTRIES; i++) {
        const struct model_event *a = &events[i], *b = first >= 0 ? &events[first] : NULL;
        if (!a->present)
            continue;
        if (!b || a->time_ns < b->time_ns ||
            (a->time_ns == b->time_ns &&
             (a->kind < b->kind || (a->kind == b->kind && a->inserted < b->inserted))))
            first = i;
    }
    return first;
}

static void event_queue__pops_by_time_kind_and_insertion_like_a_sorted_list(void **state)
{
    (void)state;
    struct event_queue queue = {0};
    struct model_event events[ENTRIES] = {{0}};
    struct err err = {0};
    uint64_t random = 88172645463325252u;
    int64_t now = 0, inserted = 0;
    int popped = 0;
    assert_int_equal(event_queue_init(&queue, ENTRIES, &err), OK);
    for (int n = 0; n < 200000; n++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        int entry = (int)(random >> 8) % ENTRIES;
        entry = entry < 0 ? -entry : entry;
        struct model_event *event = &events[entry];
        if (random % 3 == 0) {
            int expected = first_of(events);
            enum event_kind kind;
            int64_t time_ns;
            int32_t got = event_queue_pop(&queue, &kind, &time_ns);
            assert_int_equal(got, expected);
            if (got < 0)
                continue;
            assert_int_equal(kind, events[got].kind);
            assert_int_equal(time_ns, events[got].time_ns);
            assert_true(time_ns >= now);
            now = time_ns;
            events[got].present = 0;
            popped++;
        } else if (!event->present) {
            static const int64_t reach[4] = {1, 50, 5000, (int64_t)1 << 40};
            int64_t ahead = (int64_t)((random >> 20) % (uint64_t)reach[(random >> 5) % 4]);
            *event = (struct model_event){now + ahead, inserted++, (int)(random >> 40) & 3, 1};
            event_queue_push(&queue, entry, (enum event_kind)event->kind, event->time_ns);
        } else if (random % 7 == 0) {
            event_queue_remove(&queue, entry);
            event->present = 0;
        }
    }
    assert_true(popped > 10000);
    event_queue_clear(&queue);
    event_queue_clear(&queue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(event_queue__pops_by_time_kind_and_insertion_like_a_sorted_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
