#include "cli/base/threads.h"

#include <stdlib.h>
#include <unistd.h>

void threads_start(struct threads *threads, int64_t wanted, int64_t most, void *(*work)(void *),
                   void *ctx)
{
    int64_t num = wanted > 0 ? wanted : sysconf(_SC_NPROCESSORS_ONLN);
    num = num < most ? num : most;
    *threads = (struct threads){.ids = num > 0 ? calloc((size_t)num, sizeof *threads->ids) : NULL};
    while (threads->ids && threads->num < num &&
           pthread_create(&threads->ids[threads->num], NULL, work, ctx) == 0)
        threads->num++;
    if (threads->num == 0)
        work(ctx);
}

void threads_join(struct threads *threads)
{
    for (int64_t i = 0; i < threads->num; i++)
        pthread_join(threads->ids[i], NULL);
    free(threads->ids);
    *threads = (struct threads){0};
}
