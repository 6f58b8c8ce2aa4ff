/* cli/commands/cmd_doctor.c - `elapse doctor`: what this machine has for plan, sim, train and plot, and the
 * line that installs what is missing.
 *
 * This file checks what elapse can see itself. elapse-exec reports on libraries and GPUs ("facts"),
 * and two ranks send each other messages ("ping"). A machine without elapse-exec or MPI still gets
 * the other checks. Read run() at the end first. */
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "cli/base/command.h"
#include "cli/launch/launch.h"
#include "partition/base/units.h"
#include "profiles/base/machine_memory.h"
#include "profiles/json/build_facts.h"

#define SHM_MIN_BYTES ((int64_t)64 << 20)   /* Open MPI's segments of a few ranks */
#define DISK_MIN_BYTES ((int64_t)256 << 20) /* a run of a small model, with its checkpoints */
#define MEMORY_MIN_BYTES ((int64_t)512 << 20)
#define MAX_CHECKS 24
#define LOOK_US 300000 /* for which other programs are watched */
#define BUSY_SHARE 0.2 /* of the cores */
#define PING_MAX_NS                                                                                \
    500000 /* one way on a quiet machine: some us, with ranks that share a core 100 us */

#define BUILD_PACKAGES                                                                             \
    "gcc make pkg-config libc6-dev libsqlite3-dev libcjson-dev libopenblas-dev libopenmpi-dev "    \
    "openmpi-bin libssl-dev zlib1g-dev libjpeg-dev libpng-dev libwebp-dev "                        \
    "libpcre2-dev libutf8proc-dev"

struct check {
    const char *name;
    bool ok, needed;
    bool busy; /* not ok because of other programs: nothing is missing, but times say little */
    char detail[320];
    char install[320]; /* a command line; "": none */
};

struct doctor {
    const char *out; /* of --out */
    struct check checks[MAX_CHECKS];
    int num;
};

/* Add a check with what was found. install goes with checks that are not ok. */
__attribute__((format(printf, 5, 6))) static struct check *
add(struct doctor *doctor, const char *name, bool needed, bool ok, const char *format, ...)
{
    struct check *check =
        &doctor->checks[doctor->num < MAX_CHECKS ? doctor->num++ : MAX_CHECKS - 1];
    va_list list;
    *check = (struct check){.name = name, .needed = needed, .ok = ok};
    va_start(list, format);
    vsnprintf(check->detail, sizeof check->detail, format, list);
    va_end(list);
    check->detail[strcspn(check->detail, "\r\n")] = '\0';
    return check;
}

/* The line that installs packages, where the check is not ok. */
static void packages(struct check *check, const char *names, const char *then)
{
    if (!check->ok)
        snprintf(check->install, sizeof check->install, "%sapt-get install -y %s%s",
                 geteuid() == 0 ? "" : "sudo ", names, then);
}

/* --- this machine ----------------------------------------------------------------------------- */

/* The value of the first line "KEY...: VALUE" of a file; "" where there is none. */
static void read_value(const char *path, const char *key, char *value, size_t size)
{
    FILE *in = fopen(path, "r");
    char line[256];
    value[0] = '\0';
    while (in && fgets(line, sizeof line, in)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, key, strlen(key)) != 0 || !colon)
            continue;
        colon += 1 + strspn(colon + 1, " \t");
        snprintf(value, size, "%.*s", (int)strcspn(colon, "\n"), colon);
        break;
    }
    if (in)
        fclose(in);
}

static void check_cores(struct doctor *doctor)
{
    char model[96], cores[32];
    cpu_set_t set;
    const int at_hand = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
    read_value("/proc/cpuinfo", "model name", model, sizeof model);
    add(doctor, "cores", true, at_hand > 0, "%s available of %ld%s%s",
        format_count(at_hand, "core", cores, sizeof cores), sysconf(_SC_NPROCESSORS_ONLN),
        *model ? ", " : "", model);
}

