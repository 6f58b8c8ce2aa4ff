/* Warps of one block over the instructions of a PTX kernel (cudasim_ptx.h). */
#include <cuda_runtime_api.h>
#include <cxxabi.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <map>

#include "tests/cudasim/cudasim_internal.h"
#include "tests/cudasim/cudasim_ptx.h"

/* Variables of the runner (cudasim.h). */
extern uint3 cudasim_block;
extern dim3 cudasim_block_dim, cudasim_grid_dim;
extern unsigned char *cudasim_dynamic;

static struct ptx_warp warps[CUDASIM_THREADS_MOST / PTX_LANES];
static std::vector<unsigned char> shared; /* the static part; the dynamic one is the runner's */

void cudasim_ptx_fault(struct ptx_warp *w, const struct ptx_op *op, int lane, int code,
                       const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    cudasim_fault((cudaError_t)code, "warp %d, lane %d, %s of %s: %s", w->index, lane, op->text,
                  cudasim_ptx_line(op->line).c_str(), text);
}

unsigned char *cudasim_ptx_shared(uint32_t address, size_t bytes, struct ptx_warp *w,
                                  const struct ptx_op *op, int lane)
{
    const uint32_t fixed = w->kernel->static_shared;
    if (address % bytes)
        cudasim_ptx_fault(w, op, lane, cudaErrorMisalignedAddress,
                          "shared address %u is no multiple of %zu", address, bytes);
    if (address + bytes <= fixed)
        return shared.data() + address;
    if (address < fixed || address - fixed + bytes > cudasim_dynamic_bytes)
        cudasim_ptx_fault(w, op, lane, cudaErrorIllegalAddress,
                          "byte %u of %u + %zu bytes of shared memory", address, fixed,
                          cudasim_dynamic_bytes);
    return cudasim_dynamic + (address - fixed);
}

/* Copies of these lanes that belong to all but their `pending` newest groups happen. */
void cudasim_ptx_copies(struct ptx_warp *w, uint32_t lanes, int pending)
{
    size_t kept = 0;
    for (const struct ptx_copy &c : w->copies) {
        if (!(lanes >> c.lane & 1) || c.group >= w->copy_group[c.lane] - pending) {
            w->copies[kept++] = c;
            continue;
        }
        const uint32_t fixed = w->kernel->static_shared;
        unsigned char *to = c.to < fixed ? shared.data() + c.to : cudasim_dynamic + (c.to - fixed);
        memcpy(to, c.from, (size_t)c.read);
        memset(to + c.read, 0, (size_t)(16 - c.read));
    }
    w->copies.resize(kept);
}

/* --- a warp ---------------------------------------------------------------------------------- */

static void fill(struct ptx_warp *w, int64_t place, uint64_t value)
{
    if (place >= 0)
        for (int l = 0; l < PTX_LANES; l++)
            ptx_lanes<uint32_t>(w, (uint32_t)place)[l] = (uint32_t)value;
}

