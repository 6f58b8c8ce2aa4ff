/* What launchers tell each process in its environment. */
#include "exec/comm/starter.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partition/base/units.h"

/* The innermost launcher comes first: mpirun may start its daemons by srun, whose variables the ranks
 * then have too. Seen on Open MPI 4.1.4 and 5.0.11, MPICH 4.0.2 and 5.0.2 and Slurm 22.05.8. */
static const struct starter {
    const char *name, *size, *rank;
} starters[] = {
    {"Open MPI's mpirun",        "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
    {"an mpiexec that uses PMI", "PMI_SIZE",             "PMI_RANK"            },
    {"srun",                     "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"        },
};

#define ADVICE                                                                                     \
    "srun --mpi=pmix for Open MPI, srun --mpi=pmi2 for MPICH and Intel MPI; or, inside salloc or " \
    "sbatch, 'elapse train', which starts the mpirun of its own MPI"

static int number_in(const char *name)
{
    const char *text = getenv(name);
    return text ? atoi(text) : 0;
}

/* NULL: nobody started it with others. */
static const struct starter *starter_of(void)
{
    for (size_t i = 0; i < sizeof starters / sizeof *starters; i++)
        if (number_in(starters[i].size) > 0)
            return &starters[i];
    return NULL;
}

enum status starter_check_plugin(struct err *err)
{
    const struct starter *by = starter_of();
    if (!by || strcmp(by->name, "srun") != 0 || number_in(by->size) < 2 ||
        getenv("PMIX_NAMESPACE") || getenv("PMI_FD") || getenv("PMI_RANK"))
        return OK;
    const char *plugin = getenv("SLURM_MPI_TYPE");
    err_set(err, ERR_SYSTEM,
            "srun started %d tasks with MPI plugin '%s', by which they cannot find each other",
            number_in(by->size), plugin ? plugin : "none");
    err_hint(err, ADVICE);
    return ERR_SYSTEM;
}

/* The first line of MPI's own name, without what follows a comma: "MPICH Version: 4.0.2". */
static void name_mpi(char text[MPI_MAX_LIBRARY_VERSION_STRING])
{
    int length = 0;
    text[0] = '\0';
    MPI_Get_library_version(text, &length);
    text[strcspn(text, ",\n")] = '\0';
    for (char *at = text; *at; at++)
        if (*at == '\t')
            *at = ' ';
}

static enum status check_alone(int num_ranks, struct err *err)
{
    const struct starter *by = starter_of();
    char mpi[MPI_MAX_LIBRARY_VERSION_STRING], plugin[64] = "";
    if (num_ranks != 1 || !by || number_in(by->size) < 2)
        return OK;
    if (getenv("SLURM_MPI_TYPE"))
        snprintf(plugin, sizeof plugin, " with MPI plugin '%.20s'", getenv("SLURM_MPI_TYPE"));
    name_mpi(mpi);
    err_set(err, ERR_SYSTEM, "%s started %d processes%s, but '%.80s' knows each of them alone",
            *plugin ? "srun" : by->name, number_in(by->size), plugin, mpi);
    if (*plugin || strcmp(by->name, "srun") == 0)
        err_hint(err, ADVICE);
    else
        err_hint(err, "start it by the mpirun of that MPI");
    return ERR_SYSTEM;
}

enum status starter_check_ranks(int64_t num_asked, int num_ranks, struct err *err)
{
    if (num_asked == 0)
        return check_alone(num_ranks, err);
    if (num_asked == num_ranks)
        return OK;
    err_set(err, ERR_SYSTEM, "%s asked for, MPI knows %d", COUNT_TEXT(num_asked, "rank"),
            num_ranks);
    err_hint(err, "is mpirun another MPI's? ELAPSE_MPIRUN names the one of this program");
    return ERR_SYSTEM;
}

bool starter_speaks(void)
{
    const struct starter *by = starter_of();
    return !by || number_in(by->rank) == 0;
}