/* The time that all cores have spent, and the part of it in which they were idle, in ticks. */
static bool read_ticks(double *total, double *idle)
{
    double ticks[8] = {0}; /* user nice system idle iowait irq softirq steal */
    FILE *in = fopen("/proc/stat", "r");
    const bool got =
        in && fscanf(in, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &ticks[0], &ticks[1], &ticks[2],
                     &ticks[3], &ticks[4], &ticks[5], &ticks[6], &ticks[7]) == 8;
    *total = 0;
    for (int i = 0; i < 8; i++)
        *total += ticks[i];
    *idle = ticks[3] + ticks[4];
    if (in)
        fclose(in);
    return got;
}

/* The share of the cores that other programs, or other machines of the host (steal), use now. */
static void check_load(struct doctor *doctor)
{
    double total[2], idle[2], load = 0;
    const bool first = read_ticks(&total[0], &idle[0]);
    usleep(LOOK_US);
    if (!first || !read_ticks(&total[1], &idle[1]) || total[1] <= total[0])
        return;
    const double share = 1 - (idle[1] - idle[0]) / (total[1] - total[0]);
    const bool quiet = share <= BUSY_SHARE;
    (void)getloadavg(&load, 1);
    add(doctor, "load", false, quiet,
        "other programs take %.0f %% of the cores, load average %.1f%s", 100 * share, load,
        quiet ? "" : "; profiles and run times are unreliable now")
        ->busy = !quiet;
}

static void check_memory(struct doctor *doctor)
{
    char total[32], free_text[32];
    const int64_t bytes = memory_total(), free_bytes = memory_available();
    const int64_t available = free_bytes < bytes ? free_bytes : bytes;
    add(doctor, "memory", true, available >= MEMORY_MIN_BYTES, "%s, %s available",
        format_bytes(bytes, total, sizeof total),
        format_bytes(available, free_text, sizeof free_text));
}

/* The folder that exists on the way to a path that may not. */
static void existing_part(const char *path, char *part, size_t size)
{
    snprintf(part, size, "%s", path);
    while (access(part, F_OK) != 0 && strcmp(part, "/") != 0 && strcmp(part, ".") != 0) {
        char *slash = strrchr(part, '/');
        if (!slash)
            snprintf(part, size, ".");
        else
            slash[slash == part] = '\0';
    }
}

/* Room and right to write below a path. */
static struct check *check_room(struct doctor *doctor, const char *name, const char *path,
                                int64_t least)
{
    char part[4096], total[32], left[32];
    struct statvfs room;
    existing_part(path, part, sizeof part);
    if (statvfs(part, &room) != 0)
        return add(doctor, name, true, false, "%s: cannot read its size", path);
    const int64_t bytes = (int64_t)room.f_bavail * (int64_t)room.f_frsize;
    const bool writable = access(part, W_OK) == 0;
    return add(doctor, name, true, writable && bytes >= least, "%.200s: %s, %s free%s", path,
               format_bytes((int64_t)room.f_blocks * (int64_t)room.f_frsize, total, sizeof total),
               format_bytes(bytes, left, sizeof left), writable ? "" : ", not writable");
}

static void check_rooms(struct doctor *doctor)
{
    struct check *check = check_room(doctor, "shm", "/dev/shm", SHM_MIN_BYTES);
    if (!check->ok)
        snprintf(check->install, sizeof check->install,
                 "%smount -o remount,size=1G /dev/shm (a container: docker run --shm-size=1g)",
                 geteuid() == 0 ? "" : "sudo ");
    check_room(doctor, "out", doctor->out, DISK_MIN_BYTES);
}

/* The first line that a program prints; false where it cannot be run. */
static bool first_line(const char *command, char *line, size_t size)
{
    fflush(NULL);
    FILE *in = popen(command, "r");
    const bool got = in && fgets(line, (int)size, in) != NULL;
    return (in ? pclose(in) : -1) == 0 && got;
}

static void check_programs(struct doctor *doctor)
{
    char line[128], libraries[96];
    build_libraries(libraries, sizeof libraries);
    add(doctor, "libraries", true, true, "%s", libraries);
    const bool ok = first_line("gnuplot --version 2>/dev/null", line, sizeof line);
    packages(add(doctor, "gnuplot", true, ok, "%s",
                 ok ? line : "not found; plot and report draw with it"),
             "gnuplot-nox", "");
}

/* --- elapse-exec, MPI ------------------------------------------------------------------------- */

