/* The CUDA runtime's host side over cudasim_run.cpp: memory, streams, events, errors.
 *
 * Device memory has an address range of its own that is mapped only while the device works: host
 * code that touches it dies with a line that says so. Fresh memory is NaN; 256 bytes on either side
 * of an allocation are checked when it is freed.
 *
 * Streams are queues. Mode 0 empties them as they are filled; mode 1 runs nothing before something
 * waits for it, so that a missing wait, or a buffer used again too early, changes the result; in
 * any mode cudasim_hazard.cpp follows who comes before whom. Work that meets another process
 * (cudasim_nccl.cpp) may not be able to go on: then its stream stands still, and a thread tries
 * again, as the device goes on while the host does something else. */
#include "tests/cudasim/cudasim.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/cudasim/cudasim_internal.h"

static const size_t HUGE_PAGE = 2u << 20, RED_ZONE = 256, ALIGN = 256;
static const unsigned char RED = 0xa5;
/* Small, so that the profiler needs few micro-batches in flight to leave it. */
static const int L2_BYTES = 64 << 10;

struct event_state {
    uint64_t recorded, done; /* numbers of its records: issued, reached */
    struct CUstream_st *stream;
    double done_ns;
    bool timing;
    cudasim_clock behind; /* the last record */
};
struct CUevent_st {
    std::shared_ptr<event_state> state;
};
struct work {
    std::function<cudaError_t()> run;  /* or, when empty: */
    std::shared_ptr<event_state> wait; /* wait for record `number` of it, */
    uint64_t number;
    struct CUstream_st *from; /* which is in this stream */
    bool remote;              /* run may say cudaErrorNotReady */
    const char *name;         /* static */
    cudasim_clock behind;     /* wait: what it brings */
    struct cudasim_when when; /* once it is issued */
    const void *pinned;       /* of a copy, or NULL */
    size_t pinned_bytes;
    bool pinned_written;
};
static work work_of(const char *name, std::function<cudaError_t()> run)
{
    work w{};
    w.name = name;
    w.run = std::move(run);
    return w;
}
struct CUstream_st {
    std::deque<work> queue;
    bool blocking;
    uint32_t id;
    cudasim_clock clock;
};

static std::recursive_mutex lock;
static unsigned char *base;
static size_t capacity, used, high; /* high: bytes of the range ever used, whole huge pages */
static std::map<uintptr_t, size_t> live, pinned;
static std::set<uintptr_t> allocated; /* of those pinned, by cudaHostAlloc */
static std::map<const void *, int> shared_allowed;
static std::vector<CUstream_st *> streams;
static struct CUstream_st legacy = {{}, true, 0, {}};
static uint32_t num_streams = 1; /* ever made */
static unsigned stream_mode;
static bool loads_wait;
static uint64_t stream_chance = 88172645463325252ull;
static cudaError_t sticky, last;
static int open_depth;
static int64_t num_launches, num_mallocs;
static bool ready;
static uint64_t num_calls; /* of the host */
static std::atomic<int> num_remote; /* works in queues */

extern "C" bool cudasim_checks(void)
{
    return cudasim_check_on;
}

static long env_number(const char *name, long otherwise)
{
    const char *text = getenv(name);
    return text && *text ? atol(text) : otherwise;
}

static int num_sms(void)
{
    return (int)env_number("ELAPSE_CUDASIM_SMS", 8);
}
static int shared_most(void)
{
    return (int)env_number("ELAPSE_CUDASIM_SHARED", CUDASIM_SHARED_MOST);
}

/* ELAPSE_CUDASIM_LOG: what the process has done, at its end. */
static struct report {
    ~report()
    {
        const char *path = getenv("ELAPSE_CUDASIM_LOG");
        FILE *log = path && ready ? fopen(path, "a") : NULL;
        if (!log)
            return;
        fprintf(log, "mallocs %lld launches %lld\n", (long long)num_mallocs,
                (long long)num_launches);
        fclose(log);
    }
} report_at_end;

static struct sigaction other_handler;

bool cudasim_host_fault(const void *address)
{
    std::lock_guard<std::recursive_mutex> guard_(lock);
    return cudasim_flight_fault(address);
}

static void on_host_fault(int sig, siginfo_t *info, void *)
{
    if (cudasim_host_fault(info->si_addr))
        return;
    if (cudasim_is_device(info->si_addr))
        fprintf(stderr, "cudasim: host code touches device memory at %p: %s\n", info->si_addr,
                cudasim_describe(info->si_addr));
    sigaction(sig, &other_handler, NULL); /* the access comes again, to whoever was here before */
}

/* Test runners have handlers of their own, a new one for each test. */
static void watch_host(void)
{
    struct sigaction action, was;
    if (sigaction(SIGSEGV, NULL, &was) == 0 && was.sa_sigaction == on_host_fault)
        return;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_host_fault;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, &other_handler);
}

