/* A driver without a device, under the name of the real one, for a library that compiles kernels
 * for devices which are described only and wants a driver to be there all the same
 * (tests/unit/exec/test_cudnn.c). All that cuDNN 9.19 looks for is here. Calls succeed and do nothing, but
 * for those that fill something in, and the one that asks for the driver's private tables. */
#define ALL_OK(DO)                                                                                 \
    DO(cuInit)                                                                                     \
    DO(cuDeviceGet)                                                                                \
    DO(cuDeviceGetAttribute)                                                                       \
    DO(cuDevicePrimaryCtxRetain)                                                                   \
    DO(cuDevicePrimaryCtxRelease)                                                                  \
    DO(cuDevicePrimaryCtxReset)                                                                    \
    DO(cuCtxPushCurrent)                                                                           \
    DO(cuCtxPopCurrent)                                                                            \
    DO(cuCtxGetCurrent)                                                                            \
    DO(cuCtxGetDevice)                                                                             \
    DO(cuCtxGetLimit)                                                                              \
    DO(cuStreamGetCtx)                                                                             \
    DO(cuStreamSynchronize)                                                                        \
    DO(cuLinkCreate)                                                                               \
    DO(cuLinkCreate_v2)                                                                            \
    DO(cuLinkAddData)                                                                              \
    DO(cuLinkAddData_v2)                                                                           \
    DO(cuLinkAddFile_v2)                                                                           \
    DO(cuLinkComplete)                                                                             \
    DO(cuLinkDestroy)                                                                              \
    DO(cuLibraryLoadFromFile)                                                                      \
    DO(cuLibraryGetKernel)                                                                         \
    DO(cuLibraryUnload)                                                                            \
    DO(cuKernelGetAttribute)                                                                       \
    DO(cuKernelSetAttribute)                                                                       \
    DO(cuModuleLoadFatBinary)                                                                      \
    DO(cuModuleGetFunction)                                                                        \
    DO(cuModuleGetGlobal_v2)                                                                       \
    DO(cuModuleUnload)                                                                             \
    DO(cuFuncGetAttribute)                                                                         \
    DO(cuFuncSetAttribute)                                                                         \
    DO(cuLaunchKernel)                                                                             \
    DO(cuLaunchKernelEx)                                                                           \
    DO(cuLaunchCooperativeKernel)                                                                  \
    DO(cuMemcpyDtoH_v2)                                                                            \
    DO(cuTensorMapEncodeTiled)                                                                     \
    DO(cuOccupancyMaxActiveBlocksPerMultiprocessor)                                                \
    DO(cuOccupancyMaxPotentialClusterSize)
#define DEFINE(name)                                                                               \
    int name(void);                                                                                \
    int name(void)                                                                                 \
    {                                                                                              \
        return 0;                                                                                  \
    }
ALL_OK(DEFINE)

#define LOADS(name)                                                                                \
    int name(void **module);                                                                       \
    int name(void **module) /* and what is loaded, which nobody looks at */                        \
    {                                                                                              \
        static int something;                                                                      \
        *module = &something;                                                                      \
        return 0;                                                                                  \
    }
LOADS(cuModuleLoadData)
LOADS(cuModuleLoadDataEx)
LOADS(cuLibraryLoadData)

#define TELLS(name)                                                                                \
    int name(int code, const char **text);                                                         \
    int name(int code, const char **text)                                                          \
    {                                                                                              \
        (void)code;                                                                                \
        *text = "no driver";                                                                       \
        return 0;                                                                                  \
    }
TELLS(cuGetErrorName)
TELLS(cuGetErrorString)

int cuDeviceGetCount(int *count);
int cuDeviceGetCount(int *count)
{
    *count = 0;
    return 0;
}
int cuDriverGetVersion(int *version);
int cuDriverGetVersion(int *version)
{
    *version = 13000;
    return 0;
}
int cuGetExportTable(const void **table, const void *id);
int cuGetExportTable(const void **table, const void *id)
{
    (void)id;
    *table = (void *)0;
    return 500; /* CUDA_ERROR_NOT_FOUND */
}
