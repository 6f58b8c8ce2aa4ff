/* NCCL for tests, between processes of one machine: as many of its functions as Elapse calls, over
 * sockets, strict where NCCL trusts its caller.
 *
 * Work of a communicator that is under way lies in one stream, and at its head waits there for the peer, as a kernel
 * of NCCL does: a send ends when the peer has come to the receive that matches it. Sizes must
 * agree, and so must the calls of a collective. What waits too long fails, and every rank that
 * waits says for what. All communicators must be of the kind that does not block; calls answer
 * "in progress" where NCCL may: at the start, at a split, and at the first work of a pair, which
 * sets up its connection and needs the peer's call. An abort frees memory of the device, and so
 * waits for the work of all communicators that are not aborted in the same group. Two ranks on one
 * device of one host are refused unless NCCL_HOSTID tells them apart (every process has the device 0
 * here).
 *
 * ELAPSE_CUDASIM_FAULT=nccl@N fails the N-th group of calls; ELAPSE_CUDASIM_NCCL_SECONDS (200) is
 * how long something may wait. Not here: blocking communicators, other types and functions. */
#include <cuda_runtime_api.h>
#include <errno.h>
#include <nccl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/cudasim/cudasim_internal.h"

namespace
{

enum frame_kind : uint32_t { HELLO, SPLIT, MEET, READY, DATA, SUM, RESULT, KINDS };

struct frame {
    uint32_t kind, seq;
    int64_t a, b;   /* HELLO: rank; SPLIT: color, key; READY, DATA: bytes; SUM: count */
    uint64_t bytes; /* that follow */
};
struct message {
    frame head;
    std::vector<char> body;
};

/* The other end. */
struct peer {
    int fd = -1;
    std::string out;
    std::vector<char> in;
    std::deque<message> got[KINDS];
    bool gone = false, meets = false, met = false; /* meets: this side has said MEET */
    uint32_t sends = 0, receives = 0;
};

enum call_kind { CALL_SEND, CALL_RECV, CALL_SUM };
struct call {
    call_kind kind;
    const void *src;
    void *dst;
    int64_t bytes;
    int peer;
    uint32_t seq;
    bool begun, done;
};

struct core;
/* The calls between ncclGroupStart() and ncclGroupEnd() on one communicator: one kernel. */
struct group {
    std::shared_ptr<core> comm;
    cudaStream_t stream;
    std::vector<call> calls;
    double waited_ns = 0, asked_ns = 0;
};

enum phase { RESOLVING, CONNECTING, OPEN }; /* RESOLVING: a split that has not been told its ranks */

struct core {
    std::mutex lock;
    std::string id;
    int rank = 0, size = 1;
    phase at = RESOLVING;
    int listens = -1;
    std::vector<std::unique_ptr<peer>> peers, strangers; /* strangers: rank not known yet */
    ncclResult_t failed = ncclSuccess;
    bool aborted = false;
    uint32_t splits = 0, sums = 0;
    std::shared_ptr<core> child; /* of the split under way */
    bool splitting = false;
    int64_t color = 0, key = 0;
    std::shared_ptr<group> starts; /* work whose pairs have not met */
    cudaStream_t stream = NULL; /* of what is under way */
    std::atomic<int> under_way{0};