static void set_up(void)
{
    if (ready)
        return;
    ready = true;
    watch_host();
    capacity = (size_t)env_number("ELAPSE_CUDASIM_MEMORY", 4l << 30);
    const size_t range = capacity * 2 + 2 * HUGE_PAGE; /* gaps between allocations do not count */
    unsigned char *at = (unsigned char *)mmap(NULL, range, PROT_NONE,
                                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        abort();
    base = (unsigned char *)(((uintptr_t)at + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
    madvise(base, range - HUGE_PAGE, MADV_HUGEPAGE);
    cudasim_set_order((unsigned)env_number("ELAPSE_CUDASIM_ORDER", 0));
    cudasim_set_streams((unsigned)env_number("ELAPSE_CUDASIM_STREAMS", 0));
    loads_wait = env_number("ELAPSE_CUDASIM_LOADS", 0) != 0;
}

extern "C" void cudasim_set_streams(unsigned mode)
{
    stream_mode = mode;
    stream_chance = 0x9e3779b97f4a7c15ull * (mode + 1ull);
}

static unsigned chance(unsigned below)
{
    stream_chance ^= stream_chance << 13;
    stream_chance ^= stream_chance >> 7;
    stream_chance ^= stream_chance << 17;
    return (unsigned)(stream_chance >> 33) % below;
}

bool cudasim_fails(const char *what)
{
    static std::map<std::string, long> calls;
    const char *fault = getenv("ELAPSE_CUDASIM_FAULT"), *only = getenv("ELAPSE_CUDASIM_FAULT_RANK");
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    const long call = ++calls[what];
    if (!fault || (only && strcmp(only, rank ? rank : "0") != 0))
        return false;
    const size_t length = strlen(what);
    if (strncmp(fault, what, length) != 0)
        return false;
    return fault[length] == '\0' || (fault[length] == '@' && atol(fault + length + 1) == call);
}

void cudasim_stick(cudaError_t code)
{
    last = code;
    if (code != cudaErrorMemoryAllocation && sticky == cudaSuccess)
        sticky = code;
}

void cudasim_hazard(const char *format, ...)
{
    va_list args;
    char text[512];
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (cudasim_runs_here())
        cudasim_fault(cudaErrorLaunchFailure, "%s", text);
    cudasim_say("%s", text);
    cudasim_stick(cudaErrorIllegalAddress);
}

extern "C" const char *cudasim_take_fault(void)
{
    static char text[1024];
    snprintf(text, sizeof text, "%s", cudasim_fault_text());
    cudasim_clear_fault();
    sticky = last = cudaSuccess;
    return text;
}
extern "C" int64_t cudasim_num_launches(void)
{
    return num_launches;
}
extern "C" int64_t cudasim_num_mallocs(void)
{
    return num_mallocs;
}

/* Notes the answer of a call, as cudaGetLastError() finds it. */
static cudaError_t answer(cudaError_t code)
{
    if (code != cudaSuccess)
        last = code;
    return code;
}
static cudaError_t refuse(cudaError_t code, const char *format, ...)
{
    va_list args;
    char text[512];
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    cudasim_say("%s", text);
    return answer(code);
}

static bool without_device(void)
{
    const char *fault = getenv("ELAPSE_CUDASIM_FAULT"), *visible = getenv("CUDA_VISIBLE_DEVICES");
    return (visible && !*visible) ||
           (fault && (strcmp(fault, "no-device") == 0 || strcmp(fault, "old-driver") == 0));
}
static cudaError_t no_device(void)
{
    const char *fault = getenv("ELAPSE_CUDASIM_FAULT");
    return fault && strcmp(fault, "old-driver") == 0 ? cudaErrorInsufficientDriver
                                                     : cudaErrorNoDevice;
}

#define ENTER                                                                                      \
    std::lock_guard<std::recursive_mutex> guard_(lock);                                            \
    set_up();                                                                                      \
    num_calls++;                                                                                   \
    if (without_device())                                                                          \
        return answer(no_device());                                                                \
    if (sticky != cudaSuccess)                                                                     \
    return sticky

/* --- memory ---------------------------------------------------------------------------------- */

void cudasim_device_open(void)
{
    if (open_depth++ == 0 && high > 0)
        mprotect(base, high, PROT_READ | PROT_WRITE);
}
void cudasim_device_close(void)
{
    if (--open_depth == 0 && high > 0)
        mprotect(base, high, PROT_NONE);
}

bool cudasim_is_device(const void *address)
{
    const unsigned char *at = (const unsigned char *)address;
    return base && at >= base && at < base + capacity * 2;
}

static bool within(const std::map<uintptr_t, size_t> &set, const void *address, size_t bytes)
{
    const uintptr_t at = (uintptr_t)address;
    auto it = set.upper_bound(at);
    if (it == set.begin())
        return false;
    --it;
    return at - it->first <= it->second && bytes <= it->second - (at - it->first);
}
bool cudasim_in_device(const void *address, size_t bytes)
{
    return within(live, address, bytes);
}
bool cudasim_is_pinned(const void *address, size_t bytes)
{
    return within(pinned, address, bytes);
}

const unsigned char *cudasim_device_origin(void)
{
    return base;
}

const char *cudasim_describe(const void *address)
{
    static char text[160];
    const uintptr_t at = (uintptr_t)address;
    if (!cudasim_is_device(address)) {
        snprintf(text, sizeof text, "no device memory (a host pointer?)");
        return text;
    }
    auto it = live.upper_bound(at);
    if (it == live.begin()) {
        snprintf(text, sizeof text, "before all allocations");
        return text;
    }
    --it;
    if (at - it->first < it->second)
        snprintf(text, sizeof text, "byte %zu of an allocation of %zu", (size_t)(at - it->first),
                 it->second);
    else
        snprintf(text, sizeof text, "%zu bytes past the end of an allocation of %zu",
                 (size_t)(at - it->first - it->second), it->second);
    return text;
}

static void drain_all(void);

static size_t padded(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN + 2 * RED_ZONE;
}

extern "C" cudaError_t cudaMalloc(void **ptr, size_t bytes)
{
    ENTER;
    *ptr = NULL;
    if (bytes == 0)
        return cudaSuccess;
    num_mallocs++;
    if (cudasim_fails("malloc") || bytes > capacity || used + bytes > capacity)
        return answer(cudaErrorMemoryAllocation);
    uintptr_t at = (uintptr_t)base; /* the first gap that holds it */
    for (const auto &a : live) {
        if (a.first - RED_ZONE - at >= padded(bytes))
            break;
        at = a.first - RED_ZONE + padded(a.second);
    }
    if (at + padded(bytes) > (uintptr_t)base + capacity * 2)
        return answer(cudaErrorMemoryAllocation);
    const size_t top =
        (at + padded(bytes) - (uintptr_t)base + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    if (top > high)
        high = top;
    cudasim_device_open();
    unsigned char *begin = (unsigned char *)at + RED_ZONE;
    memset(begin - RED_ZONE, RED, RED_ZONE);
    memset(begin, 0xff, bytes < (16u << 20) ? bytes : 16u << 20);
    memset(begin + bytes, RED, padded(bytes) - RED_ZONE - bytes);
    cudasim_device_close();
    live[(uintptr_t)begin] = bytes;
    used += bytes;
    *ptr = begin;
    return cudaSuccess;
}

extern "C" cudaError_t cudaFree(void *ptr)
{
    ENTER;
    /* CUDA's own words: it "may perform implicit synchronization". */
    bool busy = false;
    for (const CUstream_st *s : streams)
        busy |= !s->queue.empty();
    drain_all();
    if (!ptr)
        return sticky;
    if (busy) {
        cudasim_say("cudaFree(%p) while work is under way, which may still use it", ptr);
        cudasim_stick(cudaErrorIllegalAddress);
    }
    auto it = live.find((uintptr_t)ptr);
    if (it == live.end())
        return refuse(cudaErrorInvalidValue, "cudaFree(%p): %s", ptr, cudasim_describe(ptr));
    const unsigned char *begin = (const unsigned char *)ptr;
    const size_t bytes = it->second;
    cudasim_device_open();
    ptrdiff_t broken = 0;
    for (ptrdiff_t i = -(ptrdiff_t)RED_ZONE; i < 0 && !broken; i++)
        if (begin[i] != RED)
            broken = i;
    for (size_t i = bytes; i < padded(bytes) - RED_ZONE && !broken; i++)
        if (begin[i] != RED)
            broken = (ptrdiff_t)i;
    cudasim_device_close();
    used -= bytes;
    live.erase(it);
    if (broken) {
        cudasim_say("a kernel wrote byte %td of an allocation of %zu bytes", broken, bytes);
        cudasim_stick(cudaErrorIllegalAddress);
    }
    return sticky;
}

extern "C" cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    ENTER;
    *free_bytes = capacity - used;
    *total = capacity;
    return cudaSuccess;
}

extern "C" cudaError_t cudaHostAlloc(void **ptr, size_t bytes, unsigned flags)
{
    ENTER;
    (void)flags;
    *ptr = NULL;
    void *at = cudasim_fails("host-alloc")
                   ? MAP_FAILED
                   : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return answer(cudaErrorMemoryAllocation);
    *ptr = at;
    memset(at, 0xff, bytes < (1u << 20) ? bytes : 1u << 20);
    pinned[(uintptr_t)at] = bytes;
    allocated.insert((uintptr_t)at);
    return cudaSuccess;
}
extern "C" cudaError_t cudaMallocHost(void **ptr, size_t bytes)
{
    return cudaHostAlloc(ptr, bytes, 0);
}
extern "C" cudaError_t cudaFreeHost(void *ptr)
{
    ENTER;
    drain_all();
    if (!ptr)
        return cudaSuccess;
    if (!allocated.erase((uintptr_t)ptr))
        return refuse(cudaErrorInvalidValue, "cudaFreeHost(%p): not from cudaHostAlloc", ptr);
    cudasim_pinned_goes(ptr, pinned[(uintptr_t)ptr]);
    munmap(ptr, pinned[(uintptr_t)ptr]);
    pinned.erase((uintptr_t)ptr);
    return cudaSuccess;
}
extern "C" cudaError_t cudaHostRegister(void *ptr, size_t bytes, unsigned flags)
{
    ENTER;
    (void)flags;
    if (within(pinned, ptr, 1))
        return answer(cudaErrorHostMemoryAlreadyRegistered);
    if (cudasim_fails("host-alloc"))
        return answer(cudaErrorMemoryAllocation);
    pinned[(uintptr_t)ptr] = bytes;
    return cudaSuccess;
}
extern "C" cudaError_t cudaHostUnregister(void *ptr)
{
    ENTER;
    drain_all();
    return pinned.erase((uintptr_t)ptr) ? cudaSuccess : answer(cudaErrorHostMemoryNotRegistered);
}

extern "C" cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *to, const void *ptr)
{
    ENTER;
    memset(to, 0, sizeof *to);
    to->type = cudasim_in_device(ptr, 1)   ? cudaMemoryTypeDevice
               : cudasim_is_pinned(ptr, 1) ? cudaMemoryTypeHost
                                           : cudaMemoryTypeUnregistered;
    return cudaSuccess;
}

/* --- streams --------------------------------------------------------------------------------- */

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* The head of a queue, or what it waits for; false: nothing can go on there now. */
static bool step(CUstream_st *s)
{
    if (s->queue.empty())
        return false;
    work &head = s->queue.front();
    if (!head.run) {
        const bool alive = sticky == cudaSuccess; /* or records are lost, and streams may be too */
        while (alive && head.wait->done < head.number && step(head.from))
            ;
        if (alive && head.wait->done < head.number && !head.from->queue.empty())
            return false;
        s->queue.pop_front();
        return true;
    }
    work w = std::move(head);
    s->queue.pop_front();
    cudaError_t code = sticky;
    cudasim_work_begins(&w.when);
    if (code == cudaSuccess && w.remote) {
        code = w.run();
        if (code == cudaErrorNotReady) {
            cudasim_work_begins(NULL);
            s->queue.push_front(std::move(w));
            return false;
        }
    } else if (code == cudaSuccess) {
        cudasim_device_open();
        if (w.pinned)
            cudasim_flight_open(w.pinned, w.pinned_bytes);
        code = w.run();
        if (w.pinned)
            cudasim_flight_close(w.pinned, w.pinned_bytes);
        cudasim_device_close();
    }
    cudasim_work_begins(NULL);
    num_remote -= w.remote;
    if (code != cudaSuccess)
        cudasim_stick(code);
    return true;
}

/* All streams, as the device runs them beside each other. */
static bool step_all(void)
{
    bool moved = step(&legacy);
    for (size_t i = 0; i < streams.size(); i++)
        moved |= step(streams[i]);
    return moved;
}
/* A stream stands still, and the host waits for it or polls it. */
static void stand_still(void)
{
    if (!step_all())
        usleep(50);
}

static void drain(CUstream_st *s)
{
    while (!s->queue.empty())
        if (!step(s))
            stand_still();
}

static void drain_all(void)
{
    drain(&legacy);
    for (CUstream_st *s : streams)
        drain(s);
}

static CUstream_st *stream_of(cudaStream_t s)
{
    if (s == NULL || s == cudaStreamLegacy || s == cudaStreamPerThread)
        return &legacy;
    for (CUstream_st *known : streams)
        if (known == s)
            return s;
    return NULL;
}

static cudaError_t put(CUstream_st *s, work w)
{
    if (!s)
        return refuse(cudaErrorInvalidResourceHandle, "no such stream");
    if (s == &legacy) /* waits for the blocking streams, and they for it */
        for (CUstream_st *other : streams)
            if (other->blocking) {
                drain(other);
                cudasim_clock_join(&s->clock, other->clock);
            }
    if (!w.run) {
        cudasim_clock_join(&s->clock, w.behind);
    } else {
        cudasim_issued(&s->clock, s->id, w.name, &w.when);
        if (w.pinned) {
            watch_host();
            cudasim_flight(w.pinned, w.pinned_bytes, w.when, w.pinned_written);
        }
    }
    s->queue.push_back(std::move(w));
    if (s == &legacy)
        drain(s);
    else if (stream_mode == 0)
        while (step(s))
            ;
    else if (stream_mode > 1)
        for (unsigned i = chance(4); i > 0; i--) {
            step(streams[chance((unsigned)streams.size())]);
        }
    return sticky;
}

cudaError_t cudasim_enqueue(cudaStream_t stream, const char *name, std::function<cudaError_t()> run)
{
    ENTER;
    return put(stream_of(stream), work_of(name, std::move(run)));
}

/* Behind the host's back, while it calls nothing: late work stays late where the host is busy. */
static std::atomic<bool> pump_ends;
static void pump(void)
{
    uint64_t seen = 0;
    while (!pump_ends) {
        usleep(num_remote > 0 ? 200 : 2000);
        std::lock_guard<std::recursive_mutex> guard(lock);
        const bool busy = stream_mode > 0 && num_calls != seen;
        seen = num_calls;
        while (num_remote > 0 && !busy && step_all())
            ;
    }
}

cudaError_t cudasim_enqueue_remote(cudaStream_t stream, const char *name,
                                   std::function<cudaError_t()> poll)
{
    static std::thread *thread;
    ENTER;
    if (!thread) {
        thread = new std::thread(pump);
        atexit([] {
            pump_ends = true;
            thread->join();
        });
    }
    num_remote++;
    work w = work_of(name, std::move(poll));
    w.remote = true;
    return put(stream_of(stream), std::move(w));
}

extern "C" cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    ENTER;
    if (cudasim_fails("stream"))
        return answer(cudaErrorMemoryAllocation);
    *stream = new CUstream_st{{}, !(flags & cudaStreamNonBlocking), num_streams++, {}};
    streams.push_back(*stream);
    return cudaSuccess;
}
extern "C" cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithFlags(stream, 0);
}
extern "C" cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int)
{
    return cudaStreamCreateWithFlags(stream, flags);
}
extern "C" cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    ENTER;
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}
extern "C" cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    std::lock_guard<std::recursive_mutex> guard_(lock);
    CUstream_st *s = stream_of(stream);
    if (!s || s == &legacy)
        return answer(cudaErrorInvalidResourceHandle);
    drain(s);
    for (size_t i = 0; i < streams.size(); i++)
        if (streams[i] == s)
            streams.erase(streams.begin() + (ptrdiff_t)i);
    delete s;
    return cudaSuccess;
}

