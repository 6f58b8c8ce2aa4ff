/* The NCCL stand-in (tests/cudasim/cudasim_nccl.cpp) by way of exec/comm/nccl_device.c: two
 * processes, what they may do, and what each of them is told where they break NCCL's rules. A child
 * writes one line and ends; the test reads both. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <string>
#include <vector>

#define _Noreturn [[noreturn]]
extern "C" {
#include <cmocka.h>

#include "exec/comm/comm_nccl.h"
extern const struct nccl_functions nccl_functions;
}
#include <cuda_runtime_api.h>

enum { BYTES = 4096 };
static const struct nccl_functions *nccl = &nccl_functions;

/* One of two processes. */
struct side {
    int rank;
    struct nccl_device *device;
    struct nccl_comm *comm[2]; /* both of the two ranks */
    cudaStream_t stream[2];
    char *data; /* device memory, 4 * BYTES: of both communicators, out and in */
    struct err err;
    std::string says;
};
typedef bool (*story)(struct side *me);

static char *place(struct side *me, int comm, bool in)
{
    return me->data + (2 * comm + in) * BYTES;
}
static bool send_on(struct side *me, int comm, int64_t bytes)
{
    return nccl->exchange(me->comm[comm], place(me, comm, false), NULL, bytes, me->stream[comm],
                          NULL, &me->err) == OK;
}
static bool receive_on(struct side *me, int comm, int64_t bytes)
{
    return nccl->exchange(me->comm[comm], NULL, place(me, comm, true), bytes, me->stream[comm],
                          NULL, &me->err) == OK;
}
static bool both_on(struct side *me, int comm, int64_t bytes)
{
    return nccl->exchange(me->comm[comm], place(me, comm, false), place(me, comm, true), bytes,
                          me->stream[comm], NULL, &me->err) == OK;
}
/* Until the device has done all, or a communicator has failed. */
static bool finish(struct side *me)
{
    for (int i = 0; i < 2; i++)
        while (cudaStreamQuery(me->stream[i]) == cudaErrorNotReady)
            if (nccl->check(me->device, &me->err) != OK)
                return false;
    return nccl->check(me->device, &me->err) == OK;
}
static bool holds(struct side *me, int comm, char value)
{
    std::vector<char> host(BYTES);
    cudaMemcpy(host.data(), place(me, comm, true), BYTES, cudaMemcpyDeviceToHost);
    for (char c : host)
        if (c != value)
            return me->says = "other bytes than were sent", false;
    return true;
}

static bool until_ended(struct side *me, int comm)
{
    for (bool done = false; !done;)
        if (nccl->ended(me->comm[comm], &done, &me->err) != OK)
            return false;
    return true;
}

static bool open_side(struct side *me, const char *id)
{
    if (nccl->open(id, me->rank, 2, &me->device, &me->err) != OK)
        return false;
    cudaMalloc((void **)&me->data, 4 * BYTES);
    for (int i = 0; i < 2; i++) {
        cudaStreamCreateWithFlags(&me->stream[i], cudaStreamNonBlocking);
        cudaMemset(place(me, i, false), 10 * (me->rank + 1) + i, BYTES);
        if (nccl->split(me->device, 0, me->rank, 0, &me->comm[i], &me->err) != OK ||
            !until_ended(me, i) || !both_on(me, i, 16))
            return false;
    }
    return finish(me);
}

/* However the story went: nothing that is still under way holds up the end. */
static void close_side(struct side *me)
{
    if (me->device)
        nccl->end(me->device);
    for (int i = 0; i < 2; i++)
        if (me->comm[i])
            nccl->drop(me->comm[i]);
    if (me->device)
        nccl->close(me->device);
}

/* Plays a story on both sides; what each has said. */
static std::vector<std::string> play(story tell, bool same_host = false)
{
    char id[NCCL_ID_BYTES];
    int ends[2][2];
    pid_t child[2];
    std::vector<std::string> said(2);
    assert_int_equal(nccl->make_id(id, NULL), OK);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(pipe(ends[r]), 0);
        child[r] = fork();
        if (child[r] == 0) {
            struct side me = {};
            me.rank = r;
            if (!same_host)
                setenv("NCCL_HOSTID", r ? "one" : "zero", 1);
            const bool well = open_side(&me, id) && tell(&me);
            close_side(&me);
            const std::string line = well ? "well" : me.says + me.err.msg;
            if (write(ends[r][1], line.data(), line.size()) < 0)
                _exit(1);
            _exit(0);
        }
        close(ends[r][1]);
    }
    for (int r = 0; r < 2; r++) {
        char text[1024];
        for (ssize_t n; (n = read(ends[r][0], text, sizeof text)) > 0;)
            said[(size_t)r].append(text, (size_t)n);
        close(ends[r][0]);
        waitpid(child[r], NULL, 0);
    }
    return said;
}

static void assert_says(const std::string &said, const char *part)
{
    if (said.find(part) == std::string::npos)
        fail_msg("'%s' is not in '%s'", part, said.c_str());
}

