#include "cli/base/fault_trace.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profiles/base/whole_file.h"

enum { TRACE_EVENTS_MAX = 1000000 };

enum status fault_trace_read(const char *path, bool steps, struct fault_event **events, int *count,
                             struct err *err)
{
    char *text = NULL, *rest = NULL;
    int room = 0, line_number = 0;
    enum status rc = file_read_text(path, &text, err);
    for (char *line = rc == OK ? strtok_r(text, "\n", &rest) : NULL; line && rc == OK;
         line = strtok_r(NULL, "\n", &rest)) {
        double when;
        int node, used = 0;
        char word[8], more;
        if (line_number++ == 0 && (*line < '-' || *line > '9'))
            continue;
        if (sscanf(line, "%lf,%d,%7[a-z]%n %c", &when, &node, word, &used, &more) != 3 ||
            (strcmp(word, "lost") != 0 && strcmp(word, "back") != 0) ||
            !(when >= 0 && when < 9e9) || (steps && when != floor(when))) {
            rc = err_set(err, ERR_INPUT, "%s: line %d must be %s,node,lost|back, got '%.60s'", path,
                         line_number, steps ? "step" : "seconds", line);
            break;
        }
        if (*count == room) {
            room = room ? 2 * room : 64;
            struct fault_event *more_events = room <= TRACE_EVENTS_MAX * 2
                                                  ? realloc(*events, (size_t)room * sizeof **events)
                                                  : NULL;
            if (!more_events) {
                rc = err_nomem(err);
                break;
            }
            *events = more_events;
        }
        (*events)[(*count)++] = (struct fault_event){(int64_t)(steps ? when : when * 1e9 + 0.5),
                                                     node, strcmp(word, "back") == 0};
    }
    free(text);
    return rc;
}
