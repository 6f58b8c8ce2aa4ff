/* The machines of a run: read from the launcher's words, probed, and put into words again. */
#include "cli/launch/members.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "partition/base/arrays.h"
#include "profiles/base/whole_file.h"
#include "profiles/base/clock.h"

#define HOST_PLACE "{}" /* in the words of a probe */
enum {
    POLL_NS = 20000000,
    MAX_SLOTS = 1 << 20 /* of a line of hosts; sums of it fit 63 bits */
};

/* --- the launcher's words --------------------------------------------------------------------- */

/* The options that name hosts. file: the value is a file of them. */
static const struct {
    const char *name, *list;
    bool file;
} host_options[] = {
    {"--host",        "--host", false}, /* Open MPI */
    {"-host",         "--host", false},
    {"-H",            "--host", false},
    {"--hostfile",    "--host", true },
    {"-hostfile",     "--host", true },
    {"--machinefile", "--host", true },
    {"-machinefile",  "--host", true },
    {"-hosts",        "-hosts", false}, /* Hydra */
    {"-f",            "-hosts", true },
};

static int host_option(const char *word)
{
    for (size_t i = 0; i < sizeof host_options / sizeof *host_options; i++)
        if (strcmp(word, host_options[i].name) == 0)
            return (int)i;
    return -1;
}

/* Add slots to a host, which is new or known. slots 0 or less: none were given, which counts as one
 * more place if the host is named again. */
static enum status add_host(struct members *m, const char *name, size_t len, int64_t slots,
                            struct err *err)
{
    struct member_host *host = NULL;
    slots = slots < 0 ? 0 : slots < MAX_SLOTS ? slots : MAX_SLOTS;
    for (int i = 0; i < m->num_hosts && !host; i++)
        if (strlen(m->hosts[i].name) == len && strncmp(m->hosts[i].name, name, len) == 0)
            host = &m->hosts[i];
    if (host) {
        host->slots = (host->slots ? host->slots : 1) + (slots ? slots : 1);
        return OK;
    }
    if (!array_extend(&m->hosts, m->num_hosts, sizeof *m->hosts))
        return err_nomem(err);
    m->hosts[m->num_hosts] = (struct member_host){.name = strndup(name, len), .slots = slots};
    return m->hosts[m->num_hosts++].name ? OK : err_nomem(err);
}

/* "a:2,b:2" */
static enum status read_list(struct members *m, const char *text, struct err *err)
{
    enum status rc = OK;
    while (rc == OK && *text) {
        const size_t len = strcspn(text, ","), name = strcspn(text, ":,");
        const int64_t slots = name < len ? strtoll(text + name + 1, NULL, 10) : 0;
        if (name > 0)
            rc = add_host(m, text, name, slots, err);
        text += len + (text[len] == ',');
    }
    return rc;
}

/* The number after the word "slots=", not that of "max_slots="; 0: there is none. */
static int64_t slots_in(const char *text)
{
    for (const char *at = strstr(text, "slots="); at; at = strstr(at + 1, "slots="))
        if (at > text && (at[-1] == ' ' || at[-1] == '\t'))
            return strtoll(at + strlen("slots="), NULL, 10);
    return 0;
}

/* Lines "name slots=N" (Open MPI) or "name:N" (Hydra); # begins a comment. */
static enum status read_file(struct members *m, const char *path, struct err *err)
{
    FILE *in = NULL;
    char *line = NULL;
    size_t size = 0;
    enum status rc = input_file(path, &in, err);
    if (rc != OK)
        return rc;
    while (rc == OK && getline(&line, &size, in) > 0) {
        line[strcspn(line, "#\r\n")] = '\0';
        const char *name = line + strspn(line, " \t");
        const size_t len = strcspn(name, " \t:");
        const int64_t n =
            name[len] == ':' ? strtoll(name + len + 1, NULL, 10) : slots_in(name + len);
        if (len > 0)
            rc = add_host(m, name, len, n, err);
    }
    free(line);
    fclose(in);
    return rc;
}

