#include "exec/trainer/stop.h"

#include <signal.h>

#include "exec/trainer/trainer.h"

static volatile sig_atomic_t stop_asked, stop_signal, yield_asked;

void trainer_yield(void)
{
    yield_asked = 1;
}

void trainer_stop(int signal_number)
{
    stop_asked = 1;
    if (stop_signal == 0 && (signal_number == SIGINT || signal_number == SIGTERM))
        stop_signal = signal_number;
}

int trainer_stop_signal(void)
{
    return stop_signal;
}

bool stop_wanted(void)
{
    return stop_asked;
}

bool stop_yielded(void)
{
    return yield_asked;
}

enum status stop_agreed(const struct comm_group *group, bool *stopped, struct err *err)
{
    int64_t wanted = stop_asked;
    enum status rc = comm_max_i64(group, &wanted, 1, err);
    *stopped = rc == OK && wanted != 0;
    return rc;
}