static void begin_warp(struct ptx_warp *w, int index, int threads)
{
    const struct ptx_kernel *k = w->kernel;
    const dim3 block = cudasim_block_dim, grid = cudasim_grid_dim;
    const int first = index * PTX_LANES,
              lanes = threads - first < PTX_LANES ? threads - first : PTX_LANES;
    w->index = index;
    w->live = lanes == PTX_LANES ? 0xffffffffu : (1u << lanes) - 1;
    w->groups.assign(1, {0, w->live, false});
    w->copies.clear();
    memset(w->copy_group, 0, sizeof w->copy_group);
    memset(w->registers, 0xff, k->register_bytes);
    for (const struct ptx_constant &c : k->constants)
        if (c.kind == 'p')
            *ptx_lanes<uint32_t>(w, c.place) = c.value ? 0xffffffffu : 0;
        else
            for (int l = 0; l < PTX_LANES; l++)
                if (c.kind == 'l')
                    ptx_lanes<uint64_t>(w, c.place)[l] = c.value;
                else
                    ptx_lanes<uint32_t>(w, c.place)[l] = (uint32_t)c.value;
    for (int s = 0; s < 3; s++)
        for (int l = 0; l < PTX_LANES && k->special[PTX_TID_X + s] >= 0; l++) {
            const unsigned linear = (unsigned)(first + l);
            const unsigned at[] = {linear % block.x, linear / block.x % block.y,
                                   linear / (block.x * block.y)};
            ptx_lanes<uint32_t>(w, (uint32_t)k->special[PTX_TID_X + s])[l] = at[s];
        }
    fill(w, k->special[PTX_CTAID_X], cudasim_block.x);
    fill(w, k->special[PTX_CTAID_Y], cudasim_block.y);
    fill(w, k->special[PTX_CTAID_Z], cudasim_block.z);
    fill(w, k->special[PTX_NTID_X], block.x);
    fill(w, k->special[PTX_NTID_Y], block.y);
    fill(w, k->special[PTX_NTID_Z], block.z);
    fill(w, k->special[PTX_NCTAID_X], grid.x);
    fill(w, k->special[PTX_NCTAID_Y], grid.y);
    fill(w, k->special[PTX_NCTAID_Z], grid.z);
    for (int l = 0; l < PTX_LANES && k->special[PTX_LANEID] >= 0; l++)
        ptx_lanes<uint32_t>(w, (uint32_t)k->special[PTX_LANEID])[l] = (uint32_t)l;
}

/* Groups at the same instruction are one. */
static void join_groups(struct ptx_warp *w)
{
    std::vector<struct ptx_group> *g = &w->groups;
    for (size_t i = 0; i < g->size(); i++)
        for (size_t j = g->size(); --j > i;)
            if ((*g)[i].pc == (*g)[j].pc) {
                (*g)[i].lanes |= (*g)[j].lanes;
                (*g)[i].waits = false; /* complete now, perhaps */
                g->erase(g->begin() + (ptrdiff_t)j);
            }
    for (size_t i = g->size(); i-- > 0;)
        if (!(*g)[i].lanes)
            g->erase(g->begin() + (ptrdiff_t)i);
}

/* Lanes that leave may complete those that wait for them. */
static void lanes_leave(struct ptx_warp *w, uint32_t lanes)
{
    w->live &= ~lanes;
    for (struct ptx_group &g : w->groups)
        g.waits = false;
}

/* Runs group i until it parts, waits, leaves or meets another. */
static void run_group(struct ptx_warp *w, size_t i)
{
    struct ptx_op *ops = w->kernel->ops.data();
    int pc = w->groups[i].pc;
    const uint32_t lanes = w->groups[i].lanes;
    const bool alone = w->groups.size() == 1;
    for (;;) {
        struct ptx_op *op = &ops[pc];
        uint32_t active = lanes;
        if (op->guard >= 0) {
            const uint32_t p = *ptx_lanes<uint32_t>(w, (uint32_t)op->guard);
            active &= op->guard_not ? ~p : p;
        }
        op->warps += active || op->control == PTX_JUMP;
        op->lanes += (uint64_t)__builtin_popcount(active);
        switch (op->control) {
        case PTX_NEXT:
            if (active)
                op->work(w, op, active);
            pc++;
            break;
        case PTX_JUMP:
            if (active == lanes) {
                pc = op->target;
            } else if (!active) {
                pc++;
            } else {
                w->groups[i] = {pc + 1, lanes & ~active, false};
                w->groups.push_back({op->target, active, false});
                return;
            }
            break;
        case PTX_RETURN:
            if (active == lanes) {
                w->groups[i].lanes = 0;
                lanes_leave(w, active);
                return;
            }
            if (active) {
                w->groups[i] = {pc + 1, lanes & ~active, false};
                lanes_leave(w, active);
                return;
            }
            pc++;
            break;
        case PTX_WHOLE:
        case PTX_WARP: {
            const int first = __builtin_ctz(lanes);
            const uint32_t mask = op->control == PTX_WHOLE
                                      ? 0xffffffffu
                                      : ptx_lanes<uint32_t>(w, op->operand[op->mask_at])[first];
            if (active != lanes)
                cudasim_ptx_fault(w, op, first, cudaErrorLaunchFailure,
                                  "lanes %08x of %08x do not take part", lanes & ~active, lanes);
            if (lanes & ~mask)
                cudasim_ptx_fault(w, op, __builtin_ctz(lanes & ~mask), cudaErrorLaunchFailure,
                                  "is not in its mask %08x", mask);
            if (op->control == PTX_WHOLE && w->live != mask)
                cudasim_ptx_fault(w, op, first, cudaErrorLaunchFailure, "lanes %08x have left",
                                  ~w->live);
            if ((mask & w->live) != lanes) {
                op->warps--; /* counted when it happens */
                op->lanes -= (uint64_t)__builtin_popcount(active);
                w->groups[i] = {pc, lanes, true};
                return;
            }
            op->work(w, op, lanes);
            pc++;
            break;
        }
        case PTX_BLOCK:
            w->groups[i] = {pc, lanes, true};
            return;
        }
        if (!alone)
            for (const struct ptx_group &g : w->groups)
                if (&g != &w->groups[i] && (g.pc == pc || (!g.waits && g.pc < pc))) {
                    w->groups[i].pc = pc;
                    return;
                }
    }
}

