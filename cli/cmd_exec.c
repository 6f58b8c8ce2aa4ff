/* cli/cmd_exec.c - front door to `elapse-exec` (train, profile, eval, export): starts it under
 * mpirun with the ranks asked for and hands its exit code through.
 *
 * Only "-n RANKS" is read here; every other argument belongs to elapse-exec. Under Slurm or another
 * launcher, `srun elapse-exec train job.json` is the same program without this door. */
#include <string.h>

#include "cli/command.h"
#include "cli/launch.h"
#include "partition/units.h"

#define MAX_RANKS 4096 /* of one mpirun on one machine; beyond it a launcher of its own */

/* Take "-n RANKS" out of argv; the rest goes on in order. */
static enum status take_ranks(int *argc, char **argv, int64_t *num_ranks, bool *help,
                              struct err *err)
{
    int kept = 0;
    bool seen = false;
    for (int i = 0; i < *argc; i++) {
        const char *value = NULL;
        if (strcmp(argv[i], "--") == 0) {
            while (i < *argc)
                argv[kept++] = argv[i++];
            break;
        }
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            *help = true;
        if (strcmp(argv[i], "-n") == 0) {
            if (i + 1 >= *argc)
                return err_set(err, ERR_INPUT, "-n needs a value (RANKS)");
            value = argv[++i];
        } else if (strncmp(argv[i], "-n", 2) == 0) {
            value = argv[i] + 2 + (argv[i][2] == '=');
        } else {
            argv[kept++] = argv[i];
            continue;
        }
        if (seen)
            return err_set(err, ERR_INPUT, "-n given twice");
        seen = true;
        enum status rc = parse_int(value, "-n", 1, MAX_RANKS, num_ranks, err);
        if (rc != OK)
            return rc;
    }
    argv[kept] = NULL;
    *argc = kept;
    return OK;
}

static enum status run_front(const struct command *command, int argc, char **argv, struct err *err)
{
    /* A profile wants the links too, and for those two ranks. */
    int64_t num_ranks = strcmp(command->name, "profile") == 0 ? 2 : 1;
    bool help = false;
    enum status rc = take_ranks(&argc, argv, &num_ranks, &help, err);
    if (rc != OK) {
        err_hint(err, "'elapse %s --help' lists the options", command->name);
        return rc;
    }
    return launch_exec(help ? 0 : num_ranks, argc, argv, -1, err);
}

const struct command command_train = {"train", "JOB [-n RANKS] [--out DIR] [--resume DIR] [...]",
                                      "train a job for real, on RANKS processes", run_front};
const struct command command_profile = {"profile", "[--model MODEL] [-n RANKS] [--db FILE] [...]",
                                        "measure this machine into the profile store", run_front};
const struct command command_eval = {"eval", "CHECKPOINT JOB [-n RANKS]",
                                     "evaluate a checkpoint on the job's test data", run_front};
const struct command command_export = {"export", "CHECKPOINT -o FILE.safetensors",
                                       "hand the weights to other tools", run_front};
