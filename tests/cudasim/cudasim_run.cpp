/* Blocks, fibers, barriers and collectives of warps.
 *
 * A block's threads are fibers on pooled stacks; one that never waits needs no stack of its own,
 * because the next thread takes over the stack that it leaves. The scheduler runs a warp until all
 * its lanes wait for the block or have left, then the next; when all wait, the barrier opens. */
#include "tests/cudasim/cudasim.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#ifndef __x86_64__
#include <ucontext.h>
#endif

#include <vector>

#include "tests/cudasim/cudasim_internal.h"

enum { STACK_BYTES = 64 * 1024, PAGE = 4096, GUARD_BYTES = 1024, LANES = 32 };

enum state { READY, AT_WARP, AT_BLOCK, LEFT, NUM_STATES };

struct copy { /* one cp.async */
    void *to;
    const void *from;
    int bytes, read;
    int group;
};

struct fiber {
    struct cudasim_thread thread; /* first: cudasim_self points here */
    enum state state; /* set by enter() */
    unsigned char *stack; /* NULL: not begun, or left */
#ifdef __x86_64__
    void *sp;
#else
    ucontext_t context;
#endif
    const char *what, *file; /* where it waits */
    int line;
    unsigned mask;
    void *slot;
    cudasim_work work;
    enum cudasim_vote vote;
    int predicate, answer;
    int group; /* of cp.async: number of the group being filled */
    std::vector<struct copy> copies;
};

struct cudasim_thread *cudasim_self;
uint3 cudasim_block;
dim3 cudasim_block_dim, cudasim_grid_dim;
unsigned char *cudasim_dynamic;
size_t cudasim_dynamic_bytes;
bool cudasim_running;
unsigned cudasim_order;
uint32_t cudasim_launch_count, cudasim_block_count, cudasim_block_epoch, cudasim_warp_epoch[LANES];

static struct fiber fibers[CUDASIM_THREADS_MOST];
static int num_threads, num_left;
static uint32_t lanes_in[NUM_STATES][CUDASIM_THREADS_MOST / LANES]; /* of each warp */
static const struct cudasim_grid *running_grid;
unsigned char *cudasim_stacks, *cudasim_stacks_end; /* all of them, guard pages between */
static std::vector<unsigned char *> free_stacks;
static sigjmp_buf kernel_exit;
static cudaError_t kernel_error;
static char fault_text[1024];
static bool quiet;
static uint64_t chance_state = 1;
static pthread_t runner; /* the thread of the host that runs the kernel */

static void enter(struct fiber *f, enum state state)
{
    const uint32_t lane = 1u << f->thread.lane;
    lanes_in[f->state][f->thread.warp] &= ~lane;
    lanes_in[state][f->thread.warp] |= lane;
    f->state = state;
}

bool cudasim_runs_here(void)
{
    return cudasim_running && pthread_equal(pthread_self(), runner);
}

/* --- switching ------------------------------------------------------------------------------- */

#ifdef __x86_64__
static void *scheduler_sp;
extern "C" void cudasim_switch(void **save, void *to);
__asm__(".text\n"
        ".globl cudasim_switch\n"
        ".type cudasim_switch, @function\n"
        "cudasim_switch:\n"
        "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
        "  movq %rsp, (%rdi)\n"
        "  movq %rsi, %rsp\n"
        "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
        "  ret\n"
        ".size cudasim_switch, . - cudasim_switch\n");
#else
static ucontext_t scheduler_context;
#endif

static struct fiber *self(void)
{
    return (struct fiber *)cudasim_self;
}

static void leave_to_scheduler(void)
{
    struct fiber *f = self();
#ifdef __x86_64__
    cudasim_switch(&f->sp, scheduler_sp);
#else
    swapcontext(&f->context, &scheduler_context);
#endif
}

static void wake_complete(struct fiber *f);

