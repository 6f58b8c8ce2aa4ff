#include "exec/checkpoint/node_copies.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "exec/checkpoint/checkpoint_check.h"
#include "exec/checkpoint/checkpoint_files.h"
#include "exec/checkpoint/owned_folder.h"
#include "partition/base/units.h"
#include "profiles/base/machine_memory.h"
#include "profiles/base/memory_folder.h"
#include "profiles/base/whole_file.h"

enum {
    SEND_BYTES = 256 << 20, /* of a message; MPI counts bytes in an int */
    SHARE_BYTES = 1 << 20   /* of a broadcast */
};

int64_t node_memory_left(void)
{
    struct statvfs shared;
    const int64_t memory = memory_available() / 2;
    if (statvfs(SHARED_MEMORY, &shared) != 0)
        return 0;
    const int64_t left = (int64_t)(shared.f_bavail * shared.f_frsize) / 2;
    return left < memory ? left : memory;
}

/* --- files for the next node ------------------------------------------------------------------ */

/* The number, rank and sizes of a file, which every rank gets to know before the files are sent. */
struct sent {
    int64_t stage, from, bytes[2];
};

struct node_sends {
    struct comm_request *requests; /* owned */
    int num_requests;
    struct {
        char *at; /* mapped */
        size_t bytes;
    } * taken; /* owned: files of other ranks */
    int num_taken;
};

/* The rank of the next node that takes a rank's files. */
static int next_node_rank(const struct comm *comm, int rank)
{
    int node = 0, first = 0;
    while (rank >= first + comm->node_ranks[node])
        first += comm->node_ranks[node++];
    const int next = (node + 1) % comm->num_nodes, at = rank - first;
    return (next == 0 ? 0 : first + comm->node_ranks[node]) + at % comm->node_ranks[next];
}

/* The files of all ranks, on all ranks, in a fresh array. */
static enum status know_files(const struct comm *comm, const struct node_file *files, int num_files,
                              struct sent **known, int *num_known, struct err *err)
{
    int64_t *sizes = NULL, bytes = 0;
    void *all = NULL;
    struct sent *mine = calloc((size_t)num_files + 1, sizeof *mine);
    enum status rc = comm_agree(comm, mine ? OK : err_nomem(err), err);
    for (int i = 0; rc == OK && i < num_files; i++)
        mine[i] = (struct sent){
            files[i].stage, comm->rank, {files[i].bytes[0], files[i].bytes[1]}
        };
    THEN(comm_gather(comm->all, mine, num_files * (int64_t)sizeof *mine, &all, &sizes, err));
    for (int r = 0; sizes && r < comm->size; r++)
        bytes += sizes[r];
    THEN(comm_bcast(comm->all, &bytes, sizeof bytes, 0, err));
    if (rc == OK && comm->rank != 0)
        all = malloc((size_t)bytes + 1);
    THEN(comm_agree(comm, all ? OK : err_nomem(err), err));
    THEN(comm_bcast(comm->all, all, bytes, 0, err));
    free(mine);
    free(sizes);
    if (rc == OK) {
        *known = all;
        *num_known = (int)(bytes / (int64_t)sizeof **known);
    } else {
        free(all);
    }
    return rc;
}

/* Map a new file of that size, with its memory allocated. */
static enum status map_file(struct node_sends *sends, const char *dir, const struct sent *file,
                            struct err *err)
{
    char path[PATH_MAX];
    const int64_t bytes = file->bytes[0] + file->bytes[1];
    int failed = 0;
    if (snprintf(path, sizeof path, "%s/stage-%05d.safetensors", dir, (int)file->stage) >= PATH_MAX)
        return err_set(err, ERR_SYSTEM, "path '%.200s' is too long", dir);
    const int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 || (failed = posix_fallocate(fd, 0, bytes)) != 0) {
        enum status rc = err_set(err, ERR_SYSTEM, "cannot write '%s': %s", path,
                                 strerror(fd < 0 ? errno : failed));
        if (fd >= 0)
            close(fd);
        return rc;
    }
    char *at = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (at == MAP_FAILED)
        return err_set(err, ERR_SYSTEM, "cannot map '%s': %s", path, strerror(errno));
    sends->taken[sends->num_taken].at = at;
    sends->taken[sends->num_taken++].bytes = (size_t)bytes;
    return OK;
}