/* Take the list of hosts out of the words; m->words gets the others. *agent gets the program that
 * reaches other machines, if the words name one; borrowed from text. */
static enum status split_words(struct members *m, char *text, const char **agent, struct err *err)
{
    enum status rc = OK;
    char *save = NULL, *out = m->words;
    *out = '\0';
    for (char *word = strtok_r(text, " ", &save); rc == OK && word;
         word = strtok_r(NULL, " ", &save)) {
        const int option = host_option(word);
        if (option >= 0) {
            const char *value = strtok_r(NULL, " ", &save);
            m->list = host_options[option].list;
            if (value)
                rc =
                    host_options[option].file ? read_file(m, value, err) : read_list(m, value, err);
            continue;
        }
        out += sprintf(out, "%s%s", *m->words ? " " : "", word);
        if (strcmp(word, "plm_rsh_agent") == 0 || strcmp(word, "-launcher-exec") == 0)
            *agent = save; /* the next word; strtok_r() ends it */
    }
    return rc;
}

/* ELAPSE_PROBE, or a remote `true` by the launcher's agent or by ssh. */
static enum status probe_words(struct members *m, const char *agent, struct err *err)
{
    const char *wanted = getenv("ELAPSE_PROBE");
    char *save = NULL;
    int got;
    if (wanted && *wanted)
        got = asprintf(&m->probe_text, "%s " HOST_PLACE, wanted);
    else if (agent)
        got = asprintf(&m->probe_text, "%s " HOST_PLACE " true", agent);
    else
        got = asprintf(&m->probe_text,
                       "ssh -o BatchMode=yes -o ConnectTimeout=%d " HOST_PLACE " true", PROBE_S);
    if (got < 0) {
        m->probe_text = NULL;
        return err_nomem(err);
    }
    m->probe = calloc(strlen(m->probe_text) / 2 + 2, sizeof *m->probe);
    if (!m->probe)
        return err_nomem(err);
    for (char *word = strtok_r(m->probe_text, " ", &save); word;
         word = strtok_r(NULL, " ", &save)) {
        if (strcmp(word, HOST_PLACE) == 0)
            m->host_at = m->num_probe;
        m->probe[m->num_probe++] = word;
    }
    return OK;
}

enum status members_init(const char *launcher, int64_t num_ranks, struct members *members,
                         struct err *err)
{
    struct members got = {.num_ranks = num_ranks};
    const char *agent = NULL;
    char *text = strdup(launcher);
    got.words = calloc(1, strlen(launcher) + 1);
    enum status rc = text && got.words ? split_words(&got, text, &agent, err) : err_nomem(err);
    if (rc == OK && got.list && got.num_hosts == 0)
        rc = err_set(err, ERR_INPUT, "the launcher's words '%s' name no host", launcher);
    if (rc == OK && got.num_hosts > 0)
        rc = probe_words(&got, agent, err);
    free(text);
    if (rc == OK) {
        *members = got;
        return OK;
    }
    members_clear(&got);
    return rc;
}

void members_clear(struct members *members)
{
    for (int i = 0; i < members->num_hosts; i++) {
        if (members->hosts[i].probe > 0) {
            kill(members->hosts[i].probe, SIGKILL);
            waitpid(members->hosts[i].probe, NULL, 0);
        }
        free(members->hosts[i].name);
    }
    free(members->hosts);
    free(members->words);
    free(members->probe);
    free(members->probe_text);
    *members = (struct members){0};
}

/* --- probes ----------------------------------------------------------------------------------- */

static bool is_here(const char *name)
{
    char own[256] = "";
    gethostname(own, sizeof own - 1);
    return strcmp(name, own) == 0 || strcmp(name, "localhost") == 0 ||
           strcmp(name, "127.0.0.1") == 0;
}