/* Run a command of elapse-exec and parse its answer. *why gets the reason where that fails. */
static struct json *ask_exec(const char *command, int64_t num_ranks, char *why, size_t size)
{
    char word[16], *argv[] = {word, NULL}, *answer = NULL, *complaint = NULL;
    struct json *json = NULL;
    struct err err = {0};
    snprintf(word, sizeof word, "%s", command);
    const struct launch launch = {
        .num_ranks = num_ranks, .answer = &answer, .complaint = &complaint};
    enum status rc = launch_exec(&launch, 1, argv, NULL, &err);
    if (rc == OK && answer)
        rc = json_parse(answer, command, &json, &err);
    /* The ranks' own words say more than how they ended. */
    const char *first = complaint ? complaint + strspn(complaint, "\n-") : "";
    if (rc != OK || !json)
        snprintf(why, size, "%.*s", (int)strcspn(*first ? first : err.msg, "\n"),
                 *first ? first : err.msg);
    free(answer);
    free(complaint);
    return json;
}

static const char *text_of(const struct json *json, const char *key)
{
    const char *text = json_string(json_get(json, key));
    return text ? text : "";
}

static double number_of(const struct json *json, const char *key)
{
    const struct json *value = json_get(json, key);
    return value ? json_number(value) : 0;
}

static void check_libraries(struct doctor *doctor, const struct json *facts)
{
    add(doctor, "blas", true, true,
        "%s, core %s, %.0f of its own threads a rank; kernels: fp32 %s, bf16 %s",
        text_of(facts, "blas"), text_of(facts, "blas_core"), number_of(facts, "blas_threads"),
        text_of(facts, "fp32_kernel"), text_of(facts, "bf16_kernel"));
    add(doctor, "mpi", true, true, "%s, started by '%s'", text_of(facts, "mpi"), launch_words());
    add(doctor, "crypto", true, true, "%s, zlib %s", text_of(facts, "crypto"),
        text_of(facts, "zlib"));
}

static void check_ping(struct doctor *doctor)
{
    char why[256] = "", latency[32];
    struct json *ping = ask_exec("ping", 2, why, sizeof why);
    if (ping) {
        const bool slow = number_of(ping, "latency_ns") > PING_MAX_NS;
        add(doctor, "ping", !slow, !slow, "2 ranks: %s one way, %.2f GB/s%s",
            format_ns((int64_t)number_of(ping, "latency_ns"), latency, sizeof latency),
            number_of(ping, "bytes_per_s") / 1e9, slow ? "; ranks wait for a core" : "")
            ->busy = slow;
    } else
        packages(add(doctor, "ping", true, false, "2 ranks: %s", why), "openmpi-bin", "");
    json_free(ping);
}

/* --- GPUs ------------------------------------------------------------------------------------- */

static void check_version(struct doctor *doctor, const struct json *facts, const char *name,
                          const char *package)
{
    const char *version = text_of(facts, name);
    struct check *check = add(doctor, name, false, *version != '\0', "%s",
                              *version ? version : "not found; only GPUs use it");
    packages(check, package, "");
}

static void check_gpus(struct doctor *doctor, const struct json *facts)
{
    const struct json *gpus = json_get(facts, "gpus"), *first = gpus ? json_first(gpus) : NULL;
    char driver[128] = "", memory[32];
    const bool has_driver =
        first_line("cat /proc/driver/nvidia/version 2>/dev/null", driver, sizeof driver);
    const bool on_bus = has_driver || first_line("grep -l 0x10de /sys/bus/pci/devices/*/vendor "
                                                 "2>/dev/null",
                                                 driver, sizeof driver);
    if (first) {
        add(doctor, "gpu", false, true, "%d x %s, %s each, driver for CUDA %s, runtime %s",
            json_count(gpus), text_of(first, "name"),
            format_bytes((int64_t)number_of(first, "memory_bytes"), memory, sizeof memory),
            text_of(first, "driver"), text_of(first, "runtime"));
        add(doctor, "cublas", false, true, "cuBLASLt %s", text_of(first, "cublaslt"));
    } else if (!on_bus) {
        add(doctor, "gpu", false, false, "no NVIDIA GPU in this machine");
        return;
    } else if (!has_driver) {
        packages(add(doctor, "gpu", false, false, "an NVIDIA GPU without its driver"),
                 "nvidia-driver", "");
    } else {
        packages(add(doctor, "gpu", false, false, "driver %.100s; %.150s", driver,
                     facts ? text_of(facts, "gpu_reason") : "no elapse-exec"),
                 "nvidia-cuda-toolkit", " && make");
    }
    check_version(doctor, facts, "nccl", "libnccl2 libnccl-dev");
    check_version(doctor, facts, "cudnn", "libcudnn9-cuda-12");
}