static int messages_of(const struct sent *file)
{
    int64_t num = 0;
    for (int i = 0; i < 2; i++)
        num += (file->bytes[i] + SEND_BYTES - 1) / SEND_BYTES;
    return (int)num;
}

/* Start the messages of one part of a file. sends: from `at`, else into it. */
static enum status post(const struct comm *comm, struct node_sends *sends, bool to_peer, char *at,
                        int64_t bytes, int peer, struct err *err)
{
    enum status rc = OK;
    for (int64_t done = 0; rc == OK && done < bytes; done += SEND_BYTES) {
        const int64_t now = bytes - done < SEND_BYTES ? bytes - done : SEND_BYTES;
        struct comm_request *request = &sends->requests[sends->num_requests++];
        rc = to_peer ? comm_isend(comm->all, at + done, now, peer, comm->max_tag, request, err)
                     : comm_irecv(comm->all, at + done, now, peer, comm->max_tag, request, err);
    }
    return rc;
}

static void sends_free(struct node_sends *sends)
{
    if (!sends)
        return;
    for (int i = 0; i < sends->num_taken; i++)
        munmap(sends->taken[i].at, sends->taken[i].bytes);
    free(sends->taken);
    free(sends->requests);
    free(sends);
}

/* Allocate all that this rank needs to send and to receive. */
static enum status prepare(const struct comm *comm, const char *dir, const struct sent *known,
                           int num_known, struct node_sends **sends, struct err *err)
{
    int num_messages = 0, num_taken = 0;
    int64_t bytes = 0;
    for (int i = 0; i < num_known; i++) {
        const bool takes = next_node_rank(comm, (int)known[i].from) == comm->rank;
        num_messages += (takes + (known[i].from == comm->rank)) * messages_of(&known[i]);
        num_taken += takes;
        bytes += takes ? known[i].bytes[0] + known[i].bytes[1] : 0;
    }
    struct node_sends *got = *sends = calloc(1, sizeof *got);
    if (!got || !(got->requests = calloc((size_t)num_messages + 1, sizeof *got->requests)) ||
        !(got->taken = calloc((size_t)num_taken + 1, sizeof *got->taken)))
        return err_nomem(err);
    const int64_t left = node_memory_left();
    char need[32], have[32];
    if (bytes > left)
        return err_set(err, ERR_SYSTEM,
                       "files of the node before need %s of shared memory, and %s are available",
                       format_bytes(bytes, need, sizeof need),
                       format_bytes(left, have, sizeof have));
    enum status rc = OK;
    for (int i = 0; rc == OK && i < num_known; i++)
        if (next_node_rank(comm, (int)known[i].from) == comm->rank)
            rc = map_file(got, dir, &known[i], err);
    return rc;
}

enum status node_sends_begin(const struct comm *comm, const char *dir,
                             const struct node_file *files, int num_files,
                             struct node_sends **sends, struct err *err)
{
    struct node_sends *got = NULL;
    struct sent *known = NULL;
    int num_known = 0, own = 0, taken = 0;
    enum status rc = know_files(comm, files, num_files, &known, &num_known, err);
    if (rc == OK) /* a rank that cannot receive would keep its sender waiting for ever */
        rc = comm_agree(comm, prepare(comm, dir, known, num_known, &got, err), err);
    for (int i = 0; rc == OK && i < num_known; i++) {
        const struct sent *file = &known[i];
        const int taker = next_node_rank(comm, (int)file->from);
        for (int part = 0; rc == OK && taker == comm->rank && part < 2; part++)
            rc = post(comm, got, false, got->taken[taken].at + (part ? file->bytes[0] : 0),
                      file->bytes[part], (int)file->from, err);
        taken += taker == comm->rank;
        for (int part = 0; rc == OK && file->from == comm->rank && part < 2; part++)
            rc =
                post(comm, got, true, (char *)files[own].part[part], file->bytes[part], taker, err);
        own += file->from == comm->rank;
    }
    free(known);
    if (rc == OK)
        *sends = got;
    else
        sends_free(got);
    return rc;
}