    ~core() { close_all(); }
    void close_all()
    {
        if (listens >= 0)
            close(listens);
        listens = -1;
        for (auto &p : peers)
            if (p && p->fd >= 0) {
                close(p->fd);
                p->fd = -1;
                p->gone = true;
            }
        strangers.clear();
    }
};

char last_error[512];

double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

std::string text(const char *format, ...) __attribute__((format(printf, 1, 2)));
std::string text(const char *format, ...)
{
    char line[400];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    return line;
}

ncclResult_t fail(core *c, ncclResult_t code, const std::string &why)
{
    if (c->failed == ncclSuccess) {
        snprintf(last_error, sizeof last_error, "communicator %s, rank %d: %s", c->id.c_str(),
                 c->rank, why.c_str());
        cudasim_say("nccl: %s", last_error);
        c->failed = code;
    }
    return c->failed;
}

ncclResult_t refuse(ncclResult_t code, const std::string &why)
{
    snprintf(last_error, sizeof last_error, "%s", why.c_str());
    cudasim_say("nccl: %s", why.c_str());
    return code;
}

/* --- sockets --------------------------------------------------------------------------------- */

socklen_t address_of(const std::string &id, int rank, struct sockaddr_un *to)
{
    const std::string name = text("%s/%d", id.c_str(), rank);
    memset(to, 0, sizeof *to);
    to->sun_family = AF_UNIX; /* abstract: a zero in front, no file */
    const size_t length = std::min(name.size(), sizeof to->sun_path - 1);
    memcpy(to->sun_path + 1, name.data(), length);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

void put(peer *p, frame_kind kind, uint32_t seq, int64_t a, int64_t b, const void *body = NULL,
         size_t bytes = 0)
{
    const frame head = {kind, seq, a, b, bytes};
    p->out.append((const char *)&head, sizeof head);
    if (bytes)
        p->out.append((const char *)body, bytes);
}

void take_frames(peer *p)
{
    size_t at = 0;
    while (p->in.size() - at >= sizeof(frame)) {
        message m;
        memcpy(&m.head, p->in.data() + at, sizeof m.head);
        if (p->in.size() - at - sizeof m.head < m.head.bytes || m.head.kind >= KINDS)
            break;
        at += sizeof m.head;
        m.body.assign(p->in.data() + at, p->in.data() + at + m.head.bytes);
        at += m.head.bytes;
        p->got[m.head.kind].push_back(std::move(m));
    }
    p->in.erase(p->in.begin(), p->in.begin() + (ptrdiff_t)at);
}

/* Moves the bytes that can be sent and received now. */
void move_bytes(peer *p)
{
    char room[65536];
    while (p->fd >= 0 && !p->out.empty()) {
        const ssize_t n = send(p->fd, p->out.data(), p->out.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n <= 0) {
            p->gone |= n < 0 && errno != EAGAIN && errno != EINTR;
            break;
        }
        p->out.erase(0, (size_t)n);
    }
    while (p->fd >= 0) {
        const ssize_t n = recv(p->fd, room, sizeof room, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            p->gone = true;
        if (n <= 0)
            break;
        p->in.insert(p->in.end(), room, room + n);
    }
    take_frames(p);
}

std::string host_id(void)
{
    char host[128] = "host";
    const char *given = getenv("NCCL_HOSTID");
    gethostname(host, sizeof host - 1);
    return given ? given : host;
}

void listen_now(core *c)
{
    struct sockaddr_un at;
    const socklen_t length = address_of(c->id, c->rank, &at);
    c->at = CONNECTING;
    c->peers.resize((size_t)c->size);
    c->listens = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->listens < 0 || bind(c->listens, (struct sockaddr *)&at, length) != 0 ||
        listen(c->listens, 64) != 0)
        fail(c, ncclSystemError, text("cannot listen: %s", strerror(errno)));
}

/* To lower ranks; from higher ones. */
void connect_more(core *c)
{
    for (int r = 0; r < c->rank; r++) {
        struct sockaddr_un at;
        const socklen_t length = address_of(c->id, r, &at);
        if (c->peers[(size_t)r])
            continue;
        const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0 || connect(fd, (struct sockaddr *)&at, length) != 0) {
            close(fd); /* not there yet */
            continue;
        }
        const std::string host = host_id();
        c->peers[(size_t)r] = std::make_unique<peer>();
        c->peers[(size_t)r]->fd = fd;
        put(c->peers[(size_t)r].get(), HELLO, 0, c->rank, 0, host.data(), host.size());
    }
    for (int fd; (fd = accept4(c->listens, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) {
        c->strangers.push_back(std::make_unique<peer>());
        c->strangers.back()->fd = fd;
    }
    for (auto &s : c->strangers) {
        move_bytes(s.get());
        if (s->got[HELLO].empty())
            continue;
        const message hello = s->got[HELLO].front();
        s->got[HELLO].pop_front();
        if (std::string(hello.body.begin(), hello.body.end()) == host_id())
            fail(c, ncclInvalidUsage,
                 text("duplicate GPU: ranks %d and %d use device 0 of one host", c->rank,
                      (int)hello.head.a));
        c->peers[(size_t)hello.head.a] = std::move(s);
    }
    c->strangers.erase(std::remove(c->strangers.begin(), c->strangers.end(), nullptr),
                       c->strangers.end());
    bool all = true;
    for (int r = 0; r < c->size; r++)
        all &= r == c->rank || c->peers[(size_t)r];
    if (all)
        c->at = OPEN;
}

/* --- progress -------------------------------------------------------------------------------- */

bool resolve_split(core *c)
{
    struct member {
        int64_t color, key;
        int rank;
    };
    std::vector<member> members;
    for (int r = 0; r < c->size; r++) {
        if (r == c->rank) {
            members.push_back({c->color, c->key, r});
            continue;
        }
        peer *p = c->peers[(size_t)r].get();
        if (p->got[SPLIT].empty()) {
            if (p->gone)
                fail(c, ncclRemoteError, text("rank %d is gone, in a split", r));
            return false;
        }
        members.push_back({p->got[SPLIT].front().head.a, p->got[SPLIT].front().head.b, r});
    }
    for (int r = 0; r < c->size; r++)
        if (r != c->rank)
            c->peers[(size_t)r]->got[SPLIT].pop_front();
    c->splitting = false;
    std::vector<member> mine;
    for (const member &m : members)
        if (m.color == c->color && m.color >= 0)
            mine.push_back(m);
    std::stable_sort(mine.begin(), mine.end(),
                     [](const member &a, const member &b) { return a.key < b.key; });
    if (!c->child)
        return true;
    std::lock_guard<std::mutex> guard(c->child->lock);
    c->child->id = text("%s.%u-%d", c->id.c_str(), c->splits, (int)c->color);
    c->child->size = (int)mine.size();
    for (size_t i = 0; i < mine.size(); i++)
        if (mine[i].rank == c->rank)
            c->child->rank = (int)i;
    listen_now(c->child.get());
    c->child.reset();
    return true;
}

/* With the lock held. */
void advance(core *c)
{
    if (c->aborted || c->failed != ncclSuccess || c->at == RESOLVING)
        return;
    for (auto &p : c->peers)
        if (p)
            move_bytes(p.get());
    if (c->at == CONNECTING)
        connect_more(c);
    if (c->splitting)
        resolve_split(c);
}

bool have_met(core *c)
{
    bool all = true;
    for (const call &one : c->starts->calls)
        for (int r = 0; r < c->size; r++) {
            if (r == c->rank || (one.kind != CALL_SUM && r != one.peer))
                continue;
            peer *p = c->peers[(size_t)r].get();
            if (!p->meets)
                put(p, MEET, 0, 0, 0);
            p->meets = true;
            move_bytes(p);
            if (!p->met && !p->got[MEET].empty())
                p->met = true;
            if (!p->met && p->gone)
                fail(c, ncclRemoteError, text("rank %d is gone", r));
            all &= p->met;
        }
    return all;
}

/* --- work in a stream ------------------------------------------------------------------------ */

std::string name_of(const call &one)
{
    if (one.kind == CALL_SUM)
        return text("all-reduce %u of %lld bytes", one.seq, (long long)one.bytes);
    return text("%s %u of %lld bytes %s rank %d", one.kind == CALL_SEND ? "send" : "receive",
                one.seq, (long long)one.bytes, one.kind == CALL_SEND ? "to" : "from", one.peer);
}

std::vector<char> read_device(const void *from, int64_t bytes)
{
    cudasim_touches(from, (size_t)bytes, false);
    cudasim_device_open();
    std::vector<char> got((const char *)from, (const char *)from + bytes);
    cudasim_device_close();
    return got;
}

void write_device(void *to, const std::vector<char> &from)
{
    cudasim_touches(to, from.size(), true);
    cudasim_device_open();
    memcpy(to, from.data(), from.size());
    cudasim_device_close();
}

/* The next message of a kind, which must match the call. */
bool take(core *c, const call &one, int from, frame_kind kind, message *to)
{
    peer *p = c->peers[(size_t)from].get();
    if (p->got[kind].empty()) {
        if (p->gone)
            fail(c, ncclRemoteError, name_of(one) + text(": rank %d is gone", from));
        return false;
    }
    *to = std::move(p->got[kind].front());
    p->got[kind].pop_front();
    if (to->head.a != one.bytes || to->head.seq != one.seq) {
        fail(c, ncclInvalidUsage,
             name_of(one) + text(": the peer has number %u, of %lld bytes", to->head.seq,
                                 (long long)to->head.a));
        return false;
    }
    return true;
}

bool sent(const core *c)
{
    for (const auto &p : c->peers)
        if (p && !p->out.empty())
            return false;
    return true;
}

void push_sum(core *c, call *one)
{
    message m;
    if (c->rank != 0) {
        peer *root = c->peers[0].get();
        if (!one->begun) {
            const std::vector<char> mine = read_device(one->src, one->bytes);
            put(root, SUM, one->seq, one->bytes, 0, mine.data(), mine.size());
            move_bytes(root);
            one->begun = true;
        }
        if (take(c, *one, 0, RESULT, &m)) {
            write_device(one->dst, m.body);
            one->done = true;
        }
        return;
    }
    one->done = one->begun && sent(c);
    for (int r = 1; r < c->size && !one->begun; r++)
        if (c->peers[(size_t)r]->got[SUM].empty()) {
            if (c->peers[(size_t)r]->gone)
                fail(c, ncclRemoteError, name_of(*one) + text(": rank %d is gone", r));
            return;
        }
    if (one->begun)
        return;
    std::vector<char> total = read_device(one->src, one->bytes);
    float *sum = (float *)(void *)total.data();
    for (int r = 1; r < c->size; r++) {
        if (!take(c, *one, r, SUM, &m))
            return;
        const float *theirs = (const float *)(const void *)m.body.data();
        for (int64_t i = 0; i < one->bytes / (int64_t)sizeof *sum; i++)
            sum[i] += theirs[i];
    }
    for (int r = 1; r < c->size; r++) {
        put(c->peers[(size_t)r].get(), RESULT, one->seq, one->bytes, 0, total.data(), total.size());
        move_bytes(c->peers[(size_t)r].get());
    }
    write_device(one->dst, total);
    one->begun = true;
    one->done = sent(c);
}

void push(core *c, call *one)
{
    message m;
    if (one->kind == CALL_SUM) {
        push_sum(c, one);
        return;
    }
    peer *p = c->peers[(size_t)one->peer].get();
    if (one->kind == CALL_RECV) {
        if (!one->begun)
            put(p, READY, one->seq, one->bytes, 0);
        one->begun = true;
        move_bytes(p);
        if (take(c, *one, one->peer, DATA, &m)) {
            write_device(one->dst, m.body);
            one->done = true;
        }
    } else if (one->begun) {
        one->done = p->out.empty();
    } else if (take(c, *one, one->peer, READY, &m)) {
        const std::vector<char> mine = read_device(one->src, one->bytes);
        put(p, DATA, one->seq, one->bytes, 0, mine.data(), mine.size());
        move_bytes(p);
        one->begun = true;
        one->done = p->out.empty();
    }
}

/* Seconds after which what waits has waited for ever. */
double patience(void)
{
    const char *limit = getenv("ELAPSE_CUDASIM_NCCL_SECONDS");
    return limit ? atof(limit) : 200;
}

/* A kernel of NCCL, asked again and again. */
cudaError_t run_group(group *g)
{
    core *c = g->comm.get();
    std::lock_guard<std::mutex> guard(c->lock);
    if (c->aborted)
        return cudaSuccess;
    advance(c);
    bool all = true;
    for (call &one : g->calls) {
        if (!one.done && c->failed == ncclSuccess)
            push(c, &one);
        all &= one.done;
        /* One after the other: what the next reads of the socket may be this one's. */
        if (one.kind == CALL_SUM && !one.done)
            break;
    }
    if (all) {
        c->under_way--;
        return cudaSuccess;
    }
    /* A stopped process has not waited. */
    const double now = now_ns(), since = g->asked_ns > 0 ? now - g->asked_ns : 0;
    g->asked_ns = now;
    g->waited_ns += since < 50e6 ? since : 0;
    if (c->failed == ncclSuccess && g->waited_ns > patience() * 1e9) {
        std::string waits;
        for (const call &one : g->calls)
            if (!one.done)
                waits += (waits.empty() ? "" : ", ") + name_of(one);
        fail(c, ncclSystemError, waits + text(" waited %.0f s", g->waited_ns * 1e-9));
    }
    return cudaErrorNotReady;
}

std::atomic<int> num_kernels; /* in streams, not ended */
struct kernel {
    kernel() { num_kernels++; }
    ~kernel() { num_kernels--; }
};

void enqueue(const std::shared_ptr<group> &g)
{
    const auto k = std::make_shared<kernel>();
    g->comm->under_way++;
    const call_kind kind = g->calls.front().kind;
    cudasim_enqueue_remote(g->stream,
                           kind == CALL_SUM    ? "ncclAllReduce"
                           : kind == CALL_SEND ? "ncclSend"
                                               : "ncclRecv",
                           [g, k] { return run_group(g.get()); });
}

/* Freeing memory of the device waits for it, as far as messages go. */
ncclResult_t wait_for_device(void)
{
    for (const double from = now_ns(); num_kernels > 0; usleep(100))
        if (now_ns() - from > patience() * 1e9)
            return refuse(ncclSystemError, "ncclCommAbort waited for the device, which waits for "
                                           "messages of communicators that are not aborted with it");
    return ncclSuccess;
}

thread_local int depth;
thread_local std::vector<std::shared_ptr<group>> open_groups;
thread_local bool open_aborts;
thread_local ncclResult_t group_error;

} // namespace

struct ncclComm {
    std::shared_ptr<core> c;
};

/* --- the functions --------------------------------------------------------------------------- */

/* NCCL's log: of what the environment asks for, on stdout where the file cannot be written. */
static void begin_log(void)
{
    const char *level = getenv("NCCL_DEBUG"), *path = getenv("NCCL_DEBUG_FILE");
    static bool begun;
    if (begun || !level)
        return;
    begun = true;
    FILE *log = path ? fopen(path, "w") : NULL;
    fprintf(log ? log : stdout, "NCCL version %d.%d.%d, emulated\n", NCCL_MAJOR, NCCL_MINOR,
            NCCL_PATCH);
    if (log)
        fclose(log);
}

extern "C" ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    begin_log();
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "cudasim-%d-%.0f", (int)getpid(), now_ns());
    return ncclSuccess;
}

