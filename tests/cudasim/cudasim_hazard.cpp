/* Tells accesses that are ordered from those that come in order only by luck.
 *
 * Every work of a stream knows what happened before it: the works in front of it, those that an
 * event it waited for stood behind, and those that the host knew to have ended when it issued it
 * (a vector clock: of each stream, how many of its works). Two works of different streams that
 * touch the same bytes of the device, one of them writing, must be ordered so; whether they came in
 * the right order this time says nothing. That needs the accesses of kernels, which only objects of
 * cudasim-check report.
 *
 * Pinned memory belongs to a copy from its call until the host knows that it has ended: the host
 * may not write what a copy reads, nor touch what it writes. Its pages are protected for so long,
 * in any object. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <vector>

#include "tests/cudasim/cudasim_internal.h"

namespace
{

enum { GRANULE = 4, PAGE = 4096 };
const size_t RANGE = (size_t)1 << 40; /* of device memory */

struct touch { /* by whom; number 0: nobody */
    uint64_t stream : 24, number : 40;
};
struct cell {
    touch write, reads[2];
};

cell *cells;
const cudasim_when *now; /* of the work that runs; NULL: none that counts */
cudasim_clock known; /* to the host */
std::vector<std::vector<const char *>> names_of; /* works, by stream */

bool is_known(const cudasim_clock &clock, uint32_t stream, uint64_t number)
{
    return stream < clock.size() && clock[stream] >= number;
}

bool is_before(const touch &t, const cudasim_when &when)
{
    return t.number == 0 || t.stream == when.stream || is_known(when.before, t.stream, t.number);
}

void report(const touch &other, const char *did, bool writes, const void *address)
{
    const cudasim_when *me = now;
    now = NULL; /* one is enough of this work */
    cudasim_hazard(
        "%s of stream %u %s %p, which %s of stream %u %s with nothing to order them (%s)",
        me->name, me->stream, writes ? "writes" : "reads", address,
        names_of[other.stream][other.number - 1], (unsigned)other.stream, did,
        cudasim_describe(address));
}

void check(cell *c, bool writes, const void *address)
{
    const touch me = {now->stream, now->number};
    if (!is_before(c->write, *now)) {
        report(c->write, "wrote", writes, address);
        return;
    }
    for (const touch &read : c->reads)
        if (writes && !is_before(read, *now)) {
            report(read, "read", writes, address);
            return;
        }
    if (writes) {
        *c = {me, {}};
        return;
    }
    touch *to = &c->reads[0];
    if (to->number && to->stream != me.stream && !is_before(*to, *now))
        to = &c->reads[1];
    *to = me;
}

} // namespace

void cudasim_clock_join(cudasim_clock *to, const cudasim_clock &other)
{
    if (to->size() < other.size())
        to->resize(other.size());
    for (size_t i = 0; i < other.size(); i++)
        (*to)[i] = std::max((*to)[i], other[i]);
}

void cudasim_issued(cudasim_clock *of_stream, uint32_t stream, const char *name, cudasim_when *when)
{
    cudasim_clock_join(of_stream, known);
    if (of_stream->size() <= stream)
        of_stream->resize(stream + 1);
    if (names_of.size() <= stream)
        names_of.resize(stream + 1);
    (*of_stream)[stream]++;
    names_of[stream].push_back(name);
    *when = {stream, (*of_stream)[stream], name, *of_stream};
}

void cudasim_work_begins(const cudasim_when *when)
{
    now = when;
}

void cudasim_touches(const void *address, size_t bytes, bool writes)
{
    if (!cudasim_check_on || !now || !cudasim_is_device(address) || bytes == 0)
        return;
    if (!cells) {
        cells = (cell *)mmap(NULL, RANGE / GRANULE * sizeof(cell), PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (cells == MAP_FAILED)
            abort();
    }
    const size_t first = (size_t)((const unsigned char *)address - cudasim_device_origin());
    for (size_t i = first / GRANULE; i <= (first + bytes - 1) / GRANULE && now; i++)
        check(&cells[i], writes, address);
}

void cudasim_touches_matrix(const void *at, uint64_t rows, uint64_t cols, int64_t ld,
                            int elem_bytes, bool writes)
{
    for (uint64_t c = 0; c < cols; c++)
        cudasim_touches((const char *)at + (int64_t)c * ld * elem_bytes, rows * (size_t)elem_bytes,
                        writes);
}

/* --- the host's side ------------------------------------------------------------------------- */

namespace
{

struct flight { /* of a copy from or to pinned memory */
    uintptr_t begin, end;
    uint32_t stream;
    uint64_t number;
    bool writes; /* the copy does */
};
std::vector<flight> flights;

uintptr_t floor_page(uintptr_t at)
{
    return at / PAGE * PAGE;
}

void protect(uintptr_t begin, uintptr_t end, int allowed)
{
    begin = floor_page(begin);
    if (mprotect((void *)begin, floor_page(end + PAGE - 1) - begin, allowed) != 0)
        abort();
}

/* As those under way want it. */
void protect_again(uintptr_t begin, uintptr_t end)
{
    protect(begin, end, PROT_READ | PROT_WRITE);
    for (int writes = 0; writes < 2; writes++)
        for (const flight &f : flights)
            if (f.writes == (writes == 1) && f.begin < floor_page(end + PAGE - 1) &&
                floor_page(begin) < f.end)
                protect(f.begin, f.end, f.writes ? PROT_NONE : PROT_READ);
}

} // namespace

void cudasim_flight(const void *pinned, size_t bytes, const cudasim_when &when, bool writes)
{
    const uintptr_t at = (uintptr_t)pinned;
    flights.push_back({at, at + bytes, when.stream, when.number, writes});
    protect_again(at, at + bytes);
}

void cudasim_flight_open(const void *pinned, size_t bytes)
{
    protect((uintptr_t)pinned, (uintptr_t)pinned + bytes, PROT_READ | PROT_WRITE);
}

void cudasim_flight_close(const void *pinned, size_t bytes)
{
    protect_again((uintptr_t)pinned, (uintptr_t)pinned + bytes);
}

void cudasim_host_learns(const cudasim_clock &what)
{
    std::vector<flight> ended;
    cudasim_clock_join(&known, what);
    for (size_t i = 0; i < flights.size();)
        if (is_known(known, flights[i].stream, flights[i].number)) {
            ended.push_back(flights[i]);
            flights.erase(flights.begin() + (ptrdiff_t)i);
        } else {
            i++;
        }
    for (const flight &f : ended)
        protect_again(f.begin, f.end);
}

void cudasim_pinned_goes(const void *pinned, size_t bytes)
{
    const uintptr_t at = (uintptr_t)pinned;
    const auto inside = [=](const flight &f) { return f.begin < at + bytes && at < f.end; };
    flights.erase(std::remove_if(flights.begin(), flights.end(), inside), flights.end());
}

bool cudasim_flight_fault(const void *address)
{
    const uintptr_t at = (uintptr_t)address;
    if (!cudasim_is_pinned(address, 1))
        return false;
    for (const flight &f : flights)
        if (f.begin <= at && at < f.end) {
            cudasim_hazard("host code %s pinned memory at %p, which %s of stream %u %s: nobody has "
                           "waited for it",
                           f.writes ? "touches" : "writes", address,
                           names_of[f.stream][f.number - 1], f.stream,
                           f.writes ? "writes" : "reads");
            break;
        }
    /* Else it is a neighbour on the same page. */
    protect(at, at + 1, PROT_READ | PROT_WRITE);
    return true;
}
