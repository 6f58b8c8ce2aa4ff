/* exec/cuda/cuda_lane.c - lanes: streams next to the one that computes. They have the highest
 * priority, because their copies and messages are short and another rank or stream waits for them.
 */
#include <stdlib.h>

#include "exec/cuda/cuda_internal.h"

struct backend_lane {
    cudaStream_t stream;
};

static cudaStream_t stream_of(struct backend *be, const struct backend_lane *lane)
{
    return lane ? lane->stream : cuda_of(be)->stream;
}

static enum status lane_new(struct backend *be, struct backend_lane **out, struct err *err)
{
    enum status rc;
    int least, greatest;
    struct backend_lane *lane = calloc(1, sizeof *lane);
    (void)be;
    if (!lane)
        return err_nomem(err);
    CUDA_TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    CUDA_TRY(cudaStreamCreateWithPriority(&lane->stream, cudaStreamNonBlocking, greatest));
    *out = lane;
    lane = NULL;
    rc = OK;
out:
    free(lane);
    return rc;
}

static void lane_free(struct backend *be, struct backend_lane *lane)
{
    (void)be;
    if (lane)
        cudaStreamDestroy(lane->stream);
    free(lane);
}

static void lane_record(struct backend *be, struct backend_lane *lane, struct backend_event *event)
{
    CUDA_NOTE(cudaEventRecord(event->event, stream_of(be, lane)));
}

static void lane_wait(struct backend *be, struct backend_lane *lane, struct backend_event *event)
{
    CUDA_NOTE(cudaStreamWaitEvent(stream_of(be, lane), event->event, 0));
}

static void lane_copy_in(struct backend *be, struct backend_lane *lane, void *dst, const void *host,
                         int64_t bytes)
{
    if (bytes > 0)
        CUDA_NOTE(
            cudaMemcpyAsync(dst, host, (size_t)bytes, cudaMemcpyHostToDevice, stream_of(be, lane)));
}

static void lane_copy_out(struct backend *be, struct backend_lane *lane, void *host,
                          const void *src, int64_t bytes)
{
    if (bytes > 0)
        CUDA_NOTE(
            cudaMemcpyAsync(host, src, (size_t)bytes, cudaMemcpyDeviceToHost, stream_of(be, lane)));
}

static void *lane_stream(struct backend *be, struct backend_lane *lane)
{
    return stream_of(be, lane);
}

void cuda_lane_install(struct backend *be)
{
    be->lane_new = lane_new;
    be->lane_free = lane_free;
    be->lane_record = lane_record;
    be->lane_wait = lane_wait;
    be->lane_copy_in = lane_copy_in;
    be->lane_copy_out = lane_copy_out;
    be->lane_stream = lane_stream;
}