extern "C" ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id,
                                               int rank, ncclConfig_t *config)
{
    begin_log();
    if (!config || config->blocking != 0)
        return refuse(ncclInvalidUsage, "a communicator that blocks");
    if (rank < 0 || rank >= size)
        return refuse(ncclInvalidArgument, text("rank %d of %d", rank, size));
    *comm = new ncclComm{std::make_shared<core>()};
    core *c = (*comm)->c.get();
    c->id = id.internal;
    c->rank = rank;
    c->size = size;
    listen_now(c);
    return ncclInProgress;
}

extern "C" ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
    core *c = comm->c.get();
    std::shared_ptr<group> start;
    {
        std::lock_guard<std::mutex> guard(c->lock);
        advance(c);
        if (c->starts && c->failed == ncclSuccess && have_met(c))
            start = std::move(c->starts);
        if (c->failed != ncclSuccess)
            c->starts.reset();
        *state = c->failed != ncclSuccess                      ? c->failed
                 : c->at != OPEN || c->splitting || c->starts ? ncclInProgress
                                                               : ncclSuccess;
    }
    if (start)
        enqueue(start);
    return ncclSuccess;
}

static ncclResult_t usable(ncclComm_t comm, const char *what)
{
    ncclResult_t state;
    if (!comm)
        return refuse(ncclInvalidArgument, text("%s without a communicator", what));
    ncclCommGetAsyncError(comm, &state);
    if (state == ncclSuccess)
        return ncclSuccess;
    return refuse(ncclInvalidUsage,
                  text("%s on communicator %s while a call on it %s", what, comm->c->id.c_str(),
                       state == ncclInProgress ? "has not ended" : "has failed"));
}