extern "C" void cudasim_fiber_begin(void)
{
    struct fiber *f = self();
    running_grid->run(running_grid->args);
    if (!f->copies.empty())
        cudasim_cp_wait(0);
    enter(f, LEFT);
    num_left++;
    const unsigned first = f->thread.warp * LANES; /* those left behind may be complete now */
    for (unsigned i = 0; i < LANES; i++)
        if (lanes_in[AT_WARP][f->thread.warp] >> i & 1)
            wake_complete(&fibers[first + i]);
    leave_to_scheduler();
    __builtin_trap();
}

static void begin(struct fiber *f)
{
    f->stack = free_stacks.back();
    free_stacks.pop_back();
#ifdef __x86_64__
    /* Tops are spread over cache sets. */
    void **sp = (void **)(f->stack + STACK_BYTES - 64 - (f->thread.linear % 61) * 64);
    *--sp = NULL; /* return address of begin: none; keeps the ABI's alignment */
    *--sp = (void *)cudasim_fiber_begin;
    for (int i = 0; i < 6; i++)
        *--sp = NULL;
    f->sp = sp;
#else
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = STACK_BYTES;
    f->context.uc_link = NULL;
    makecontext(&f->context, cudasim_fiber_begin, 0);
#endif
}

static void resume(struct fiber *f)
{
    if (!f->stack)
        begin(f);
    cudasim_self = &f->thread;
    cudasim_running = true;
#ifdef __x86_64__
    cudasim_switch(&scheduler_sp, f->sp);
#else
    swapcontext(&scheduler_context, &f->context);
#endif
    cudasim_running = false;
    cudasim_self = NULL;
    if (f->state == LEFT) {
        free_stacks.push_back(f->stack);
        f->stack = NULL;
    }
}

/* --- faults ---------------------------------------------------------------------------------- */

static void fault_write(const char *format, va_list args)
{
    char place[160] = "";
    if (cudasim_runs_here())
        snprintf(place, sizeof place,
                 "kernel %s, block (%u,%u,%u), thread (%u,%u,%u): ", running_grid->name,
                 cudasim_block.x, cudasim_block.y, cudasim_block.z, cudasim_self->index.x,
                 cudasim_self->index.y, cudasim_self->index.z);
    else if (running_grid && pthread_equal(pthread_self(), runner))
        snprintf(place, sizeof place, "kernel %s, block (%u,%u,%u): ", running_grid->name,
                 cudasim_block.x, cudasim_block.y, cudasim_block.z);
    const int used = snprintf(fault_text, sizeof fault_text, "%s", place);
    vsnprintf(fault_text + used, sizeof fault_text - (size_t)used, format, args);
    if (!quiet)
        fprintf(stderr, "cudasim: %s\n", fault_text);
}

void cudasim_say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fault_write(format, args);
    va_end(args);
}

void cudasim_fault(cudaError_t code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fault_write(format, args);
    va_end(args);
    kernel_error = code;
    siglongjmp(kernel_exit, 1);
}

static void on_fault_signal(int sig, siginfo_t *info, void *context)
{
    (void)context;
    const void *at = info->si_addr;
    if (!cudasim_runs_here() && cudasim_host_fault(at)) /* of another thread */
        return;
    if (cudasim_runs_here()) {
        const unsigned char *a = (const unsigned char *)at;
        if (cudasim_on_stack(at) && (size_t)(a - cudasim_stacks) % (STACK_BYTES + PAGE) < PAGE)
            cudasim_fault(cudaErrorLaunchFailure, "stack overrun (local arrays above %d bytes)",
                          STACK_BYTES);
        cudasim_fault(cudaErrorIllegalAddress, "illegal address %p: %s", at, cudasim_describe(at));
    }
    signal(sig, SIG_DFL);
    raise(sig);
}

void cudasim_trap(const char *file, int line)
{
    cudasim_fault(cudaErrorLaunchFailure, "trap at %s:%d", file, line);
}

extern "C" void cudasim_set_quiet(bool on)
{
    quiet = on;
}

