/* exec/cuda/cuda_range.c - NVTX ranges, which Nsight shows above the kernels. NVTX is a library of
 * headers only. Without a profiler a call costs one comparison. */
#include "exec/cuda/cuda_internal.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

static void range_push(struct backend *be, const char *name, int64_t number)
{
    const nvtxEventAttributes_t range = {.version = NVTX_VERSION,
                                         .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                         .payloadType = NVTX_PAYLOAD_TYPE_INT64,
                                         .payload = {.llValue = number},
                                         .messageType = NVTX_MESSAGE_TYPE_ASCII,
                                         .message = {.ascii = name}};
    (void)be;
    nvtxRangePushEx(&range);
}

static void range_pop(struct backend *be)
{
    (void)be;
    nvtxRangePop();
}

void cuda_range_install(struct backend *be)
{
    be->range_push = range_push;
    be->range_pop = range_pop;
}
#else
void cuda_range_install(struct backend *be)
{
    (void)be;
}
#endif
