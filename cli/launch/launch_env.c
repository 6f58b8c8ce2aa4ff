/* The table of settings comes first; each row was measured on the launcher that it names. */
#include "cli/launch/launch_env.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OMPI_4 "Open MPI 4.1.4"
#define OMPI_5 "Open MPI 5.0.11"

/* The conditions under which a row applies. */
enum when { ALWAYS, NO_WORDS /* the launcher has no arguments */, ONE_MACHINE };

/* clang-format off */
/* Settings by launcher. seen: the version on which the reason beside it was seen. */
static const struct setting {
    const char *name, *value;
    enum when when;
    const char *seen;
} settings[] = {
    /* It does not run as root, as containers and CI do; it asks twice. */
    {"OMPI_ALLOW_RUN_AS_ROOT", "1", ALWAYS, OMPI_4},
    {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", ALWAYS, OMPI_4},
    {"PRTE_ALLOW_RUN_AS_ROOT", "1", ALWAYS, OMPI_5},
    {"PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1", ALWAYS, OMPI_5},
    /* It refuses more ranks than cores. */
    {"OMPI_MCA_rmaps_base_oversubscribe", "1", ALWAYS, OMPI_4},
    {"PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe", ALWAYS, OMPI_5},
    /* It binds cores, as elapse-exec does, and refuses hostfiles with more slots than cores. */
    {"OMPI_MCA_hwloc_base_binding_policy", "none", ALWAYS, OMPI_4},
    {"PRTE_MCA_hwloc_default_binding_policy", "none", ALWAYS, OMPI_5},
    /* Its daemons do not notice a lost machine. They now probe each other's each second; five
     * probes without an answer end the job. Kernels answer, so ranks may be stopped. */
    {"OMPI_MCA_oob_tcp_keepalive_time", "1", ALWAYS, OMPI_4},
    {"OMPI_MCA_oob_tcp_keepalive_intvl", "1", ALWAYS, OMPI_4},
    {"OMPI_MCA_oob_tcp_keepalive_probes", "5", ALWAYS, OMPI_4},
    {"PRTE_MCA_oob_tcp_keepalive_time", "1", ALWAYS, OMPI_5},
    {"PRTE_MCA_oob_tcp_keepalive_intvl", "1", ALWAYS, OMPI_5},
    {"PRTE_MCA_oob_tcp_keepalive_probes", "5", ALWAYS, OMPI_5},
    /* It waits twice for a second before it kills the ranks that a lost one leaves. */
    {"OMPI_MCA_odls_base_sigkill_timeout", "0", ALWAYS, OMPI_4},
    {"PRTE_MCA_odls_base_sigkill_timeout", "0", ALWAYS, OMPI_5},
    /* mpirun closes pipes of killed ranks that epoll still knows, and libevent warns of it. Ranks of
     * Open MPI 5.0.11 end in MPI_Init() without epoll, so comm_init() takes this back. */
    {"EVENT_NOEPOLL", "1", ALWAYS, OMPI_4},
    /* It prints banners. With words of the user, as for several nodes, one names the lost node. */
    {"OMPI_MCA_orte_execute_quiet", "1", NO_WORDS, OMPI_4},
    /* Every rank listens on all network interfaces. Open MPI 5 knows its `sm` as vader too. */
    {"OMPI_MCA_pml", "ob1", ONE_MACHINE, OMPI_4},
    {"OMPI_MCA_btl", "self,vader", ONE_MACHINE, OMPI_4},
    /* Ranks call OpenBLAS from threads of their own. */
    {"OPENBLAS_NUM_THREADS", "1", ALWAYS, "any"},
};
/* clang-format on */
enum { NUM_SETTINGS = sizeof settings / sizeof *settings };

void launch_env_set(const char *launcher, bool one_machine)
{
    static bool ours[NUM_SETTINGS]; /* of ONE_MACHINE: set here, not by the user */
    const bool no_words = !strchr(launcher, ' ');
    for (int i = 0; i < NUM_SETTINGS; i++) {
        const struct setting *s = &settings[i];
        const bool wanted = s->when == ALWAYS || (s->when == NO_WORDS && no_words) ||
                            (s->when == ONE_MACHINE && one_machine);
        if (wanted && !getenv(s->name))
            ours[i] = setenv(s->name, s->value, 0) == 0;
        else if (s->when == ONE_MACHINE && !wanted && ours[i])
            ours[i] = unsetenv(s->name) != 0;
    }
    /* Threads of a rank spin for about 0.1 ms while they wait for each other. libgomp's default of
     * 300,000 turns takes twenty times as long as the work if other processes need the cores, and
     * gains nothing otherwise. */
    if (!getenv("OMP_WAIT_POLICY"))
        setenv("GOMP_SPINCOUNT", "3000", 0);
    if (isatty(STDERR_FILENO)) /* ranks cannot see this, because mpirun gives them a pipe */
        setenv("ELAPSE_TTY", "1", 1);
}

/* --- one machine ------------------------------------------------------------------------------ */

/* The value of the first of these variables that is set; NULL: none. */
static const char *first_of(const char *const *names, int num)
{
    const char *value = NULL;
    for (int i = 0; i < num && !value; i++)
        value = getenv(names[i]);
    return value;
}

/* Whether Slurm gives this process no other machine than this one. mpirun compares the names of
 * nodes with the host name, so a node of another name is another machine, though it may be this one.
 * Domains do not count. */
static bool slurm_is_here(void)
{
    static const char *const counts[] = {"SLURM_JOB_NUM_NODES", "SLURM_NNODES"};
    static const char *const lists[] = {"SLURM_JOB_NODELIST", "SLURM_NODELIST"};
    const char *count = first_of(counts, 2), *list = first_of(lists, 2);
    char own[256] = "";
    if (!count && !list)
        return true;
    if (!list || (count && strcmp(count, "1") != 0) || gethostname(own, sizeof own - 1) != 0)
        return false;
    const size_t length = strcspn(own, ".");
    return strcspn(list, ".") == length && strncmp(list, own, length) == 0;
}

bool launch_env_one_machine(const char *launcher)
{
    static const char *const lists[] = {"PBS_NODEFILE",
                                        "LSB_HOSTS",
                                        "LSB_DJOB_HOSTFILE",
                                        "PE_HOSTFILE",
                                        "OMPI_MCA_orte_default_hostfile",
                                        "PRTE_MCA_prte_default_hostfile",
                                        "HYDRA_HOST_FILE",
                                        "I_MPI_HYDRA_HOST_FILE"};
    return !strchr(launcher, ' ') && slurm_is_here() &&
           !first_of(lists, sizeof lists / sizeof *lists);
}

/* --- shared memory of Open MPI ---------------------------------------------------------------- */

static const char *const shared_settings[] = {"OMPI_MCA_btl_vader_backing_directory",
                                              "OMPI_MCA_btl_sm_backing_directory",
                                              "OMPI_MCA_osc_sm_backing_directory"};
enum { NUM_SHARED = sizeof shared_settings / sizeof *shared_settings };

void launch_env_share(bool one_machine, char folder[SHARED_FOLDER_MAX])
{
    bool chosen = !one_machine;
    for (int i = 0; i < NUM_SHARED; i++)
        chosen |= getenv(shared_settings[i]) != NULL;
    strcpy(folder, "/dev/shm/elapse-mpi-XXXXXX");
    if (chosen || !mkdtemp(folder)) {
        folder[0] = '\0';
        return;
    }
    for (int i = 0; i < NUM_SHARED; i++)
        setenv(shared_settings[i], folder, 1);
    setenv("ELAPSE_STARTS", folder, 1);
}

void launch_env_unshare(const char *folder)
{
    struct dirent *entry;
    if (!*folder)
        return;
    unsetenv("ELAPSE_STARTS");
    for (int i = 0; i < NUM_SHARED; i++)
        unsetenv(shared_settings[i]);
    DIR *list = opendir(folder);
    while (list && (entry = readdir(list)))
        unlinkat(dirfd(list), entry->d_name, 0);
    if (list)
        closedir(list);
    rmdir(folder);
}