extern "C" void cudasim_set_order(unsigned order)
{
    cudasim_order = order;
    chance_state = 0x9e3779b97f4a7c15ull * (order + 1ull);
}

uint64_t cudasim_chance(void)
{
    chance_state ^= chance_state << 13;
    chance_state ^= chance_state >> 7;
    chance_state ^= chance_state << 17;
    return chance_state * 0x2545f4914f6cdd1dull >> 16;
}

/* --- barriers and collectives ---------------------------------------------------------------- */

int cudasim_syncthreads(enum cudasim_vote vote, int predicate, const char *file, int line)
{
    struct fiber *f = self();
    enter(f, AT_BLOCK);
    f->what = "__syncthreads";
    f->file = file;
    f->line = line;
    f->vote = vote;
    f->predicate = predicate != 0;
    leave_to_scheduler();
    return f->answer;
}

static void open_barrier(void)
{
    int count = 0;
    const struct fiber *first = NULL;
    for (int i = 0; i < num_threads; i++) {
        const struct fiber *f = &fibers[i];
        if (f->state == LEFT)
            continue;
        if (!first)
            first = f;
        count += f->predicate;
        if (f->line != first->line || strcmp(f->file, first->file) != 0 || f->vote != first->vote)
            cudasim_fault(cudaErrorLaunchFailure,
                          "divergent barrier: thread %u waits at %s:%d, thread %u at %s:%d",
                          first->thread.linear, first->file, first->line, f->thread.linear, f->file,
                          f->line);
    }
    if (num_left > 0)
        cudasim_fault(cudaErrorLaunchFailure,
                      "divergent barrier at %s:%d: %d of %d threads left before it", first->file,
                      first->line, num_left, num_threads);
    const int all = num_threads - num_left;
    for (int i = 0; i < num_threads; i++) {
        struct fiber *f = &fibers[i];
        if (f->state == LEFT)
            continue;
        f->answer = f->vote == CUDASIM_OR    ? count > 0
                    : f->vote == CUDASIM_AND ? count == all
                                             : count;
        enter(f, READY);
    }
    cudasim_block_epoch++;
}

/* If all lanes of f's mask that have not left wait in the same collective, it happens. */
static void wake_complete(struct fiber *f)
{
    const unsigned warp = f->thread.warp, first = warp * LANES;
    const uint32_t there = f->mask & lanes_in[AT_WARP][warp];
    if (f->mask & (lanes_in[READY][warp] | lanes_in[AT_BLOCK][warp]))
        return;
    void *slots[LANES] = {NULL};
    for (unsigned lane = 0; lane < LANES; lane++) {
        if (!(there >> lane & 1))
            continue;
        const struct fiber *other = &fibers[first + lane];
        if (other->work != f->work || other->mask != f->mask ||
            (other->what != f->what && strcmp(other->what, f->what) != 0))
            cudasim_fault(
                cudaErrorLaunchFailure,
                "lanes diverge: lane %u in %s of mask %08x at %s:%d, lane %u in %s of mask "
                "%08x at %s:%d",
                f->thread.lane, f->what, f->mask, f->file, f->line, lane, other->what, other->mask,
                other->file, other->line);
        slots[lane] = other->slot;
    }
    if (f->work)
        f->work(slots, f->mask);
    for (unsigned lane = 0; lane < LANES; lane++)
        if (there >> lane & 1)
            enter(&fibers[first + lane], READY);
}

void cudasim_collective(const char *name, unsigned mask, void *slot, cudasim_work work,
                        const char *file, int line)
{
    struct fiber *f = self();
    if (!(mask >> f->thread.lane & 1))
        cudasim_fault(cudaErrorLaunchFailure, "%s at %s:%d: lane %u is not in its mask %08x", name,
                      file, line, f->thread.lane, mask);
    enter(f, AT_WARP);
    f->what = name;
    f->file = file;
    f->line = line;
    f->mask = mask;
    f->slot = slot;
    f->work = work;
    wake_complete(f);
    if (f->state != READY)
        leave_to_scheduler();
}