static cudaError_t waited(void)
{
    if (cudasim_fails("ecc"))
        cudasim_stick(cudaErrorECCUncorrectable);
    return sticky;
}
extern "C" cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    ENTER;
    CUstream_st *s = stream_of(stream);
    if (!s)
        return refuse(cudaErrorInvalidResourceHandle, "no such stream");
    drain(s);
    cudasim_host_learns(s->clock);
    return waited();
}
extern "C" cudaError_t cudaDeviceSynchronize(void)
{
    ENTER;
    drain_all();
    cudasim_host_learns(legacy.clock);
    for (const CUstream_st *s : streams)
        cudasim_host_learns(s->clock);
    return waited();
}
extern "C" void cudasim_pass_time(void)
{
    std::lock_guard<std::recursive_mutex> guard_(lock);
    drain_all();
}
extern "C" cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    ENTER;
    CUstream_st *s = stream_of(stream);
    if (!s)
        return refuse(cudaErrorInvalidResourceHandle, "no such stream");
    if (s->queue.empty()) {
        cudasim_host_learns(s->clock);
        return cudaSuccess;
    }
    if (!step(s))
        stand_still();
    return sticky != cudaSuccess ? sticky : cudaErrorNotReady;
}
extern "C" cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *arg)
{
    return cudasim_enqueue(stream, "a function of the host", [=] {
        cudasim_device_close();
        fn(arg);
        cudasim_device_open();
        return cudaSuccess;
    });
}