enum status node_sends_end(struct node_sends *sends, struct err *err)
{
    enum status rc = OK;
    for (int i = 0; sends && i < sends->num_requests; i++) {
        const enum status now = comm_wait(&sends->requests[i], err);
        THEN(now);
    }
    sends_free(sends);
    return rc;
}

/* --- one file for other nodes ----------------------------------------------------------------- */

enum status node_share_file(const struct comm_group *group, int root, const char *path, bool wants,
                            struct err *err)
{
    const bool reads = comm_group_rank(group) == root;
    FILE *in = reads ? fopen(path, "rb") : NULL;
    char *piece = malloc(SHARE_BYTES);
    struct atomic_file file = {0};
    struct stat st;
    /* The largest counts: no memory, then that the root cannot read; else the size. */
    int64_t size = !piece                               ? INT64_MAX
                   : !reads                             ? 0
                   : !in || fstat(fileno(in), &st) != 0 ? INT64_MAX - 1
                                                        : st.st_size;
    enum status rc = comm_max_i64(group, &size, 1, err), own = OK;
    if (rc == OK && size == INT64_MAX)
        rc = err_nomem(err);
    else if (rc == OK && size == INT64_MAX - 1)
        rc = err_set(err, ERR_SYSTEM, "cannot read '%s' of another node", path);
    if (rc == OK && wants)
        own = atomic_open(&file, path, err);
    for (int64_t done = 0; rc == OK && done < size; done += SHARE_BYTES) {
        const int64_t now = size - done < SHARE_BYTES ? size - done : SHARE_BYTES;
        if (reads && fread(piece, 1, (size_t)now, in) != (size_t)now && own == OK)
            own = err_set(err, ERR_SYSTEM, "cannot read '%s'", path);
        rc = comm_bcast(group, piece, now, root, err);
        if (file.out)
            fwrite(piece, 1, (size_t)now, file.out);
    }
    if (file.out)
        own = atomic_close(&file, rc == OK ? own : rc, err);
    if (in)
        fclose(in);
    free(piece);
    return rc == OK ? own : rc;
}

/* --- a copy on every node --------------------------------------------------------------------- */

/* Make the folders of the copy, where this node lacks them. */
static enum status make_folders(const char *run_dir, const char *dir, const char *run_id,
                                struct err *err)
{
    enum status rc = OK;
    if (!owned_folder_is(run_dir, run_id))
        rc = owned_folder_make(run_dir, run_id, err);
    if (rc == OK && !owned_folder_is(dir, run_id))
        rc = owned_folder_make(dir, run_id, err);
    return rc;
}

/* Give every node the manifest of the first node that has a good one. */
static enum status share_manifest(const struct comm_group *nodes, const char *dir, struct err *err)
{
    const int node = comm_group_rank(nodes), num_nodes = comm_group_size(nodes);
    struct json *manifest = NULL;
    char path[PATH_MAX];
    const bool good = checkpoint_manifest(dir, &manifest, NULL) == OK;
    int64_t first = good ? num_nodes - node : 0; /* the largest is of the first node */
    json_free(manifest);
    enum status rc = comm_max_i64(nodes, &first, 1, err);
    if (rc == OK && first == 0)
        return err_set(err, ERR_INPUT, "no node has the manifest of '%s'", dir);
    if (rc == OK && snprintf(path, sizeof path, "%s/manifest.json", dir) >= PATH_MAX)
        return err_set(err, ERR_SYSTEM, "path '%.200s' is too long", dir); /* on all nodes */
    THEN(node_share_file(nodes, num_nodes - (int)first, path, num_nodes - node != first, err));
    return rc;
}