extern "C" ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *out,
                                      ncclConfig_t *config)
{
    *out = NULL;
    const ncclResult_t bad = usable(comm, "ncclCommSplit");
    if (bad != ncclSuccess)
        return bad;
    if (!config || config->blocking != 0)
        return refuse(ncclInvalidUsage, "a communicator that blocks");
    core *c = comm->c.get();
    std::lock_guard<std::mutex> guard(c->lock);
    c->color = color == NCCL_SPLIT_NOCOLOR ? -1 : color;
    c->key = key;
    c->splitting = true;
    c->splits++;
    if (c->color >= 0) {
        c->child = std::make_shared<core>();
        *out = new ncclComm{c->child};
    }
    for (int r = 0; r < c->size; r++)
        if (r != c->rank)
            put(c->peers[(size_t)r].get(), SPLIT, c->splits, c->color, c->key);
    return ncclInProgress;
}

extern "C" ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
    *rank = comm->c->rank;
    return ncclSuccess;
}
extern "C" ncclResult_t ncclCommCount(const ncclComm_t comm, int *size)
{
    *size = comm->c->size;
    return ncclSuccess;
}

static ncclResult_t end_aborts(void)
{
    const bool any = open_aborts;
    open_aborts = false;
    return any ? wait_for_device() : ncclSuccess;
}