extern "C" cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    ENTER;
    *event = new CUevent_st{std::make_shared<event_state>()};
    **event = {std::make_shared<event_state>(
        event_state{0, 0, &legacy, 0, !(flags & cudaEventDisableTiming), {}})};
    return cudaSuccess;
}
extern "C" cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, 0);
}
extern "C" cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    std::lock_guard<std::recursive_mutex> guard_(lock);
    delete event;
    return cudaSuccess;
}
extern "C" cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    ENTER;
    CUstream_st *s = stream_of(stream);
    if (!s)
        return refuse(cudaErrorInvalidResourceHandle, "no such stream");
    std::shared_ptr<event_state> e = event->state;
    e->stream = s;
    const uint64_t number = ++e->recorded;
    const cudaError_t code = put(s, work_of("an event", [e, number] {
                                     e->done = std::max(e->done, number);
                                     e->done_ns = now_ns();
                                     return cudaSuccess;
                                 }));
    e->behind = s->clock;
    return code;
}
extern "C" cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    ENTER;
    work w = work_of("a wait", nullptr);
    w.wait = event->state;
    w.number = event->state->recorded;
    w.from = event->state->stream;
    w.behind = event->state->behind;
    return put(stream_of(stream), std::move(w));
}
extern "C" cudaError_t cudaEventQuery(cudaEvent_t event)
{
    ENTER;
    event_state *e = event->state.get();
    if (e->done < e->recorded && !step(e->stream))
        stand_still();
    if (sticky != cudaSuccess || e->done < e->recorded)
        return sticky != cudaSuccess ? sticky : cudaErrorNotReady;
    cudasim_host_learns(e->behind);
    return cudaSuccess;
}
extern "C" cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    ENTER;
    event_state *e = event->state.get();
    while (e->done < e->recorded && !e->stream->queue.empty())
        if (!step(e->stream))
            stand_still();
    cudasim_host_learns(e->behind);
    return waited();
}
extern "C" cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end)
{
    ENTER;
    const event_state *a = begin->state.get(), *b = end->state.get();
    if (!a->timing || !b->timing || a->recorded == 0 || b->recorded == 0)
        return answer(cudaErrorInvalidResourceHandle);
    if (a->done < a->recorded || b->done < b->recorded)
        return answer(cudaErrorNotReady);
    *ms = (float)((b->done_ns - a->done_ns) * 1e-6);
    return cudaSuccess;
}