/* --- answer ----------------------------------------------------------------------------------- */

static void examine(struct doctor *doctor)
{
    char path[PATH_MAX], why[256] = "";
    struct json *facts = NULL;
    struct err err = {0};
    check_cores(doctor);
    check_load(doctor);
    check_memory(doctor);
    check_rooms(doctor);
    check_programs(doctor);
    if (launch_find(path, &err) != OK) {
        packages(add(doctor, "elapse-exec", true, false,
                     "not installed next to elapse; profile, train and eval need it"),
                 BUILD_PACKAGES, " && make");
    } else if (!(facts = ask_exec("facts", 0, why, sizeof why))) {
        packages(add(doctor, "elapse-exec", true, false, "%s", why), BUILD_PACKAGES, " && make");
    } else {
        add(doctor, "elapse-exec", true, true, "%.300s", path);
        check_libraries(doctor, facts);
        check_ping(doctor);
    }
    check_gpus(doctor, facts);
    json_free(facts);
}

static enum status print_json(const struct command *command, const struct doctor *doctor, bool ok,
                              struct err *err)
{
    struct json *json = command_json(command);
    json_add_string(json, "out", doctor->out);
    build_facts_to_json(json_add_object(json, "build"));
    json_add_bool(json, "ok", ok);
    struct json *list = json_add_array(json, "checks");
    for (int i = 0; i < doctor->num; i++) {
        const struct check *check = &doctor->checks[i];
        struct json *one = json_add_object(list, NULL);
        json_add_string(one, "name", check->name);
        json_add_bool(one, "ok", check->ok);
        json_add_bool(one, "needed", check->needed);
        json_add_bool(one, "busy", check->busy);
        json_add_string(one, "detail", check->detail);
        if (*check->install)
            json_add_string(one, "install", check->install);
    }
    return command_answer(json, err);
}

static void print_text(const struct doctor *doctor, bool ok)
{
    for (int i = 0; i < doctor->num; i++) {
        const struct check *check = &doctor->checks[i];
        printf("%-7s %-11s %s\n",
               check->ok       ? "ok"
               : check->busy   ? "BUSY"
               : check->needed ? "MISSING"
                               : "-",
               check->name, check->detail);
        if (*check->install)
            printf("%-7s %-11s %s\n", "", "", check->install);
    }
    if (ok)
        printf("\nprofile, plan, sim, train and plot have all that they need\n");
}

static enum status run(const struct command *command, int argc, char **argv, struct err *err)
{
    struct doctor doctor = {.out = "runs"};
    bool as_json = false;
    const struct option options[] = {
        OPTION("out", STRING, &doctor.out, "DIR", "where runs are to be written (default runs)"),
        OPTION_JSON(&as_json),
    };
    struct command_line line = COMMAND_LINE(options, 0);
    enum status rc = command_parse(command, &line, argc, argv, err);
    if (rc != OK || line.help)
        return rc;
    char missing[256] = "";
    examine(&doctor);
    for (int i = 0; i < doctor.num; i++)
        if (doctor.checks[i].needed && !doctor.checks[i].ok)
            snprintf(missing + strlen(missing), sizeof missing - strlen(missing), " %s",
                     doctor.checks[i].name);
    if (as_json)
        rc = print_json(command, &doctor, !*missing, err);
    else
        print_text(&doctor, !*missing);
    if (rc == OK && *missing)
        rc = err_set(err, ERR_INFEASIBLE, "missing or too small:%s", missing);
    return rc;
}

const struct command command_doctor = {
    .name = "doctor",
    .args = "[--out DIR] [--json]",
    .summary = "what runs need and this machine lacks, and the commands that install it",
    .takes = "",
    .run = run,
};