extern "C" ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    {
        std::lock_guard<std::mutex> guard(comm->c->lock);
        for (auto &p : comm->c->peers) /* a last message that is whole on this side arrives */
            if (p && comm->c->failed == ncclSuccess)
                move_bytes(p.get());
        comm->c->aborted = true;
        comm->c->close_all();
    }
    delete comm;
    open_aborts = true;
    return depth > 0 ? ncclSuccess : end_aborts();
}

extern "C" ncclResult_t ncclGroupStart(void)
{
    if (depth++ == 0) {
        open_groups.clear();
        group_error = ncclSuccess;
    }
    return ncclSuccess;
}

extern "C" ncclResult_t ncclGroupEnd(void)
{
    if (--depth > 0)
        return ncclSuccess;
    std::vector<std::shared_ptr<group>> groups;
    groups.swap(open_groups);
    ncclResult_t result = end_aborts();
    if (group_error != ncclSuccess)
        return group_error;
    for (auto &g : groups) {
        core *c = g->comm.get();
        bool starts;
        {
            std::lock_guard<std::mutex> guard(c->lock);
            if (cudasim_fails("nccl"))
                fail(c, ncclSystemError, name_of(g->calls.front()) + ": a fault was asked for");
            c->starts = g;
            starts = c->failed == ncclSuccess && have_met(c);
            if (starts)
                c->starts.reset();
        }
        if (starts)
            enqueue(g);
        else
            result = ncclInProgress;
    }
    return result;
}