/* --- copies ---------------------------------------------------------------------------------- */

/* All of it in one piece of cudaHostAlloc. */
static bool is_allocated(const void *at, size_t bytes)
{
    auto it = allocated.upper_bound((uintptr_t)at);
    return it != allocated.begin() && (uintptr_t)at + bytes <= *--it + pinned[*it];
}

static cudaError_t check_copy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind)
{
    const bool to = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice ||
                    (kind == cudaMemcpyDefault && cudasim_is_device(dst));
    const bool from = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice ||
                      (kind == cudaMemcpyDefault && cudasim_is_device(src));
    if (to ? !cudasim_in_device(dst, bytes) : cudasim_is_device(dst))
        return refuse(cudaErrorInvalidValue, "copy of %zu bytes to %p as %s memory: %s", bytes, dst,
                      to ? "device" : "host", cudasim_describe(dst));
    if (from ? !cudasim_in_device(src, bytes) : cudasim_is_device(src))
        return refuse(cudaErrorInvalidValue, "copy of %zu bytes from %p as %s memory: %s", bytes,
                      src, from ? "device" : "host", cudasim_describe(src));
    if (to && from && dst != src && (const char *)dst < (const char *)src + bytes &&
        (const char *)src < (const char *)dst + bytes)
        return refuse(cudaErrorInvalidValue, "copy of %zu bytes between overlapping ranges", bytes);
    return cudaSuccess;
}

