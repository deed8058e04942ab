/*
 * A libcuda.so.1 that asks a simulated machine. What the driver does about pools is the machine's to know; here
 * is only what needs the caller's memory.
 */

#include "connection.h"
#include "host_memory.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBERS = 2 };

/* --- calls by what they return --- */

/* Three arguments: the calling function's name, its thread and arguments, and how many they are. */
#define SENT(...) \
    __func__, (const int64_t[]){thread_id(), __VA_ARGS__}, sizeof((const int64_t[]){0, __VA_ARGS__}) / sizeof(int64_t)

static int64_t number(const void *handle)
{
    return (int64_t)(intptr_t)handle;
}

static CUresult ask_with(const Data *data, const char *call, const int64_t *arguments, size_t count)
{
    char results[REPLY_BYTES];
    return forward(results, sizeof results, data, call, arguments, count);
}

static CUresult ask(const char *call, const int64_t *arguments, size_t count)
{
    return ask_with(NULL, call, arguments, count);
}

static CUresult ask_numbers(uint64_t numbers[NUMBERS], const Data *data, const char *call, const int64_t *arguments,
                            size_t count)
{
    char results[REPLY_BYTES];
    CUresult code = forward(results, sizeof results, data, call, arguments, count);
    char *rest = results;
    for (int i = 0; i < NUMBERS; i++)
        numbers[i] = strtoull(rest, &rest, 10);
    return code;
}