/* For each of n files: node[i] is 1 more than the last node that has it in good order. lacks[i]: this
 * node lacks it, and lacking[i]: some node does. All are zero where nodes is NULL. */
static enum status find_files(const struct comm_group *nodes, const char *dir,
                              const struct json *manifest, int n, int64_t *node, int64_t *lacking,
                              bool *lacks, struct err *err)
{
    int64_t bytes = 0;
    char need[32], have[32];
    for (int i = 0; nodes && i < n; i++) {
        struct file_sum sum;
        checkpoint_file_sum(manifest, i, &sum);
        lacks[i] = checkpoint_file_check(dir, manifest, i, NULL) != OK;
        node[i] = lacks[i] ? 0 : comm_group_rank(nodes) + 1;
        lacking[i] = lacks[i];
        bytes += lacks[i] ? sum.bytes : 0;
    }
    const int64_t left = node_memory_left();
    if (bytes > left)
        return err_set(err, ERR_SYSTEM, "'%s' needs %s more of shared memory, and %s are available",
                       dir, format_bytes(bytes, need, sizeof need),
                       format_bytes(left, have, sizeof have));
    return OK;
}

/* Give every node the files that it lacks. All ranks call it; nodes is NULL but on the first of a
 * node. The ranks get statuses of their own. */
static enum status share_files(const struct comm *comm, const struct comm_group *nodes,
                               const char *dir, struct err *err)
{
    struct json *manifest = NULL;
    int64_t *node = NULL, *lacking = NULL;
    bool *lacks = NULL;
    enum status rc = checkpoint_manifest(dir, &manifest, err);
    const int n = rc == OK ? json_count(json_get(manifest, "files")) : 0;
    if (rc == OK && (!(node = calloc((size_t)n + 1, sizeof *node)) ||
                     !(lacking = calloc((size_t)n + 1, sizeof *lacking)) ||
                     !(lacks = calloc((size_t)n + 1, sizeof *lacks))))
        rc = err_nomem(err);
    THEN(find_files(nodes, dir, manifest, n, node, lacking, lacks, err));
    rc = comm_agree(comm, rc, err);
    THEN(comm_max_i64(comm->all, node, n, err));
    THEN(comm_max_i64(comm->all, lacking, n, err));
    for (int i = 0; rc == OK && i < n; i++)
        if (node[i] == 0)
            rc = err_set(err, ERR_INPUT, "no node has an undamaged '%s/%s'", dir,
                         checkpoint_file_name(manifest, i));
    enum status own = OK; /* of this node: the others get their files all the same */
    for (int i = 0; rc == OK && nodes && i < n; i++) {
        char path[PATH_MAX];
        if (!lacking[i] || snprintf(path, sizeof path, "%s/%s", dir,
                                    checkpoint_file_name(manifest, i)) >= PATH_MAX)
            continue;
        const enum status now = node_share_file(nodes, (int)node[i] - 1, path, lacks[i], err);
        own = own == OK ? now : own;
    }
    free(node);
    free(lacking);
    free(lacks);
    json_free(manifest);
    return rc == OK ? own : rc;
}

enum status node_copies_complete(const struct comm *comm, const char *run_dir, const char *run_id,
                                 int64_t step, struct err *err)
{
    struct comm_group *nodes = NULL;
    char dir[160];
    snprintf(dir, sizeof dir, "%s/checkpoint-%lld", run_dir, (long long)step);
    enum status rc = comm_split(comm, comm->local_rank == 0 ? 0 : -1, comm->node, &nodes, err);
    THEN(comm_agree(comm, nodes ? make_folders(run_dir, dir, run_id, err) : OK, err));
    THEN(comm_agree(comm, nodes ? share_manifest(nodes, dir, err) : OK, err));
    THEN(comm_agree(comm, share_files(comm, nodes, dir, err), err));
    comm_group_free(nodes);
    return rc;
}
