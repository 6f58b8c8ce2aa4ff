/* cli/launch/members.h - the machines of a run, of which some may be lost and return.
 *
 * The machines are those that the launcher's words name (--host, --hostfile and their other
 * spellings, Hydra's -hosts and -f). Without them there is one machine, this one, which is never
 * lost. A machine is lost while it does not answer a probe.
 *
 * A rank that was lost on a machine that answers is expected back at once. Only if the run is lost
 * twice without a new checkpoint between, one rank is given up (member given_up). */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "partition/base/status.h"

struct member_host {
    char *name;
    int64_t slots; /* 0: not given */
    bool lost;
    pid_t probe; /* 0: none is under way */
    int64_t probe_end_ns;
};

struct members {
    struct member_host *hosts; /* owned; none: this machine only */
    int num_hosts;
    int64_t num_ranks; /* that were asked for */
    int64_t given_up;  /* ranks that the run does without, on machines that answer */
    char *words;       /* owned; the launcher's, without its list of hosts */
    const char *list;  /* the option that names hosts to this launcher */
    char **probe; /* owned; the words of a probe, the last one is the host's place; NULL-ended */
    int num_probe, host_at;
    char *probe_text; /* owned; what `probe` points into */
};

/* Read the launcher's words and, if they name one, its file of hosts. ERR_SYSTEM: the file cannot
 * be read; ERR_INPUT: it names no host. *members must be zeroed. */
enum status members_init(const char *launcher, int64_t num_ranks, struct members *members,
                         struct err *err);
void members_clear(struct members *members);

/* Ask all machines, and wait for their answers for at most PROBE_S seconds in all. */
void members_ask(struct members *members);
/* Ask the lost machines without waiting; to be called often. Returns whether one answers again. It
 * stays lost until members_ask(). */
bool members_ask_lost(struct members *members);
enum { PROBE_S = 6, PROBE_EVERY_S = 1 };

/* Ranks for the machines that answer: their slots, or their share of the ranks that were asked for,
 * without ranks that were given up. At least 0. */
int64_t members_ranks(const struct members *members);
/* Names of lost machines, separated by commas. Returns whether there are any. */
bool members_lost(const struct members *members, char *text, size_t size);
/* The launcher's words for the machines that answer; fresh. NULL: no memory. */
char *members_words(const struct members *members);