struct shuffle_slot {
    enum cudasim_shuffle how;
    uint64_t in, out;
    int by, width;
};

static void shuffle_work(void **slots, unsigned mask)
{
    for (int lane = 0; lane < LANES; lane++) {
        struct shuffle_slot *s = (struct shuffle_slot *)slots[lane];
        if (!s)
            continue;
        const int begin_lane = lane / s->width * s->width, end = begin_lane + s->width;
        int from = lane;
        switch (s->how) {
        case CUDASIM_IDX:
            from = begin_lane + (s->by & (s->width - 1));
            break;
        case CUDASIM_UP:
            from = lane - s->by < begin_lane ? lane : lane - s->by;
            break;
        case CUDASIM_DOWN:
            from = lane + s->by >= end ? lane : lane + s->by;
            break;
        case CUDASIM_XOR:
            from = (lane ^ s->by) >= end ? lane : lane ^ s->by;
            break;
        }
        if (!slots[from])
            cudasim_fault(cudaErrorLaunchFailure,
                          "shuffle: lane %d reads from lane %d, which is not there (mask %08x)",
                          lane, from, mask);
        s->out = ((struct shuffle_slot *)slots[from])->in;
    }
}

uint64_t cudasim_shuffle(enum cudasim_shuffle how, unsigned mask, uint64_t value, int by, int width,
                         const char *file, int line)
{
    static const char *const names[] = {"__shfl_sync", "__shfl_up_sync", "__shfl_down_sync",
                                        "__shfl_xor_sync"};
    struct shuffle_slot slot = {how, value, 0, by, width};
    if (width < 1 || width > 32 || (width & (width - 1)))
        cudasim_fault(cudaErrorLaunchFailure, "%s at %s:%d: width %d is no power of two to 32",
                      names[how], file, line, width);
    cudasim_collective(names[how], mask, &slot, shuffle_work, file, line);
    return slot.out;
}

struct reduce_slot {
    enum cudasim_reduce how;
    bool is_signed;
    unsigned in, out;
};

static void reduce_work(void **slots, unsigned mask)
{
    (void)mask;
    bool any = false;
    unsigned sum = 0;
    for (int lane = 0; lane < LANES; lane++) {
        const struct reduce_slot *s = (const struct reduce_slot *)slots[lane];
        if (!s)
            continue;
        const unsigned v = s->in;
        const bool less = s->is_signed ? (int)v < (int)sum : v < sum;
        switch (s->how) {
        case CUDASIM_BALLOT:
            sum |= (v ? 1u : 0u) << lane;
            break;
        case CUDASIM_ADD:
            sum += v;
            break;
        case CUDASIM_MIN:
            sum = !any || less ? v : sum;
            break;
        case CUDASIM_MAX:
            sum = !any || !less ? v : sum;
            break;
        case CUDASIM_BITAND:
            sum = any ? sum & v : v;
            break;
        case CUDASIM_BITOR:
            sum |= v;
            break;
        case CUDASIM_BITXOR:
            sum ^= v;
            break;
        }
        any = true;
    }
    for (int lane = 0; lane < LANES; lane++)
        if (slots[lane])
            ((struct reduce_slot *)slots[lane])->out = sum;
}

unsigned cudasim_reduce(enum cudasim_reduce how, bool is_signed, unsigned mask, unsigned value,
                        const char *file, int line)
{
    struct reduce_slot slot = {how, is_signed, value, 0};
    cudasim_collective("a vote or reduction", mask, &slot, reduce_work, file, line);
    return slot.out;
}