static bool messages(struct side *me)
{
    /* On one link there, on the other back; the host waits for nothing in between. */
    bool well = true;
    for (int i = 0; well && i < 5; i++)
        well = me->rank == 0 ? send_on(me, 0, BYTES) && receive_on(me, 1, BYTES)
                             : send_on(me, 1, BYTES) && receive_on(me, 0, BYTES);
    return well && finish(me) && holds(me, 1 - me->rank, me->rank ? 10 : 21);
}
static void exchange__brings_the_bytes_in_order(void **)
{
    for (const std::string &said : play(messages))
        assert_string_equal(said.c_str(), "well");
}

static bool sums(struct side *me)
{
    std::vector<float> host(100, 1.5f + (float)me->rank);
    cudaMemcpy(me->data, host.data(), 400, cudaMemcpyHostToDevice);
    const struct nccl_block blocks[] = {{(float *)(void *)me->data, 60},
                                        {(float *)(void *)me->data + 60, 40}};
    if (nccl->sum(me->comm[0], blocks, 2, me->stream[0], NULL, &me->err) != OK || !finish(me))
        return false;
    cudaMemcpy(host.data(), me->data, 400, cudaMemcpyDeviceToHost);
    for (float v : host)
        if (v != 4.0f)
            return me->says = "a wrong sum", false;
    return true;
}
static void sum__is_the_same_on_both(void **)
{
    for (const std::string &said : play(sums))
        assert_string_equal(said.c_str(), "well");
}

static bool other_sizes(struct side *me)
{
    return (me->rank == 0 ? send_on(me, 0, 64) : receive_on(me, 0, 128)) && finish(me);
}
static void exchange__fails_on_both_where_sizes_differ(void **)
{
    const std::vector<std::string> said = play(other_sizes);
    assert_says(said[0] + said[1], "the peer has number 1, of");
    assert_string_not_equal(said[0].c_str(), "well");
    assert_string_not_equal(said[1].c_str(), "well");
}

/* Both send first, on one lane: neither comes to its receive. */
static bool crossed(struct side *me)
{
    return send_on(me, 0, 64) && receive_on(me, 0, 64) && finish(me);
}
static void exchange__that_waits_for_ever_is_named(void **)
{
    setenv("ELAPSE_CUDASIM_NCCL_SECONDS", "0.5", 1);
    const std::vector<std::string> said = play(crossed);
    unsetenv("ELAPSE_CUDASIM_NCCL_SECONDS");
    assert_says(said[0] + said[1], "send 1 of 64 bytes to rank");
    assert_says(said[0] + said[1], "waited");
    assert_string_not_equal(said[0].c_str(), "well");
    assert_string_not_equal(said[1].c_str(), "well");
}

/* The same on two lanes is right. */
static bool crossed_on_two(struct side *me)
{
    return send_on(me, me->rank, 64) && receive_on(me, 1 - me->rank, 64) && finish(me);
}
static void exchange__on_a_lane_each_way_never_waits_for_ever(void **)
{
    for (const std::string &said : play(crossed_on_two))
        assert_string_equal(said.c_str(), "well");
}

static bool one_dies(struct side *me)
{
    if (me->rank == 1)
        _exit(1);
    return receive_on(me, 0, 64) && finish(me);
}
static void watch__sees_that_a_peer_is_gone(void **)
{
    const time_t began = time(NULL);
    assert_says(play(one_dies)[0], "rank 0: a message between devices failed: remote process");
    assert_true(time(NULL) - began < 10);
}

/* Two communicators have a message under way. One fails by its peer's number of bytes; the other would
 * wait for ever. */
static bool one_of_two_fails(struct side *me)
{
    return receive_on(me, 1, 64) &&
           (me->rank == 0 ? send_on(me, 0, 64) : receive_on(me, 0, 128)) && finish(me);
}
static void watch__ends_the_messages_of_all_communicators_at_once(void **)
{
    const time_t began = time(NULL);
    const std::vector<std::string> said = play(one_of_two_fails);
    assert_says(said[0] + said[1], "the peer has number 1, of");
    assert_true(said[0] != "" && said[1] != "");
    assert_true(time(NULL) - began < 4); /* and not by the last resort */
}

/* Both wait for what nobody sends, on each communicator: no abort of one ends the other's. */
static bool receives_on_both(struct side *me)
{
    return receive_on(me, 0, 64) && receive_on(me, 1, 64);
}
static void end__gives_up_the_messages_of_all_communicators(void **)
{
    const time_t began = time(NULL);
    for (const std::string &said : play(receives_on_both))
        assert_string_equal(said.c_str(), "well");
    assert_true(time(NULL) - began < 4);
}

static bool nothing(struct side *)
{
    return true;
}
static void open__refuses_two_ranks_on_one_device(void **)
{
    const std::vector<std::string> said = play(nothing, true);
    assert_says(said[0] + said[1], "duplicate GPU");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exchange__brings_the_bytes_in_order),
        cmocka_unit_test(sum__is_the_same_on_both),
        cmocka_unit_test(exchange__fails_on_both_where_sizes_differ),
        cmocka_unit_test(exchange__that_waits_for_ever_is_named),
        cmocka_unit_test(exchange__on_a_lane_each_way_never_waits_for_ever),
        cmocka_unit_test(watch__sees_that_a_peer_is_gone),
        cmocka_unit_test(watch__ends_the_messages_of_all_communicators_at_once),
        cmocka_unit_test(end__gives_up_the_messages_of_all_communicators),
        cmocka_unit_test(open__refuses_two_ranks_on_one_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
