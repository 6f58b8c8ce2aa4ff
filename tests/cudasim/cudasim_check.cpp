/* Every access of a kernel, checked: what compute-sanitizer does on a GPU, here by the hooks that
 * gcc's -fsanitize=thread puts before loads and stores (its own run-time library is not linked).
 *
 * An access must lie in one allocation of the device, in the block's shared memory of the launched
 * size, on the thread's stack or in constants, and be aligned to its size. Shared memory must have
 * been written in this block before it is read. Two accesses to the same bytes, one of them a
 * write, by different threads are a race unless something orders them: __syncthreads() between
 * threads of a block, __syncwarp() between lanes of a warp (a shuffle or an mma does not), nothing
 * between blocks of a launch. A granule is 2 bytes; accesses of single bytes are not raced.
 *
 * -fsanitize=alignment,bounds,shift beside it: their reports, too, are faults of the kernel. */
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/cudasim/cudasim.h"
#include "tests/cudasim/cudasim_internal.h"

bool cudasim_check_on;

namespace
{

/* Who, and when: launch, block, thread, epoch of the block, epoch of the thread's warp. */
typedef uint64_t stamp;
enum { AT_BLOCK = 12, AT_THREAD = 32, AT_BLOCK_EPOCH = 42, AT_WARP_EPOCH = 53 }; /* bits */
const stamp LAUNCH = 0xfff, BLOCK = 0xfffffull << AT_BLOCK, THREAD = 0x3ffull << AT_THREAD,
            WARP = 0x3e0ull << AT_THREAD, BLOCK_EPOCH = 0x7ffull << AT_BLOCK_EPOCH,
            WARP_EPOCH = 0x7ffull << AT_WARP_EPOCH;
struct cell { /* the last write, and the last two reads by different threads */
    stamp write, read, read_before;
    uint64_t written; /* number of the block that wrote it, for shared memory */
};

enum { GRANULE = 2, LAUNCHES = 4095 }; /* that a stamp can tell apart; 0 is in none */
const size_t DEVICE_RANGE = (size_t)1 << 40;

cell *dynamic_cells, *static_cells, *device_cells;
unsigned long stamp_round; /* launches, in units of LAUNCHES */
size_t static_bytes;
thread_local unsigned char *static_begin, *static_end; /* where this thread has them */
const unsigned char *image_begin, *image_end; /* code and constants */
const unsigned char *device_origin;

thread_local volatile char in_tls; /* makes the block of this thread exist */

/* The thread's block of the program or shared object that this code is in: __shared__ variables. */
int find_tls(struct dl_phdr_info *info, size_t, void *)
{
    bool here = false;
    size_t bytes = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        const uintptr_t at = (uintptr_t)&cudasim_check_on - info->dlpi_addr;
        here = here || (h->p_type == PT_LOAD && at >= h->p_vaddr && at < h->p_vaddr + h->p_memsz);
        if (h->p_type == PT_TLS)
            bytes = h->p_memsz;
    }
    if (here && bytes > 0 && info->dlpi_tls_data) {
        static_begin = (unsigned char *)info->dlpi_tls_data;
        static_end = static_begin + bytes;
        static_bytes = bytes;
    }
    return here;
}

int find_image(struct dl_phdr_info *info, size_t, void *)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        const uintptr_t at = (uintptr_t)&cudasim_check_on - info->dlpi_addr;
        if (h->p_type != PT_LOAD || at < h->p_vaddr || at >= h->p_vaddr + h->p_memsz)
            continue;
        for (int j = 0; j < info->dlpi_phnum; j++) {
            const ElfW(Phdr) *load = &info->dlpi_phdr[j];
            const unsigned char *end =
                (unsigned char *)info->dlpi_addr + load->p_vaddr + load->p_memsz;
            if (load->p_type == PT_LOAD && end > image_end)
                image_end = end;
        }
        image_begin = (unsigned char *)info->dlpi_addr;
        return 1;
    }
    return 0;
}

void *reserve(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        abort();
    return at;
}

void set_up(void)
{
    if (!static_begin) {
        in_tls = 0;
        dl_iterate_phdr(find_tls, NULL);
    }
    if (dynamic_cells)
        return;
    dynamic_cells = (cell *)reserve((CUDASIM_SHARED_MOST / GRANULE + 1) * sizeof(cell));
    dl_iterate_phdr(find_image, NULL);
    static_cells = (cell *)reserve((static_bytes / GRANULE + 1) * sizeof(cell));
}

