#include "exec/comm/shm_map.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PATH_BYTES = 512 };

enum status shm_failed(const char *what, int code, struct err *err)
{
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    int length;
    MPI_Error_string(code, text, &length);
    return err_set(err, ERR_SYSTEM, "shared memory: %s failed: %.200s", what, text);
}

enum status shm_agree(MPI_Comm comm, bool fine, bool *all_fine, struct err *err)
{
    int mine = fine, all = 0;
    const int code = MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, comm);
    *all_fine = code == MPI_SUCCESS && all;
    return code == MPI_SUCCESS ? OK : shm_failed("MPI_Allreduce", code, err);
}

/* Rank 0 makes a file of that size, with its pages: one without them would end a rank by SIGBUS where
 * /dev/shm is full when it is touched. Returns its descriptor, or -1 with path "". */
static int make_file(char path[PATH_BYTES], int64_t bytes)
{
    const char *folder =
        getenv("OMPI_MCA_osc_sm_backing_directory"); /* see cli/launch/launch_env.c */
    const int length = snprintf(path, PATH_BYTES, "%s/elapse-sums-XXXXXX",
                                folder && *folder ? folder : "/dev/shm");
    int fd = length < PATH_BYTES ? mkostemp(path, O_CLOEXEC) : -1;
    if (fd >= 0 && posix_fallocate(fd, 0, bytes) != 0) {
        close(fd);
        unlink(path);
        fd = -1;
    }
    if (fd < 0)
        path[0] = '\0';
    return fd;
}

enum status shm_map(MPI_Comm comm, size_t bytes, void **memory, struct err *err)
{
    char path[PATH_BYTES] = "";
    void *got = MAP_FAILED;
    bool all_fine = false;
    int rank, fd = -1;
    MPI_Comm_rank(comm, &rank);
    if (rank == 0)
        fd = make_file(path, (int64_t)bytes);
    const int code = MPI_Bcast(path, sizeof path, MPI_CHAR, 0, comm);
    if (code == MPI_SUCCESS && rank != 0 && *path)
        fd = open(path, O_RDWR | O_CLOEXEC);
    if (code == MPI_SUCCESS && fd >= 0)
        got = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    enum status rc = code != MPI_SUCCESS ? shm_failed("MPI_Bcast", code, err)
                                         : shm_agree(comm, got != MAP_FAILED, &all_fine, err);
    if (fd >= 0)
        close(fd);
    if (rank == 0 && *path)
        unlink(path);
    if (rc == OK && !all_fine)
        rc = err_set(err, ERR_SYSTEM, "shared memory: a rank cannot map %zu bytes", bytes);
    if (rc == OK)
        *memory = got;
    else if (got != MAP_FAILED)
        munmap(got, bytes);
    return rc;
}