/* Memory is ordered among these lanes; it counts as an epoch of the warp where none is missing. */
static void syncwarp_work(void **slots, unsigned mask)
{
    (void)mask;
    const unsigned first = cudasim_self->warp * LANES;
    for (unsigned lane = 0; lane < LANES && first + lane < (unsigned)num_threads; lane++)
        if (!slots[lane] && fibers[first + lane].state != LEFT)
            return;
    cudasim_warp_epoch[cudasim_self->warp]++;
}

void cudasim_syncwarp(unsigned mask, const char *file, int line)
{
    int dummy;
    cudasim_collective("__syncwarp", mask, &dummy, syncwarp_work, file, line);
}

/* --- exec/cuda/ptx.cuh ----------------------------------------------------------------------- */

struct mma_slot {
    float *d;
    const uint32_t *a;
    uint32_t b[2];
};

static float bf16_of(uint32_t word, int half)
{
    return cudasim_bits<float>(half ? word & 0xffff0000u : word << 16);
}

static void check_all(void **slots, const char *name)
{
    for (int lane = 0; lane < LANES; lane++)
        if (!slots[lane])
            cudasim_fault(cudaErrorLaunchFailure, "%s: lane %d is not there", name, lane);
}

/* D[16, 8] += A[16, 16] B[16, 8] by mma.m16n8k16's fragments of bf16 and fp32: A's element i of 8 is
 * row g + 8 where i / 2 is odd, column 2 t + i % 2, 8 further where i >= 4; B's element i of 4 is row
 * 2 t + i % 2 (+ 8 where i >= 2), column g; d[i] is row g + 8 (i / 2), column 2 t + i % 2. */
static void mma_bf16_warp(float (*d)[4], const uint32_t (*a)[4], const uint32_t (*b)[2])
{
    float whole_a[16][16], whole_b[16][8];
    for (int lane = 0; lane < LANES; lane++) {
        const int g = lane / 4, t = lane % 4;
        for (int i = 0; i < 8; i++)
            whole_a[g + 8 * (i / 2 % 2)][2 * t + i % 2 + 8 * (i / 4)] = bf16_of(a[lane][i / 2], i % 2);
        for (int i = 0; i < 4; i++)
            whole_b[2 * t + i % 2 + 8 * (i / 2)][g] = bf16_of(b[lane][i / 2], i % 2);
    }
    for (int lane = 0; lane < LANES; lane++) {
        const int g = lane / 4, t = lane % 4;
        for (int i = 0; i < 4; i++) {
            const int row = g + 8 * (i / 2), col = 2 * t + i % 2;
            double sum = 0; /* products are exact in double; hardware's order is its own */
            for (int k = 0; k < 16; k++)
                sum += (double)whole_a[row][k] * (double)whole_b[k][col];
            d[lane][i] = (float)((double)d[lane][i] + sum);
        }
    }
}

static void mma_bf16_work(void **slots, unsigned mask)
{
    (void)mask;
    float d[LANES][4];
    uint32_t a[LANES][4], b[LANES][2];
    check_all(slots, "mma_bf16_16816");
    for (int lane = 0; lane < LANES; lane++) {
        const struct mma_slot *s = (const struct mma_slot *)slots[lane];
        memcpy(d[lane], s->d, sizeof d[lane]);
        memcpy(a[lane], s->a, sizeof a[lane]);
        memcpy(b[lane], s->b, sizeof b[lane]);
    }
    mma_bf16_warp(d, a, b);
    for (int lane = 0; lane < LANES; lane++)
        memcpy(((struct mma_slot *)slots[lane])->d, d[lane], sizeof d[lane]);
}

void cudasim_mma_bf16(float *d, const uint32_t *a, uint32_t b0, uint32_t b1)
{
    struct mma_slot slot = {
        d, a, {b0, b1}
    };
    cudasim_collective("mma_bf16_16816", 0xffffffffu, &slot, mma_bf16_work, __FILE__, __LINE__);
}

struct ldmatrix_slot {
    uint32_t *to;
    const void *row;
    int num;
    bool trans;
};