static ncclResult_t add(ncclComm_t comm, cudaStream_t stream, call one, const char *what)
{
    ncclResult_t bad = usable(comm, what);
    const void *first = one.src ? one.src : one.dst;
    if (bad == ncclSuccess && depth == 0)
        bad = refuse(ncclInvalidUsage, text("%s outside a group", what));
    if (bad == ncclSuccess && (!cudasim_in_device(first, (size_t)one.bytes) || one.bytes <= 0))
        bad = refuse(ncclInvalidArgument, text("%s: %lld bytes at %p: %s", what,
                                               (long long)one.bytes, first,
                                               cudasim_describe(first)));
    core *c = bad == ncclSuccess ? comm->c.get() : NULL;
    if (c && (one.peer < 0 || one.peer >= c->size || (one.kind != CALL_SUM && one.peer == c->rank)))
        bad = refuse(ncclInvalidArgument, text("%s: rank %d of %d", what, one.peer, c->size));
    if (c && c->under_way && c->stream != stream)
        bad = refuse(ncclInvalidUsage, text("%s: the communicator's work is in two streams", what));
    if (bad != ncclSuccess)
        return group_error = bad;
    c->stream = stream;
    std::shared_ptr<group> g;
    for (auto &known : open_groups)
        if (known->comm == comm->c)
            g = known;
    if (!g) {
        g = std::make_shared<group>();
        g->comm = comm->c;
        g->stream = stream;
        open_groups.push_back(g);
    }
    std::lock_guard<std::mutex> guard(c->lock);
    one.seq = one.kind == CALL_SUM ? c->sums++
              : one.kind == CALL_SEND ? c->peers[(size_t)one.peer]->sends++
                                      : c->peers[(size_t)one.peer]->receives++;
    g->calls.push_back(one);
    return ncclSuccess;
}

