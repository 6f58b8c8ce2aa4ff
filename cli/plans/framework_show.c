#include "cli/plans/framework_show.h"

#include <stdio.h>

#include "partition/base/units.h"

void framework_show_print(const struct framework_range *range)
{
    char low[32], high[32];
    const int n = range->count;
    if (!range->unnamed)
        return;
    printf("framework: none named, taken are %s", framework_range_taken);
    for (int i = 0; i < n; i++) {
        if (i == 0)
            printf("; %s to %s over ", format_ns(range->likely[0].step_ns, low, sizeof low),
                   format_ns(range->likely[n - 1].step_ns, high, sizeof high));
        printf("%s%s", i > 0 ? ", " : "", range->likely[i].name);
    }
    printf("\n");
}

void framework_show_add(const struct framework_range *range, struct json *json)
{
    if (!range->unnamed)
        return;
    struct json *object = json_add_object(json, "framework_range");
    json_add_string(object, "taken", framework_range_taken);
    struct json *list = json_add_array(object, "likely");
    for (int i = 0; i < range->count; i++) {
        struct json *one = json_add_object(list, NULL);
        json_add_string(one, "framework", range->likely[i].name);
        json_add_int(one, "ns", range->likely[i].step_ns);
    }
}
