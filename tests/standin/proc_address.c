/* cuGetProcAddress: functions by name and version. */

#include "driver_api.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const char HIDDEN_VARIABLE[] = "MEMPOOL_STANDIN_HIDDEN"; /* functions that this driver lacks: a,b */

/* A program asks for the plain name and the version of the interface that it was written for. */
static const struct {
    const char *name;
    int version;
    void *function;
} functions[] = {
    {"cuInit", 2000, cuInit},
    {"cuDriverGetVersion", 2020, cuDriverGetVersion},
    {"cuGetErrorName", 6000, cuGetErrorName},
    {"cuGetErrorString", 6000, cuGetErrorString},
    {"cuGetProcAddress", 11030, cuGetProcAddress},
#ifndef BEFORE_CUDA_12
    {"cuGetProcAddress", 12000, cuGetProcAddress_v2},
#endif
    {"cuDeviceGetCount", 2000, cuDeviceGetCount},
    {"cuDeviceGet", 2000, cuDeviceGet},
    {"cuDeviceGetName", 2000, cuDeviceGetName},
    {"cuDeviceGetUuid", 9020, cuDeviceGetUuid},
    {"cuDeviceGetUuid", 11040, cuDeviceGetUuid_v2},
    {"cuDeviceGetPCIBusId", 4010, cuDeviceGetPCIBusId},
    {"cuDeviceGetAttribute", 2000, cuDeviceGetAttribute},
    {"cuDeviceTotalMem", 3020, cuDeviceTotalMem_v2},
    {"cuDeviceCanAccessPeer", 4000, cuDeviceCanAccessPeer},
    {"cuDeviceGetP2PAttribute", 8000, cuDeviceGetP2PAttribute},
    {"cuDeviceGetDefaultMemPool", 11020, cuDeviceGetDefaultMemPool},
    {"cuDeviceGetMemPool", 11020, cuDeviceGetMemPool},
    {"cuDeviceSetMemPool", 11020, cuDeviceSetMemPool},
    {"cuMemPoolCreate", 11020, cuMemPoolCreate},
    {"cuMemPoolDestroy", 11020, cuMemPoolDestroy},
    {"cuMemPoolGetAttribute", 11020, cuMemPoolGetAttribute},
    {"cuMemPoolSetAttribute", 11020, cuMemPoolSetAttribute},
    {"cuMemPoolTrimTo", 11020, cuMemPoolTrimTo},
    {"cuMemPoolSetAccess", 11020, cuMemPoolSetAccess},
    {"cuMemPoolGetAccess", 11020, cuMemPoolGetAccess},
    {"cuMemAllocFromPoolAsync", 11020, cuMemAllocFromPoolAsync},
    {"cuMemAllocAsync", 11020, cuMemAllocAsync},
    {"cuMemFreeAsync", 11020, cuMemFreeAsync},
    {"cuMemHostAlloc", 2020, cuMemHostAlloc},
    {"cuMemFreeHost", 2000, cuMemFreeHost},
    {"cuMemcpyAsync", 4000, cuMemcpyAsync},
    {"cuMemcpyPeerAsync", 4000, cuMemcpyPeerAsync},
    {"cuMemcpyHtoD", 3020, cuMemcpyHtoD_v2},
    {"cuMemcpyDtoH", 3020, cuMemcpyDtoH_v2},
    {"cuMemsetD8Async", 3020, cuMemsetD8Async},
    {"cuPointerGetAttribute", 4000, cuPointerGetAttribute},
    {"cuModuleLoadData", 2000, cuModuleLoadData},
    {"cuModuleGetFunction", 2000, cuModuleGetFunction},
    {"cuLaunchKernel", 4000, cuLaunchKernel},
    {"cuDevicePrimaryCtxRetain", 7000, cuDevicePrimaryCtxRetain},
    {"cuDevicePrimaryCtxRelease", 11000, cuDevicePrimaryCtxRelease_v2},
    {"cuDevicePrimaryCtxReset", 11000, cuDevicePrimaryCtxReset_v2},
    {"cuDevicePrimaryCtxGetState", 7000, cuDevicePrimaryCtxGetState},
    {"cuCtxSetCurrent", 4000, cuCtxSetCurrent},
    {"cuCtxGetCurrent", 4000, cuCtxGetCurrent},
    {"cuCtxPushCurrent", 4000, cuCtxPushCurrent_v2},
    {"cuCtxPopCurrent", 4000, cuCtxPopCurrent_v2},
    {"cuCtxGetDevice", 2000, cuCtxGetDevice},
    {"cuCtxSynchronize", 2000, cuCtxSynchronize},
    {"cuCtxGetStreamPriorityRange", 5050, cuCtxGetStreamPriorityRange},
    {"cuStreamCreate", 2000, cuStreamCreate},
    {"cuStreamCreateWithPriority", 5050, cuStreamCreateWithPriority},
    {"cuStreamDestroy", 4000, cuStreamDestroy_v2},
    {"cuStreamSynchronize", 2000, cuStreamSynchronize},
    {"cuStreamQuery", 2000, cuStreamQuery},
    {"cuEventCreate", 2000, cuEventCreate},
    {"cuEventDestroy", 4000, cuEventDestroy_v2},
    {"cuEventRecord", 2000, cuEventRecord},
    {"cuEventElapsedTime", 2000, cuEventElapsedTime},
    {"cuEventElapsedTime", 12080, cuEventElapsedTime_v2},
    {"cuStreamBeginCapture", 10010, cuStreamBeginCapture_v2},
    {"cuStreamEndCapture", 10000, cuStreamEndCapture},
    {"cuStreamIsCapturing", 10000, cuStreamIsCapturing},
    {"cuThreadExchangeStreamCaptureMode", 10010, cuThreadExchangeStreamCaptureMode},
    {"cuGraphDestroy", 10000, cuGraphDestroy},
};

static bool is_hidden(const char *name)
{
    const char *hidden = getenv(HIDDEN_VARIABLE);
    size_t length = strlen(name);
    for (const char *at = hidden; at && *at; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == length && strncmp(at, name, length) == 0)
            return true;
    return false;
}

/* The newest version that is not newer than the one asked for. */
static void *find(const char *name, int version)
{
    void *found = NULL;
    int newest = 0;
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        if (strcmp(functions[i].name, name) || functions[i].version > version || functions[i].version <= newest)
            continue;
        found = functions[i].function;
        newest = functions[i].version;
    }
    return is_hidden(name) ? NULL : found;
}

CUresult cuGetProcAddress(const char *name, void **function, int version, uint64_t flags)
{
    (void)flags;
    if (name == NULL || function == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *function = find(name, version);
    return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

#ifndef BEFORE_CUDA_12
CUresult cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status)
{
    CUresult code = cuGetProcAddress(name, function, version, flags);
    if (status == NULL || code == CUDA_ERROR_INVALID_VALUE)
        return code;
    *status = code == CUDA_SUCCESS ? 0 : 1; /* CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND */
    return CUDA_SUCCESS;
}
#endif