/* Lane 8 m + r gives row r of matrix m; lane 4 g + t receives elements (g, 2 t), (g, 2 t + 1) of
 * each, or (2 t, g), (2 t + 1, g). */
static void ldmatrix_warp(uint32_t (*to)[4], const unsigned char *const *rows, int num, bool trans)
{
    uint16_t m[4][8][8];
    for (int i = 0; i < num * 8; i++)
        memcpy(m[i / 8][i % 8], rows[i], 16);
    for (int lane = 0; lane < LANES; lane++) {
        const int g = lane / 4, t = lane % 4;
        for (int i = 0; i < num; i++)
            to[lane][i] = trans ? m[i][2 * t][g] | (uint32_t)m[i][2 * t + 1][g] << 16
                                : m[i][g][2 * t] | (uint32_t)m[i][g][2 * t + 1] << 16;
    }
}

static void ldmatrix_work(void **slots, unsigned mask)
{
    (void)mask;
    check_all(slots, "ldmatrix");
    const struct ldmatrix_slot *s = (const struct ldmatrix_slot *)slots[0];
    const unsigned char *rows[LANES];
    uint32_t to[LANES][4];
    for (int i = 0; i < LANES; i++)
        rows[i] = (const unsigned char *)((const struct ldmatrix_slot *)slots[i])->row;
    ldmatrix_warp(to, rows, s->num, s->trans);
    for (int lane = 0; lane < LANES; lane++)
        memcpy(((struct ldmatrix_slot *)slots[lane])->to, to[lane], sizeof to[0][0] * (size_t)s->num);
}

static void check_shared(const char *what, const void *address, size_t bytes)
{
    if ((uintptr_t)address % 16)
        cudasim_fault(cudaErrorMisalignedAddress, "%s: shared address %p is no multiple of 16",
                      what, address);
    if (cudasim_is_device(address) || cudasim_on_stack(address))
        cudasim_fault(cudaErrorIllegalAddress, "%s: %p is not in shared memory", what, address);
    const unsigned char *at = (const unsigned char *)address;
    if (at + bytes > cudasim_dynamic - GUARD_BYTES &&
        at < cudasim_dynamic + CUDASIM_SHARED_MOST + GUARD_BYTES &&
        (at < cudasim_dynamic || at + bytes > cudasim_dynamic + cudasim_dynamic_bytes))
        cudasim_fault(cudaErrorIllegalAddress, "%s: byte %td of dynamic shared memory of %zu bytes",
                      what, at - cudasim_dynamic, cudasim_dynamic_bytes);
}

void cudasim_ldmatrix(uint32_t *to, const void *row, int num, bool trans, const char *name)
{
    if ((int)cudasim_self->lane < 8 * num) {
        check_shared(name, row, 16);
        cudasim_check_read(row, 16);
    }
    struct ldmatrix_slot slot = {to, row, num, trans};
    cudasim_collective(name, 0xffffffffu, &slot, ldmatrix_work, __FILE__, __LINE__);
}

/* Copies happen as late as they may, at the wait; by chance at once where the order is shuffled. */
static void copy_now(const struct copy *c)
{
    memcpy(c->to, c->from, (size_t)c->read);
    memset((char *)c->to + c->read, 0, (size_t)(c->bytes - c->read));
}

void cudasim_cp_async(void *to, const void *from, int bytes, int read)
{
    struct fiber *f = self();
    check_shared("cp_async", to, (size_t)bytes);
    if (read > 0) {
        if ((uintptr_t)from % 16)
            cudasim_fault(cudaErrorMisalignedAddress,
                          "cp_async: device address %p is no multiple of 16", from);
        if (!cudasim_in_device(from, (size_t)read))
            cudasim_fault(cudaErrorIllegalAddress, "cp_async of %d bytes from %p: %s", read, from,
                          cudasim_describe(from));
        cudasim_check_read(from, (size_t)read);
    }
    cudasim_check_write(to, (size_t)bytes);
    const struct copy c = {to, from, bytes, read, f->group};
    if (cudasim_order > 1 && cudasim_chance() % 2)
        copy_now(&c);
    else
        f->copies.push_back(c);
}