static void start_probe(struct members *m, struct member_host *host)
{
    host->probe_end_ns = clock_now_ns() + PROBE_S * (int64_t)1000000000;
    host->probe = fork();
    if (host->probe != 0)
        return;
    const int null = open("/dev/null", O_RDWR);
    setpgid(0, 0); /* so that a Ctrl-C is no answer */
    for (int fd = 0; null >= 0 && fd < 3; fd++)
        dup2(null, fd);
    m->probe[m->host_at] = host->name;
    execvp(m->probe[0], m->probe);
    _exit(127);
}

enum answer { NO_ANSWER_YET, ANSWERS, SILENT };

/* The answer of a probe that was started. If its time is over, the probe is killed. */
static enum answer probe_answer(struct member_host *host)
{
    int wstatus = 0;
    const pid_t got = host->probe > 0 ? waitpid(host->probe, &wstatus, WNOHANG) : -1;
    if (got == 0 && clock_now_ns() < host->probe_end_ns)
        return NO_ANSWER_YET;
    if (got == 0) {
        kill(-host->probe, SIGKILL);
        kill(host->probe, SIGKILL);
        waitpid(host->probe, &wstatus, 0);
        wstatus = -1;
    }
    host->probe = 0;
    return got > 0 && WIFEXITED(wstatus) && WEXITSTATUS(wstatus) == 0 ? ANSWERS : SILENT;
}

void members_ask(struct members *members)
{
    bool waits = true;
    for (int i = 0; i < members->num_hosts; i++) {
        struct member_host *host = &members->hosts[i];
        host->lost = !is_here(host->name);
        if (host->lost && host->probe == 0)
            start_probe(members, host);
    }
    while (waits) {
        waits = false;
        for (int i = 0; i < members->num_hosts; i++) {
            struct member_host *host = &members->hosts[i];
            if (host->probe == 0)
                continue;
            const enum answer answer = probe_answer(host);
            if (answer == ANSWERS)
                host->lost = false;
            waits |= answer == NO_ANSWER_YET;
        }
        if (waits)
            nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
    }
}

bool members_ask_lost(struct members *members)
{
    bool back = false;
    for (int i = 0; i < members->num_hosts; i++) {
        struct member_host *host = &members->hosts[i];
        const int64_t next_ns =
            host->probe_end_ns + (PROBE_EVERY_S - PROBE_S) * (int64_t)1000000000;
        if (!host->lost)
            continue;
        if (host->probe != 0)
            back |= probe_answer(host) == ANSWERS;
        else if (clock_now_ns() >= next_ns)
            start_probe(members, host);
    }
    return back;
}

/* --- what is left ----------------------------------------------------------------------------- */

int64_t members_ranks(const struct members *members)
{
    int64_t slots = 0, left = 0, hosts_left = 0, n = members->num_ranks;
    bool given = true;
    for (int i = 0; i < members->num_hosts; i++) {
        const struct member_host *host = &members->hosts[i];
        given &= host->slots > 0;
        slots += host->slots;
        left += host->lost ? 0 : host->slots;
        hosts_left += !host->lost;
    }
    if (members->num_hosts > 0 && hosts_left < members->num_hosts) {
        if (given && slots >= n)
            n = left < n ? left : n;
        else if (given) /* more ranks than slots: shares as the slots' */
            n = n * left / slots;
        else
            n = n * hosts_left / members->num_hosts;
        if (n == 0 && hosts_left > 0)
            n = 1;
    }
    n -= members->given_up;
    return n > 0 ? n : 0;
}

bool members_lost(const struct members *members, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < members->num_hosts; i++)
        if (members->hosts[i].lost && used < size)
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "",
                                     members->hosts[i].name);
    return used > 0;
}

char *members_words(const struct members *members)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    bool first = true;
    if (!out)
        return NULL;
    fputs(members->words, out);
    for (int i = 0; i < members->num_hosts; i++) {
        const struct member_host *host = &members->hosts[i];
        if (host->lost)
            continue;
        if (first)
            fprintf(out, " %s %s", members->list, host->name);
        else
            fprintf(out, ",%s", host->name);
        if (host->slots > 0)
            fprintf(out, ":%lld", (long long)host->slots);
        first = false;
    }
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}