extern "C" cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes,
                                       enum cudaMemcpyKind kind, cudaStream_t stream)
{
    ENTER;
    if (bytes == 0)
        return cudaSuccess;
    const cudaError_t bad = check_copy(dst, src, bytes, kind);
    if (bad != cudaSuccess)
        return bad;
    CUstream_st *s = stream_of(stream);
    if (!s)
        return refuse(cudaErrorInvalidResourceHandle, "no such stream");
    if (cudasim_fails("copy"))
        cudasim_stick(cudaErrorECCUncorrectable);
    work w = work_of("a copy", [=] {
        cudasim_touches(src, bytes, false);
        cudasim_touches(dst, bytes, true);
        memcpy(dst, src, bytes);
        return cudaSuccess;
    });
    if (!cudasim_is_device(src) && !cudasim_is_pinned(src, bytes) && stream_mode > 0) {
        /* Pageable: read before the call returns. */
        const char *from = (const char *)src;
        auto staged = std::make_shared<std::vector<char>>(from, from + bytes);
        w.run = [=] {
            cudasim_touches(dst, bytes, true);
            memcpy(dst, staged->data(), bytes);
            return cudaSuccess;
        };
    }
    w.pinned = is_allocated(src, bytes) ? src : is_allocated(dst, bytes) ? dst : NULL;
    w.pinned_bytes = bytes;
    w.pinned_written = w.pinned == dst;
    const cudaError_t code = put(s, std::move(w));
    if (!cudasim_is_device(dst) && !cudasim_is_pinned(dst, bytes)) { /* returns when done */
        drain(s);
        cudasim_host_learns(s->clock);
    }
    return code != cudaSuccess ? code : sticky;
}
extern "C" cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes,
                                  enum cudaMemcpyKind kind)
{
    const cudaError_t code = cudaMemcpyAsync(dst, src, bytes, kind, NULL);
    std::lock_guard<std::recursive_mutex> guard_(lock);
    cudasim_host_learns(legacy.clock);
    return code;
}
extern "C" cudaError_t cudaMemcpy2DAsync(void *dst, size_t dst_pitch, const void *src,
                                         size_t src_pitch, size_t width, size_t height,
                                         enum cudaMemcpyKind kind, cudaStream_t stream)
{
    if (width > dst_pitch || width > src_pitch)
        return answer(cudaErrorInvalidPitchValue);
    for (size_t i = 0; i < height; i++) {
        const cudaError_t code = cudaMemcpyAsync(
            (char *)dst + i * dst_pitch, (const char *)src + i * src_pitch, width, kind, stream);
        if (code != cudaSuccess)
            return code;
    }
    return cudaSuccess;
}
extern "C" cudaError_t cudaMemsetAsync(void *dst, int value, size_t bytes, cudaStream_t stream)
{
    ENTER;
    if (bytes == 0)
        return cudaSuccess;
    if (!cudasim_in_device(dst, bytes))
        return refuse(cudaErrorInvalidValue, "memset of %zu bytes at %p: %s", bytes, dst,
                      cudasim_describe(dst));
    return put(stream_of(stream), work_of("a memset", [=] {
                   cudasim_touches(dst, bytes, true);
                   memset(dst, value, bytes);
                   return cudaSuccess;
               }));
}
extern "C" cudaError_t cudaMemset(void *dst, int value, size_t bytes)
{
    return cudaMemsetAsync(dst, value, bytes, NULL);
}