void cudasim_cp_commit(void)
{
    self()->group++;
}

void cudasim_cp_wait(int pending)
{
    struct fiber *f = self();
    size_t kept = 0;
    for (size_t i = 0; i < f->copies.size(); i++)
        if (f->copies[i].group < f->group - pending) {
            cudasim_check_write(f->copies[i].to, (size_t)f->copies[i].bytes);
            copy_now(&f->copies[i]);
        } else {
            f->copies[kept++] = f->copies[i];
        }
    f->copies.resize(kept);
}

/* --- blocks ---------------------------------------------------------------------------------- */

static unsigned char *dynamic_area; /* page, most shared memory, pages; guards in them */

static void init(void)
{
    if (cudasim_stacks)
        return;
    const size_t each = STACK_BYTES + PAGE;
    cudasim_stacks = (unsigned char *)mmap(NULL, each * CUDASIM_THREADS_MOST, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (cudasim_stacks == MAP_FAILED)
        abort();
    cudasim_stacks_end = cudasim_stacks + each * CUDASIM_THREADS_MOST;
    for (int i = CUDASIM_THREADS_MOST - 1; i >= 0; i--) {
        mprotect(cudasim_stacks + (size_t)i * each, PAGE, PROT_NONE);
        free_stacks.push_back(cudasim_stacks + (size_t)i * each + PAGE);
    }
    /* In pages of its own: what lies near it is meant for it. */
    dynamic_area = (unsigned char *)mmap(NULL, CUDASIM_SHARED_MOST + 4 * PAGE,
                                         PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (dynamic_area == MAP_FAILED)
        abort();
    cudasim_dynamic = dynamic_area + PAGE + 16; /* a multiple of 16 and not of 32 */
    static unsigned char signal_stack[64 * 1024];
    const stack_t alternate = {signal_stack, 0, sizeof signal_stack};
    sigaltstack(&alternate, NULL);
}

enum { GUARD_BYTE = 0xa5 };

static void check_guards(void)
{
    for (int side = 0; side < 2; side++) {
        const unsigned char *guard =
            side ? cudasim_dynamic + cudasim_dynamic_bytes : cudasim_dynamic - GUARD_BYTES;
        for (int i = 0; i < GUARD_BYTES; i++)
            if (guard[i] != GUARD_BYTE)
                cudasim_fault(cudaErrorLaunchFailure,
                              "a write to byte %td of dynamic shared memory of %zu bytes",
                              guard + i - cudasim_dynamic, cudasim_dynamic_bytes);
    }
}

/* The order-th order of 0 .. num - 1. */
static void permute(int *to, int num)
{
    for (int i = 0; i < num; i++)
        to[i] = cudasim_order == 1 ? num - 1 - i : i;
    if (cudasim_order > 1)
        for (int i = num - 1; i > 0; i--) {
            const int j = (int)(cudasim_chance() % (uint64_t)(i + 1)), other = to[i];
            to[i] = to[j];
            to[j] = other;
        }
}

/* Until all lanes of the warp wait for the block or have left. */
static void run_warp(int warp)
{
    const int first = warp * LANES;
    const int lanes = num_threads - first < LANES ? num_threads - first : LANES;
    int order[LANES];
    permute(order, lanes);
    while (lanes_in[READY][warp])
        for (int i = 0; i < lanes; i++)
            if (lanes_in[READY][warp] >> order[i] & 1)
                resume(&fibers[first + order[i]]);
    const uint32_t there = lanes_in[AT_WARP][warp], left = lanes_in[LEFT][warp];
    if (there) {
        const struct fiber *f = &fibers[first + __builtin_ctz(there)];
        const char *elsewhere = lanes_in[AT_BLOCK][warp] ? ", others wait in __syncthreads" : "";
        cudasim_fault(cudaErrorLaunchFailure,
                      "warp %d hangs: lane %u waits in %s at %s:%d for mask %08x; in collectives "
                      "%08x, left %08x%s",
                      warp, f->thread.lane, f->what, f->file, f->line, f->mask, there, left,
                      elsewhere);
    }
}

static void run_block(const struct cudasim_grid *g)
{
    const int warps = (num_threads + LANES - 1) / LANES;
    int order[LANES];
    num_left = 0;
    for (int i = 0; i < num_threads; i++) {
        enter(&fibers[i], READY);
        fibers[i].predicate = 0;
        fibers[i].group = 0;
        if (!fibers[i].copies.empty())
            fibers[i].copies.clear();
    }
    memset(cudasim_dynamic - GUARD_BYTES, GUARD_BYTE, GUARD_BYTES);
    memset(cudasim_dynamic, 0xff, g->shared); /* NaN */
    memset(cudasim_dynamic + g->shared, GUARD_BYTE, GUARD_BYTES);
    cudasim_block_count++;
    cudasim_block_epoch++;
    while (num_left < num_threads) {
        permute(order, warps);
        for (int i = 0; i < warps; i++)
            run_warp(order[i]);
        if (num_left < num_threads)
            open_barrier();
    }
    check_guards();
}

bool cudasim_is_argument(const void *address, size_t bytes)
{
    const char *at = (const char *)address, *begin = (const char *)running_grid->args;
    return at >= begin && at + bytes <= begin + running_grid->args_bytes;
}

cudaError_t cudasim_run(const struct cudasim_grid *g)
{
    init();
    struct sigaction action, before[2]; /* test runners have handlers of their own */
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_fault_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGSEGV, &action, &before[0]);
    sigaction(SIGBUS, &action, &before[1]);
    running_grid = g;
    runner = pthread_self();
    kernel_error = cudaSuccess;
    cudasim_grid_dim = g->grid;
    cudasim_block_dim = g->block;
    cudasim_dynamic_bytes = g->shared;
    cudasim_launch_count++;
    num_threads = (int)(g->block.x * g->block.y * g->block.z);
    memset(lanes_in, 0, sizeof lanes_in);
    for (int i = 0; i < num_threads; i++) {
        const unsigned linear = (unsigned)i, x = g->block.x, y = g->block.y;
        fibers[i].thread.index = {linear % x, linear / x % y, linear / (x * y)};
        fibers[i].thread.linear = linear;
        fibers[i].thread.lane = linear % LANES;
        fibers[i].thread.warp = linear / LANES;
    }
    if (sigsetjmp(kernel_exit, 0) == 0) {
        /* Blocks, too, come in any order. */
        const uint64_t blocks = (uint64_t)g->grid.x * g->grid.y * g->grid.z;
        const uint64_t turn = cudasim_order > 1 ? cudasim_chance() % blocks : 0;
        for (uint64_t i = 0; i < blocks; i++) {
            uint64_t b = (i + turn) % blocks;
            if (cudasim_order % 2)
                b = blocks - 1 - b;
            cudasim_block = {(unsigned)(b % g->grid.x), (unsigned)(b / g->grid.x % g->grid.y),
                             (unsigned)(b / ((uint64_t)g->grid.x * g->grid.y))};
            run_block(g);
        }
    } else {
        cudasim_running = false;
        cudasim_self = NULL;
        for (int i = 0; i < num_threads; i++)
            if (fibers[i].stack) {
                free_stacks.push_back(fibers[i].stack);
                fibers[i].stack = NULL;
            }
    }
    sigaction(SIGSEGV, &before[0], NULL);
    sigaction(SIGBUS, &before[1], NULL);
    running_grid = NULL;
    return kernel_error;
}

const char *cudasim_fault_text(void)
{
    return fault_text;
}
void cudasim_clear_fault(void)
{
    fault_text[0] = '\0';
}