/* Until its lanes wait for the block (true) or all have left. */
static bool run_warp(struct ptx_warp *w)
{
    for (;;) {
        join_groups(w);
        if (w->groups.empty())
            return false;
        size_t behind = w->groups.size();
        for (size_t i = 0; i < w->groups.size(); i++)
            if (!w->groups[i].waits &&
                (behind == w->groups.size() || w->groups[i].pc < w->groups[behind].pc))
                behind = i;
        if (behind < w->groups.size()) {
            run_group(w, behind);
            continue;
        }
        const struct ptx_group *first = &w->groups[0];
        const struct ptx_op *op = &w->kernel->ops[(size_t)first->pc];
        if (op->control == PTX_BLOCK && w->groups.size() == 1)
            return true;
        const struct ptx_op *other = &w->kernel->ops[(size_t)w->groups.back().pc];
        cudasim_ptx_fault(w, op, __builtin_ctz(first->lanes), cudaErrorLaunchFailure,
                          "lanes %08x wait there, %08x at %s of %s, for each other", first->lanes,
                          w->groups.back().lanes, other->text,
                          cudasim_ptx_line(other->line).c_str());
    }
}

/* --- a block --------------------------------------------------------------------------------- */

void cudasim_ptx_block(struct ptx_kernel *k, const unsigned char *args)
{
    const int threads = (int)(cudasim_block_dim.x * cudasim_block_dim.y * cudasim_block_dim.z);
    const int num = (threads + PTX_LANES - 1) / PTX_LANES;
    static std::vector<unsigned char> registers;
    if (!k->unknown.empty())
        cudasim_fault(cudaErrorNotSupported, "the interpreter does not know %s",
                      k->unknown.c_str());
    const size_t each = ((size_t)k->register_bytes + 63) / 64 * 64;
    if (registers.size() < each * (size_t)num + 64)
        registers.resize(each * (size_t)num + 64);
    unsigned char *first = (unsigned char *)(((uintptr_t)registers.data() + 63) / 64 * 64);
    shared.assign(k->static_shared, 0xff); /* NaN */
    k->blocks++;
    k->launches += cudasim_block.x + cudasim_block.y + cudasim_block.z == 0;
    for (int i = 0; i < num; i++) {
        warps[i].kernel = k;
        warps[i].params = args;
        warps[i].registers = first + each * (size_t)i;
        begin_warp(&warps[i], i, threads);
    }
    for (;;) {
        int waiting = 0;
        for (int i = 0; i < num; i++)
            waiting += run_warp(&warps[cudasim_order % 2 ? num - 1 - i : i]);
        if (!waiting)
            return;
        const struct ptx_group at =
            warps[0].groups.empty() ? ptx_group{-1, 0, false} : warps[0].groups[0];
        for (int i = 0; i < num; i++) {
            struct ptx_warp *w = &warps[i];
            const int most = threads - i * PTX_LANES;
            const uint32_t all = most >= PTX_LANES ? 0xffffffffu : (1u << most) - 1;
            if (w->groups.empty() || w->groups[0].pc != at.pc || w->live != all)
                cudasim_fault(cudaErrorLaunchFailure,
                              "divergent barrier: warp %d is not where warp 0 is, or lanes have "
                              "left before it",
                              i);
            w->groups[0].pc++;
            w->groups[0].waits = false;
        }
    }
}