/* Before stamps of one number come again, those of the round before go: the pages read as zeros. */
void forget_last_round(void)
{
    const unsigned long round = cudasim_launch_count / LAUNCHES;
    if (round == stamp_round)
        return;
    stamp_round = round;
    if (device_cells && madvise(device_cells, DEVICE_RANGE, MADV_DONTNEED) != 0)
        abort();
}

[[noreturn]] void report(void *pc, cudaError_t code, const char *what, const void *address,
                         size_t bytes, const char *why)
{
    char place[256] = "";
    Dl_info info;
    if (dladdr(pc, &info)) {
        char command[512];
        snprintf(command, sizeof command, "addr2line -s -e '%s' %#lx 2>/dev/null", info.dli_fname,
                 (unsigned long)((char *)pc - (char *)info.dli_fbase) - 1);
        FILE *f = popen(command, "r");
        if (f) {
            if (!fgets(place, sizeof place, f))
                place[0] = '\0';
            pclose(f);
            place[strcspn(place, "\n")] = '\0';
        }
    }
    cudasim_fault(code, "%s of %zu bytes at %p%s%s: %s", what, bytes, address, place[0] ? ", " : "",
                  place, why);
}

stamp stamp_now(void)
{
    return (cudasim_launch_count % LAUNCHES + 1) |
           ((stamp)cudasim_block_count << AT_BLOCK & BLOCK) |
           (stamp)cudasim_self->linear << AT_THREAD |
           ((stamp)cudasim_block_epoch << AT_BLOCK_EPOCH & BLOCK_EPOCH) |
           (stamp)cudasim_warp_epoch[cudasim_self->warp] << AT_WARP_EPOCH;
}
/* s happened in this launch and nothing orders it before now. */
inline bool races(stamp s, stamp now, bool is_global)
{
    const stamp other = s ^ now;
    if (other & LAUNCH)
        return false;
    if (other & BLOCK)
        return is_global;
    if (!(other & THREAD) || (other & BLOCK_EPOCH))
        return false;
    return (other & WARP) || !(other & WARP_EPOCH);
}

void check_cell(cell *c, stamp now, bool write, bool is_global, void *pc, const void *address,
                size_t bytes)
{
    const stamp *other = NULL;
    const char *kind = "wrote";
    if (races(c->write, now, is_global))
        other = &c->write;
    if (write && !other) {
        kind = "read";
        if (races(c->read, now, is_global))
            other = &c->read;
        else if (races(c->read_before, now, is_global))
            other = &c->read_before;
    }
    if (other) {
        char why[160];
        snprintf(why, sizeof why, "race: thread %u of %s %s it with no barrier between",
                 (unsigned)((*other & THREAD) >> AT_THREAD),
                 (*other ^ now) & BLOCK ? "another block" : "this block",
                 kind);
        report(pc, cudaErrorLaunchFailure, write ? "write" : "read", address, bytes, why);
    }
    if (!is_global) {
        if (write)
            c->written = cudasim_block_count;
        else if (c->written != cudasim_block_count)
            report(pc, cudaErrorLaunchFailure, "read", address, bytes,
                   "shared memory that this block has not written");
    }
    if (write) {
        c->write = now;
    } else {
        if ((c->read ^ now) & (LAUNCH | BLOCK | THREAD))
            c->read_before = c->read;
        c->read = now;
    }
}

void access(const void *address, size_t bytes, bool write, bool aligned, void *pc)
{
    const unsigned char *at = (const unsigned char *)address;
    if (!cudasim_running || cudasim_on_stack(at))
        return;
    set_up();
    forget_last_round();
    const char *what = write ? "write" : "read";
    cell *cells = NULL;
    size_t offset = 0;
    bool is_global = false;
    if (at >= cudasim_dynamic - 4096 && at < cudasim_dynamic + CUDASIM_SHARED_MOST + 4096) {
        if (at < cudasim_dynamic || at + bytes > cudasim_dynamic + cudasim_dynamic_bytes) {
            char why[120];
            snprintf(why, sizeof why, "byte %td of dynamic shared memory of %zu bytes",
                     at - cudasim_dynamic, cudasim_dynamic_bytes);
            report(pc, cudaErrorIllegalAddress, what, at, bytes, why);
        }
        cells = dynamic_cells;
        offset = (size_t)(at - cudasim_dynamic);
    } else if (at >= static_begin && at < static_end) {
        cells = static_cells;
        offset = (size_t)(at - static_begin);
    } else if (cudasim_is_device(at)) {
        if (!cudasim_in_device(at, bytes))
            report(pc, cudaErrorIllegalAddress, what, at, bytes, cudasim_describe(at));
        if (!device_cells) {
            device_cells = (cell *)reserve(DEVICE_RANGE);
            device_origin = cudasim_device_origin();
        }
        cells = device_cells;
        offset = (size_t)(at - device_origin);
        is_global = true;
    } else if (at >= image_begin && at < image_end) {
        if (write)
            report(pc, cudaErrorIllegalAddress, what, at, bytes, "a global variable of the host");
        return;
    } else if (cudasim_is_pinned(at, bytes) || cudasim_is_argument(at, bytes)) {
        return;
    } else {
        report(pc, cudaErrorIllegalAddress, what, at, bytes, "host memory");
    }
    if (aligned && (uintptr_t)at % bytes)
        report(pc, cudaErrorMisalignedAddress, what, at, bytes, "not aligned to its size");
    if (is_global)
        cudasim_touches(at, bytes, write);
    if (bytes == 1)
        return;
    const stamp now = stamp_now();
    for (size_t i = offset / GRANULE; i < (offset + bytes + GRANULE - 1) / GRANULE; i++)
        check_cell(&cells[i], now, write, is_global, pc, address, bytes);
}

} // namespace