/* --- kernels --------------------------------------------------------------------------------- */

extern "C" cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attribute,
                                            int value)
{
    ENTER;
    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout)
        return cudaSuccess;
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
        value > shared_most())
        return refuse(cudaErrorInvalidValue, "cudaFuncSetAttribute: attribute %d, value %d",
                      (int)attribute, value);
    shared_allowed[kernel] = value;
    return cudaSuccess;
}
extern "C" cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *to, const void *)
{
    ENTER;
    memset(to, 0, sizeof *to);
    to->maxThreadsPerBlock = CUDASIM_THREADS_MOST;
    to->binaryVersion = to->ptxVersion = 90;
    return cudaSuccess;
}
extern "C" cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *,
                                                                     int threads, size_t shared)
{
    ENTER;
    const int by_shared = shared ? (int)(228 * 1024 / (shared + 1024)) : 32;
    *blocks = threads > 0 ? 2048 / threads < by_shared ? 2048 / threads : by_shared : 0;
    return cudaSuccess;
}

/* The error with which the hardware would refuse the launch, or cudaSuccess. */
static cudaError_t check_launch(const void *kernel, const struct cudasim_grid *g)
{
    const dim3 grid = g->grid, block = g->block;
    const uint64_t threads = (uint64_t)block.x * block.y * block.z;
    const auto allowed = shared_allowed.find(kernel);
    const size_t most =
        allowed == shared_allowed.end() ? (size_t)CUDASIM_SHARED_PLAIN : (size_t)allowed->second;
    if (threads < 1 || threads > CUDASIM_THREADS_MOST || block.z > 64 || grid.x < 1 || grid.y < 1 ||
        grid.z < 1 || grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535)
        return refuse(cudaErrorInvalidConfiguration, "kernel %s: grid (%u,%u,%u), block (%u,%u,%u)",
                      g->name, grid.x, grid.y, grid.z, block.x, block.y, block.z);
    if (g->shared > most && g->shared > CUDASIM_SHARED_PLAIN)
        return refuse(cudaErrorInvalidValue,
                      "kernel %s: %zu bytes of dynamic shared memory, allowed %zu", g->name,
                      g->shared, most);
    if (cudasim_fails("launch")) {
        cudasim_stick(cudaErrorLaunchFailure);
        return sticky;
    }
    return cudasim_fails("room") ? answer(cudaErrorMemoryAllocation) : cudaSuccess;
}

void cudasim_loads(const void *what, uint64_t shape)
{
    static std::set<std::pair<const void *, uint64_t>> loaded;
    std::lock_guard<std::recursive_mutex> guard_(lock);
    if (loads_wait && loaded.insert({what, shape}).second)
        drain_all();
}

static cudaError_t launch(const void *kernel, const struct cudasim_grid *g, cudaStream_t stream)
{
    const std::shared_ptr<void> args(g->args, free);
    const struct cudasim_grid grid = *g;
    ENTER;
    const cudaError_t code = check_launch(kernel, g);
    if (code != cudaSuccess)
        return code;
    num_launches++;
    cudasim_loads(kernel);
    return put(stream_of(stream), work_of(g->name, [grid, args] { return cudasim_run(&grid); }));
}

void cudasim_submit(const void *kernel, const char *name, dim3 grid, dim3 block, size_t shared,
                    cudaStream_t stream, void (*run)(void *args), void *args, size_t args_bytes)
{
    const struct cudasim_grid g = {name, grid, block, shared, run, args, args_bytes};
    answer(launch(kernel, &g, stream));
}

/* --- devices and errors ---------------------------------------------------------------------- */