/* --- counts ---------------------------------------------------------------------------------- */

static const char *const class_names[PTX_CLASSES] = {
    "integer", "divide", "float",  "double", "special", "convert",  "move",
    "branch",  "global", "shared", "param",  "matrix",  "exchange", "wait"};

struct sums {
    uint64_t warps[PTX_CLASSES], all, lanes;
    uint64_t sectors, passes, least_passes, bytes;
};

static void add_op(struct sums *s, const struct ptx_op *op)
{
    s->warps[op->counted] += op->warps;
    s->all += op->warps;
    s->lanes += op->lanes;
    const uint64_t bytes =
        op->vector ? (uint64_t)op->bytes * op->vector : 16; /* cp.async, ldmatrix */
    if (op->counted == PTX_GLOBAL) {
        s->sectors += op->cost;
        s->bytes += op->lanes * bytes;
    } else if (op->counted == PTX_SHARED) {
        s->passes += op->cost;
        s->least_passes += op->warps * (bytes <= 4 ? 1 : bytes / 4);
    }
}

static void write_sums(const struct sums *s, FILE *f)
{
    for (int c = 0; c < PTX_CLASSES; c++)
        if (s->warps[c])
            fprintf(f, " %s %llu", class_names[c], (unsigned long long)s->warps[c]);
    fprintf(f, ", lanes %.1f", (double)s->lanes / (double)(s->all ? s->all : 1));
    if (s->sectors)
        fprintf(f, ", device %llu bytes in %llu sectors", (unsigned long long)s->bytes,
                (unsigned long long)s->sectors);
    if (s->passes)
        fprintf(f, ", shared passes %llu of %llu", (unsigned long long)s->passes,
                (unsigned long long)s->least_passes);
    fprintf(f, "\n");
}

void cudasim_ptx_write_counts(const struct ptx_kernel *k, FILE *f)
{
    struct sums whole = {};
    std::map<uint32_t, struct sums> lines;
    for (const struct ptx_op &op : k->ops) {
        add_op(&whole, &op);
        add_op(&lines[op.line], &op);
    }
    char *name = abi::__cxa_demangle(k->name.c_str(), NULL, NULL, NULL);
    fprintf(f, "%s: launches %llu, blocks %llu, instructions of warps %llu:",
            name ? name : k->name.c_str(), (unsigned long long)k->launches,
            (unsigned long long)k->blocks, (unsigned long long)whole.all);
    free(name);
    write_sums(&whole, f);
    std::vector<std::pair<uint64_t, uint32_t>> order;
    for (const auto &one : lines)
        order.push_back({one.second.all, one.first});
    std::sort(order.rbegin(), order.rend());
    for (size_t i = 0; i < order.size() && order[i].first * 50 >= whole.all && order[i].first > 0;
         i++) {
        fprintf(f, "  %s: %.1f %%:", cudasim_ptx_line(order[i].second).c_str(),
                100.0 * (double)order[i].first / (double)whole.all);
        write_sums(&lines[order[i].second], f);
    }
}