void cudasim_check_read(const void *address, size_t bytes)
{
    if (cudasim_check_on)
        access(address, bytes, false, false, __builtin_return_address(0));
}
void cudasim_check_write(const void *address, size_t bytes)
{
    if (cudasim_check_on)
        access(address, bytes, true, false, __builtin_return_address(0));
}

void cudasim_atomic(const void *address, size_t bytes) /* orders nothing, races with nothing */
{
    if ((uintptr_t)address % bytes)
        cudasim_fault(cudaErrorMisalignedAddress, "atomic of %zu bytes at %p: not aligned to it",
                      bytes, address);
    if (cudasim_is_device(address) && !cudasim_in_device(address, bytes))
        cudasim_fault(cudaErrorIllegalAddress, "atomic of %zu bytes at %p: %s", bytes, address,
                      cudasim_describe(address));
    cudasim_touches(address, bytes, true);
}

extern "C" {
#define HOOKS(bytes)                                                                               \
    void __tsan_read##bytes(void *at)                                                              \
    {                                                                                              \
        access(at, bytes, false, true, __builtin_return_address(0));                               \
    }                                                                                              \
    void __tsan_write##bytes(void *at)                                                             \
    {                                                                                              \
        access(at, bytes, true, true, __builtin_return_address(0));                                \
    }                                                                                              \
    void __tsan_unaligned_read##bytes(void *at)                                                    \
    {                                                                                              \
        access(at, bytes, false, false, __builtin_return_address(0));                              \
    }                                                                                              \
    void __tsan_unaligned_write##bytes(void *at)                                                   \
    {                                                                                              \
        access(at, bytes, true, false, __builtin_return_address(0));                               \
    }                                                                                              \
    void __tsan_volatile_read##bytes(void *at)                                                     \
    {                                                                                              \
        (void)at;                                                                                  \
    }                                                                                              \
    void __tsan_volatile_write##bytes(void *at)                                                    \
    {                                                                                              \
        (void)at;                                                                                  \
    }
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
void __tsan_read_range(void *at, unsigned long bytes)
{
    access(at, bytes, false, false, __builtin_return_address(0));
}
void __tsan_write_range(void *at, unsigned long bytes)
{
    access(at, bytes, true, false, __builtin_return_address(0));
}
void __tsan_init(void)
{
    cudasim_check_on = true;
}
void __tsan_func_entry(void *)
{
}
void __tsan_func_exit(void)
{
}
void __tsan_vptr_update(void **, void *)
{
}
void __tsan_vptr_read(void **)
{
}

/* The data that gcc passes to the reports of -fsanitize=alignment,bounds,shift begins with the place. */
struct place {
    const char *file;
    uint32_t line, column;
};
void __ubsan_handle_type_mismatch_v1(const place *at, const void *address)
{
    if (cudasim_running)
        cudasim_fault(cudaErrorMisalignedAddress, "access to %p at %s:%u: not aligned to its type",
                      address, at->file, at->line);
}
void __ubsan_handle_out_of_bounds(const place *at, uintptr_t index)
{
    if (cudasim_running)
        cudasim_fault(cudaErrorIllegalAddress, "index %td past an array at %s:%u", (ptrdiff_t)index,
                      at->file, at->line);
}
void __ubsan_handle_shift_out_of_bounds(const place *at, uintptr_t, uintptr_t by)
{
    if (cudasim_running)
        cudasim_fault(cudaErrorLaunchFailure, "shift by %td at %s:%u", (ptrdiff_t)by, at->file,
                      at->line);
}
}