extern "C" cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 0;
    ENTER;
    *count = 1;
    return cudaSuccess;
}
extern "C" cudaError_t cudaSetDevice(int device)
{
    ENTER;
    return device == 0 ? cudaSuccess : answer(cudaErrorInvalidDevice);
}
extern "C" cudaError_t cudaGetDevice(int *device)
{
    ENTER;
    *device = 0;
    return cudaSuccess;
}
extern "C" cudaError_t cudaDriverGetVersion(int *version)
{
    const char *fault = getenv("ELAPSE_CUDASIM_FAULT");
    *version = fault && strcmp(fault, "no-device") == 0    ? 0
               : fault && strcmp(fault, "old-driver") == 0 ? 11080
                                                           : CUDART_VERSION;
    return cudaSuccess;
}
extern "C" cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}
extern "C" cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *to, int device)
{
    ENTER;
    if (device != 0)
        return answer(cudaErrorInvalidDevice);
    memset(to, 0, sizeof *to);
    snprintf(to->name, sizeof to->name, "cudasim");
    to->totalGlobalMem = capacity;
    to->sharedMemPerBlock = CUDASIM_SHARED_PLAIN;
    to->sharedMemPerBlockOptin = (size_t)shared_most();
    to->sharedMemPerMultiprocessor = 228 * 1024;
    to->regsPerBlock = to->regsPerMultiprocessor = 65536;
    to->warpSize = 32;
    to->maxThreadsPerBlock = CUDASIM_THREADS_MOST;
    to->maxThreadsPerMultiProcessor = 2048;
    to->multiProcessorCount = num_sms();
    to->major = 9;
    to->minor = 0;
    to->l2CacheSize = L2_BYTES;
    to->unifiedAddressing = 1;
    to->asyncEngineCount = 2;
    to->concurrentKernels = 1;
    to->memoryBusWidth = 64;
    return cudaSuccess;
}
extern "C" cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    ENTER;
    if (device != 0)
        return answer(cudaErrorInvalidDevice);
    switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
        *value = 9;
        break;
    case cudaDevAttrComputeCapabilityMinor:
        *value = 0;
        break;
    case cudaDevAttrMultiProcessorCount:
        *value = num_sms();
        break;
    case cudaDevAttrMaxThreadsPerBlock:
        *value = CUDASIM_THREADS_MOST;
        break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
        *value = 2048;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = CUDASIM_SHARED_PLAIN;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = shared_most();
        break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *value = 228 * 1024;
        break;
    case cudaDevAttrL2CacheSize:
        *value = L2_BYTES;
        break;
    case cudaDevAttrWarpSize:
        *value = 32;
        break;
    case cudaDevAttrClockRate:
        *value = 1000000;
        break;
    case cudaDevAttrMemoryClockRate:
        *value = 1000000;
        break;
    case cudaDevAttrGlobalMemoryBusWidth:
        *value = 64;
        break;
    case cudaDevAttrAsyncEngineCount:
        *value = 2;
        break;
    case cudaDevAttrPciBusId:
        *value = 1;
        break;
    case cudaDevAttrPciDeviceId:
        *value = 0;
        break;
    case cudaDevAttrPciDomainId:
        *value = 0;
        break;
    default:
        return refuse(cudaErrorInvalidValue, "device attribute %d", (int)attribute);
    }
    return cudaSuccess;
}
extern "C" cudaError_t cudaDeviceGetPCIBusId(char *to, int length, int device)
{
    ENTER;
    if (device != 0)
        return answer(cudaErrorInvalidDevice);
    snprintf(to, (size_t)length, "0000:01:00.0");
    return cudaSuccess;
}
extern "C" cudaError_t cudaDeviceReset(void)
{
    return cudaSuccess;
}
extern "C" cudaError_t cudaGetLastError(void)
{
    std::lock_guard<std::recursive_mutex> guard_(lock);
    const cudaError_t code = sticky != cudaSuccess ? sticky : last;
    last = cudaSuccess;
    return code;
}
extern "C" cudaError_t cudaPeekAtLastError(void)
{
    std::lock_guard<std::recursive_mutex> guard_(lock);
    return sticky != cudaSuccess ? sticky : last;
}

static const struct {
    cudaError_t code;
    const char *name, *text;
} errors[] = {
#define ROW(code, text)                                                                            \
    {                                                                                              \
        code, #code, text                                                                          \
    }
    ROW(cudaSuccess, "no error"),
    ROW(cudaErrorInvalidValue, "invalid argument"),
    ROW(cudaErrorMemoryAllocation, "out of memory"),
    ROW(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    ROW(cudaErrorInvalidPitchValue, "invalid pitch argument"),
    ROW(cudaErrorInsufficientDriver,
        "CUDA driver version is insufficient for CUDA runtime version"),
    ROW(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    ROW(cudaErrorInvalidDevice, "invalid device ordinal"),
    ROW(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    ROW(cudaErrorNotReady, "device not ready"),
    ROW(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    ROW(cudaErrorMisalignedAddress, "misaligned address"),
    ROW(cudaErrorLaunchFailure, "unspecified launch failure"),
    ROW(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered"),
#undef ROW
};
extern "C" const char *cudaGetErrorName(cudaError_t code)
{
    for (const auto &e : errors)
        if (e.code == code)
            return e.name;
    return "unrecognized error code";
}
extern "C" const char *cudaGetErrorString(cudaError_t code)
{
    for (const auto &e : errors)
        if (e.code == code)
            return e.text;
    return "unrecognized error code";
}