static CUresult ask_u64(uint64_t *value, const char *call, const int64_t *arguments, size_t count)
{
    uint64_t numbers[NUMBERS];
    if (value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult code = ask_numbers(numbers, NULL, call, arguments, count);
    if (code == CUDA_SUCCESS)
        *value = numbers[0];
    return code;
}

static CUresult ask_int(int *value, const char *call, const int64_t *arguments, size_t count)
{
    uint64_t wide;
    if (value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult code = ask_u64(&wide, call, arguments, count);
    if (code == CUDA_SUCCESS)
        *value = (int)wide;
    return code;
}

/* `handle` points to a handle of any kind. */
static CUresult ask_handle_with(const Data *data, void *handle, const char *call, const int64_t *arguments,
                                size_t count)
{
    uint64_t numbers[NUMBERS];
    if (handle == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult code = ask_numbers(numbers, data, call, arguments, count);
    void *value = (void *)(uintptr_t)numbers[0];
    if (code == CUDA_SUCCESS)
        memcpy(handle, &value, sizeof value);
    return code;
}

static CUresult ask_handle(void *handle, const char *call, const int64_t *arguments, size_t count)
{
    return ask_handle_with(NULL, handle, call, arguments, count);
}

static CUresult ask_milliseconds(float *milliseconds, const char *call, const int64_t *arguments, size_t count)
{
    uint64_t nanoseconds;
    if (milliseconds == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult code = ask_u64(&nanoseconds, call, arguments, count);
    if (code == CUDA_SUCCESS)
        *milliseconds = (float)((double)(int64_t)nanoseconds / 1e6);
    return code;
}

/* For a call that frees what is at `pointer`. */
static CUresult ask_to_free(CUdeviceptr pointer, const char *call, const int64_t *arguments, size_t count)
{
    CUresult code = ask(call, arguments, count);
    if (code == CUDA_SUCCESS)
        unmap_host_memory(pointer);
    return code;
}

static int digit(char c)
{
    return c <= '9' ? c - '0' : c - 'a' + 10;
}

/* At most `size` bytes, the rest of the buffer untouched; returns how many through `used`. */
static CUresult ask_bytes(char *bytes, size_t size, size_t *used, const char *call, const int64_t *arguments,
                          size_t count)
{
    size_t capacity = REPLY_BYTES + 2 * size;
    char *results = malloc(capacity);
    if (results == NULL)
        return CUDA_ERROR_UNKNOWN;
    CUresult code = forward(results, capacity, NULL, call, arguments, count);
    const char *digits = results + strspn(results, " ");
    *used = 0;
    for (; code == CUDA_SUCCESS && *used < size && digits[0] && digits[1]; digits += 2)
        bytes[(*used)++] = (char)(digit(digits[0]) << 4 | digit(digits[1]));
    free(results);
    return code;
}

static CUresult ask_text(char *text, int size, const char *call, const int64_t *arguments, size_t count)
{
    size_t used;
    if (text == NULL || size < 1)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult code = ask_bytes(text, (size_t)size - 1, &used, call, arguments, count);
    if (code == CUDA_SUCCESS)
        text[used] = '\0';
    return code;
}

/* --- library and errors --- */

CUresult cuInit(unsigned int flags)
{
    return ask(SENT(flags));
}

CUresult cuDriverGetVersion(int *version)
{
    return ask_int(version, SENT());
}

static const struct {
    CUresult code;
    const char *name;
} error_names[] = {
    {0, "CUDA_SUCCESS"},
    {1, "CUDA_ERROR_INVALID_VALUE"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY"},
    {3, "CUDA_ERROR_NOT_INITIALIZED"},
    {4, "CUDA_ERROR_DEINITIALIZED"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE"},
    {100, "CUDA_ERROR_NO_DEVICE"},
    {101, "CUDA_ERROR_INVALID_DEVICE"},
    {200, "CUDA_ERROR_INVALID_IMAGE"},
    {201, "CUDA_ERROR_INVALID_CONTEXT"},
    {400, "CUDA_ERROR_INVALID_HANDLE"},
    {401, "CUDA_ERROR_ILLEGAL_STATE"},
    {500, "CUDA_ERROR_NOT_FOUND"},
    {600, "CUDA_ERROR_NOT_READY"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
    {800, "CUDA_ERROR_NOT_PERMITTED"},
    {801, "CUDA_ERROR_NOT_SUPPORTED"},
    {802, "CUDA_ERROR_SYSTEM_NOT_READY"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
    {999, "CUDA_ERROR_UNKNOWN"},
};

CUresult cuGetErrorName(CUresult code, const char **name)
{
    if (name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *name = NULL;
    for (size_t i = 0; i < sizeof error_names / sizeof error_names[0]; i++)
        if (error_names[i].code == code)
            *name = error_names[i].name;
    return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult code, const char **text)
{
    return cuGetErrorName(code, text);
}

/* --- devices --- */

CUresult cuDeviceGetCount(int *count)
{
    return ask_int(count, SENT());
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    return ask_int(device, SENT(ordinal));
}

CUresult cuDeviceGetName(char *name, int size, CUdevice device)
{
    return ask_text(name, size, SENT(device));
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    size_t used;
    return uuid ? ask_bytes(uuid->bytes, sizeof uuid->bytes, &used, SENT(device)) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    size_t used;
    return uuid ? ask_bytes(uuid->bytes, sizeof uuid->bytes, &used, SENT(device)) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGetPCIBusId(char *id, int size, CUdevice device)
{
    return ask_text(id, size, SENT(device));
}

CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
    return ask_int(value, SENT(attribute, device));
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    return ask_u64(bytes, SENT(device));
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    return ask_int(can, SENT(device, peer));
}

CUresult cuDeviceGetP2PAttribute(int *value, int attribute, CUdevice source, CUdevice destination)
{
    return ask_int(value, SENT(attribute, source, destination));
}

/* --- pools; what is NULL goes on as something invalid, and the machine refuses it in its own order --- */

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
    return ask_handle(pool, SENT(device));
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
    return ask_handle(pool, SENT(device));
}

CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
    return ask(SENT(device, number(pool)));
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties)
{
    const CUmemPoolProps invalid = {0};
    const CUmemPoolProps *p = properties ? properties : &invalid;
    return ask_handle(pool, SENT(p->location.type, p->location.id, (int64_t)p->maxSize, p->allocType, p->handleTypes));
}

CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    return ask(SENT(number(pool)));
}

/* Attributes 4 to 8 and 13 are cuuint64_t, the others int. */
static bool is_wide(int attribute)
{
    return (attribute >= 4 && attribute <= 8) || attribute == 13;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *value)
{
    return is_wide(attribute) ? ask_u64(value, SENT(number(pool), attribute))
                              : ask_int(value, SENT(number(pool), attribute));
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void *value)
{
    if (value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return ask(SENT(number(pool), attribute, is_wide(attribute) ? *(int64_t *)value : *(int *)value));
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t bytes)
{
    return ask(SENT(number(pool), (int64_t)bytes));
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *entries, size_t count)
{
    if (entries == NULL)
        count = 0;
    int64_t *arguments = calloc(2 + 3 * count, sizeof *arguments);
    if (arguments == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    arguments[0] = thread_id();
    arguments[1] = number(pool);
    for (size_t i = 0; i < count; i++) {
        int64_t *entry = arguments + 2 + 3 * i;
        entry[0] = entries[i].location.type;
        entry[1] = entries[i].location.id;
        entry[2] = entries[i].flags;
    }
    CUresult code = ask(__func__, arguments, 2 + 3 * count);
    free(arguments);
    return code;
}

CUresult cuMemPoolGetAccess(int *flags, CUmemoryPool pool, CUmemLocation *location)
{
    const CUmemLocation invalid = {0};
    const CUmemLocation *place = location ? location : &invalid;
    return ask_int(flags, SENT(number(pool), place->type, place->id));
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    return ask_u64(pointer, SENT((int64_t)bytes, number(pool), number(stream)));
}

CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    return ask_u64(pointer, SENT((int64_t)bytes, number(stream)));
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream)
{
    return ask_to_free(pointer, SENT((int64_t)pointer, number(stream)));
}

/* --- memory --- */

CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned int flags)
{
    return ask_handle(pointer, SENT((int64_t)bytes, flags));
}

CUresult cuMemFreeHost(void *pointer)
{
    return ask_to_free((CUdeviceptr)(uintptr_t)pointer, SENT(number(pointer)));
}

CUresult cuMemcpyAsync(CUdeviceptr destination, CUdeviceptr source, size_t bytes, CUstream stream)
{
    return ask(SENT((int64_t)destination, (int64_t)source, (int64_t)bytes, number(stream)));
}

CUresult cuMemcpyPeerAsync(CUdeviceptr destination, CUcontext destination_context, CUdeviceptr source,
                           CUcontext source_context, size_t bytes, CUstream stream)
{
    return ask(SENT((int64_t)destination, number(destination_context), (int64_t)source, number(source_context),
                    (int64_t)bytes, number(stream)));
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr destination, const void *source, size_t bytes)
{
    return source ? ask_with(&(Data){source, bytes}, SENT((int64_t)destination)) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemcpyDtoH_v2(void *destination, CUdeviceptr source, size_t bytes)
{
    size_t used;
    return destination ? ask_bytes(destination, bytes, &used, SENT((int64_t)source, (int64_t)bytes))
                       : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemsetD8Async(CUdeviceptr pointer, unsigned char value, size_t bytes, CUstream stream)
{
    return ask(SENT((int64_t)pointer, value, (int64_t)bytes, number(stream)));
}

CUresult cuPointerGetAttribute(void *value, int attribute, CUdeviceptr pointer)
{
    return ask_int(value, SENT(attribute, (int64_t)pointer));
}

/* --- kernels --- */

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    if (image == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return ask_handle_with(&(Data){image, strlen(image)}, module, SENT());
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    if (name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return ask_handle_with(&(Data){name, strlen(name)}, function, SENT(number(module)));
}

/* Parameters come in `extra` only: an array of pointers says nothing about their sizes. */
CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                        unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,
                        CUstream stream, void **parameters, void **extra)
{
    Data data = {NULL, 0};
    if (parameters)
        return CUDA_ERROR_NOT_SUPPORTED;
    for (; extra && extra[0] != LAUNCH_PARAM_END; extra += 2) {
        if (extra[0] == LAUNCH_PARAM_BUFFER_POINTER)
            data.bytes = extra[1];
        if (extra[0] == LAUNCH_PARAM_BUFFER_SIZE)
            data.size = *(const size_t *)extra[1];
    }
    CUresult code = ask_with(&data, SENT(number(function), grid_x, grid_y, grid_z, block_x, block_y, block_z,
                                         shared_bytes, number(stream)));
    const char *blocking = getenv("CUDA_LAUNCH_BLOCKING");
    return code == CUDA_SUCCESS && blocking && strcmp(blocking, "1") == 0 ? cuStreamSynchronize(stream) : code;
}

/* --- contexts --- */

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    return ask_handle(context, SENT(device));
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    return ask(SENT(device));
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    return ask(SENT(device));
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
    if (flags == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = 0;
    return ask_int(active, SENT(device));
}

CUresult cuCtxSetCurrent(CUcontext context)
{
    return ask(SENT(number(context)));
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
    return ask_handle(context, SENT());
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    return ask(SENT(number(context)));
}

CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    CUcontext unwanted;
    return ask_handle(context ? context : &unwanted, SENT());
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    return ask_int(device, SENT());
}

CUresult cuCtxSynchronize(void)
{
    return ask(SENT());
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    uint64_t numbers[NUMBERS];
    CUresult code = ask_numbers(numbers, NULL, SENT());
    if (code == CUDA_SUCCESS && least)
        *least = (int)numbers[0];
    if (code == CUDA_SUCCESS && greatest)
        *greatest = (int)numbers[1];
    return code;
}

/* --- streams and their capture --- */

CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
    return ask_handle(stream, SENT(flags));
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
    return ask_handle(stream, SENT(flags, priority));
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
    return ask(SENT(number(stream)));
}

CUresult cuStreamSynchronize(CUstream stream)
{
    return ask(SENT(number(stream)));
}

CUresult cuStreamQuery(CUstream stream)
{
    return ask(SENT(number(stream)));
}

CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
    return ask_handle(event, SENT(flags));
}

CUresult cuEventDestroy_v2(CUevent event)
{
    return ask(SENT(number(event)));
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    return ask(SENT(number(event), number(stream)));
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
    return ask_milliseconds(milliseconds, SENT(number(start), number(end)));
}

CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end)
{
    return ask_milliseconds(milliseconds, SENT(number(start), number(end)));
}

CUresult cuStreamBeginCapture_v2(CUstream stream, int mode)
{
    return ask(SENT(number(stream), mode));
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    if (graph)
        *graph = NULL;
    return ask_handle(graph, SENT(number(stream)));
}

CUresult cuStreamIsCapturing(CUstream stream, int *status)
{
    return ask_int(status, SENT(number(stream)));
}

CUresult cuThreadExchangeStreamCaptureMode(int *mode)
{
    return mode ? ask_int(mode, SENT(*mode)) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphDestroy(CUgraph graph)
{
    return ask(SENT(number(graph)));
}