extern "C" ncclResult_t ncclSend(const void *data, size_t count, ncclDataType_t type, int peer,
                                 ncclComm_t comm, cudaStream_t stream)
{
    if (type != ncclInt8)
        return refuse(ncclInvalidArgument, "ncclSend of another type than int8");
    return add(comm, stream, {CALL_SEND, data, NULL, (int64_t)count, peer, 0, false, false},
               "ncclSend");
}

extern "C" ncclResult_t ncclRecv(void *data, size_t count, ncclDataType_t type, int peer,
                                 ncclComm_t comm, cudaStream_t stream)
{
    if (type != ncclInt8)
        return refuse(ncclInvalidArgument, "ncclRecv of another type than int8");
    return add(comm, stream, {CALL_RECV, NULL, data, (int64_t)count, peer, 0, false, false},
               "ncclRecv");
}

extern "C" ncclResult_t ncclAllReduce(const void *src, void *dst, size_t count, ncclDataType_t type,
                                      ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    if (type != ncclFloat32 || op != ncclSum)
        return refuse(ncclInvalidArgument, "ncclAllReduce of another type than float, or no sum");
    const int64_t bytes = (int64_t)(count * sizeof(float));
    if (!cudasim_in_device(dst, (size_t)bytes))
        return refuse(ncclInvalidArgument, text("ncclAllReduce into %s", cudasim_describe(dst)));
    return add(comm, stream, {CALL_SUM, src, dst, bytes, 0, 0, false, false}, "ncclAllReduce");
}

extern "C" const char *ncclGetErrorString(ncclResult_t code)
{
    switch (code) {
    case ncclSuccess:
        return "no error";
    case ncclSystemError:
        return "unhandled system error";
    case ncclInvalidArgument:
        return "invalid argument";
    case ncclInvalidUsage:
        return "invalid usage";
    case ncclRemoteError:
        return "remote process exited or there was a network error";
    case ncclInProgress:
        return "NCCL operation in progress";
    default:
        return "unknown result code";
    }
}

extern "C" const char *ncclGetLastError(ncclComm_t)
{
    return last_error;
}
