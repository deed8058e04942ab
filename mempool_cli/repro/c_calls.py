"""How each call of a description is written in C: by the driver's name, structures by field name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mempool_cli.driver import kernels
from mempool_cli.repro.language import MIXED, Access, Argument, Call, NewPool, Place, Variant

C_TYPES = {
    "mem_pool_create": "CUmemoryPool",
    "mem_pool_get_access": "CUmemAccess_flags",
    "mem_alloc_from_pool_async": "CUdeviceptr",
    "device_get_default_mem_pool": "CUmemoryPool",
    "pointer_get_attribute": "unsigned int",
    "stream_end_capture": "CUgraph",
    "use_device": "CUstream",
    "use_accessor": "CUstream",
    "read_by_owner": "unsigned int",
    "read_all": "unsigned int",
    "device_get_attribute": "int",
    "device_primary_ctx_retain": "CUcontext",
    "stream_create": "CUstream",
    "memcpy_dtoh": "unsigned int",
}
"""The type of the variable that a call fills."""

_SPELLED = {
    "mem_pool_create": "cuMemPoolCreate(&{into}, &properties)",
    "mem_pool_destroy": "cuMemPoolDestroy({0})",
    "mem_pool_get_access": "cuMemPoolGetAccess(&{into}, {0}, &{1})",
    "mem_pool_set_access": "cuMemPoolSetAccess({0}, entries, {count})",
    "mem_alloc_from_pool_async": "cuMemAllocFromPoolAsync(&{into}, {0}, {1}, {2})",
    "mem_free_async": "cuMemFreeAsync({0}, {1})",
    "stream_synchronize": "cuStreamSynchronize({0})",
    "use_device": "stream_on(owner.type == CU_MEM_LOCATION_TYPE_DEVICE ? owner.id : accessor.id, &{into})",
    "use_accessor": "stream_on(accessor.id, &{into})",
    "write_by_kernel": "write_by_kernel({0}, {1})",
    "device_get_attribute": "cuDeviceGetAttribute(&{into}, (CUdevice_attribute){0}, {1})",
    "device_get_default_mem_pool": "cuDeviceGetDefaultMemPool(&{into}, {0})",
    "device_primary_ctx_retain": "cuDevicePrimaryCtxRetain(&{into}, {0})",
    "ctx_set_current": "cuCtxSetCurrent({0})",
    "stream_create": "cuStreamCreate(&{into}, CU_STREAM_NON_BLOCKING)",
    "memset_d8_async": "cuMemsetD8Async({0}, {1:#x}, {2}, {3})",
    "memcpy_peer_async": "cuMemcpyPeerAsync({0}, {1}, {2}, {3}, {4}, {5})",
    "memcpy_dtoh": "cuMemcpyDtoH(&{into}, {0}, {1})",
    "retain_both": "retain_both()",
    "read_by_owner": "read_by_owner(&{into}, {0})",
    "read_all": "read_all(&{into}, {0}, {1})",
    "stream_begin_capture": "cuStreamBeginCapture({0}, CU_STREAM_CAPTURE_MODE_GLOBAL)",
    "stream_end_capture": "cuStreamEndCapture({0}, &{into})",
    "pointer_get_attribute": "cuPointerGetAttribute(&{into}, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, {1})",
}

_ORDINALS = {"owner_ordinal": "owner.id", "accessor_ordinal": "accessor.id"}


def spelled(call: Call) -> tuple[list[str], str]:
    """The declarations that the call needs, and the call."""
    declarations: list[str] = []
    words: list[int | str] = []
    count = 0
    for argument in call.arguments:
        if isinstance(argument, NewPool):
            declarations.append(f"CUmemPoolProps properties = pool_on(owner, {argument.max_size});")
        elif isinstance(argument, tuple):
            count = len(argument)
            declarations.append(f"CUmemAccessDesc entries[] = {{{', '.join(_entry(entry) for entry in argument)}}};")
        words.append(_word(argument))
    return declarations, _SPELLED[call.method].format(*words, into=call.into, count=count)


def _word(argument: Argument) -> int | str:
    if isinstance(argument, Place):
        return argument.who
    if isinstance(argument, int):
        return argument
    return _ORDINALS.get(argument, argument) if isinstance(argument, str) else ""


def _entry(entry: Access) -> str:
    return f"access_of({entry.who}, CU_MEM_ACCESS_FLAGS_PROT_{entry.flags})"


def _quoted(image: bytes) -> str:
    """PTX as the lines of a C string."""
    lines = [line for line in image.rstrip(b"\0").decode().splitlines() if line]
    return "\n".join(f'    "{line}\\n"' for line in lines)


STRUCTURES = {
    "pool_on": """\
static CUmemPoolProps pool_on(CUmemLocation location, size_t max_size)
{
    CUmemPoolProps properties;
    memset(&properties, 0, sizeof properties);
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.handleTypes = CU_MEM_HANDLE_TYPE_NONE;
    properties.location = location;
#if CUDA_VERSION >= 12020
    properties.maxSize = max_size;
#else
    (void)max_size; /* it cannot be said: as large as the driver likes */
#endif
    return properties;
}
""",
    "access_of": """\
static CUmemAccessDesc access_of(CUmemLocation location, CUmemAccess_flags flags)
{
    CUmemAccessDesc access;
    memset(&access, 0, sizeof access);
    access.location = location;
    access.flags = flags;
    return access;
}
""",
}

_PAIR = """\
/* The first ordered pair where the accessor can reach the owner, or cannot, within what OWNER and ACCESSOR allow. */
static void choose_pair(int count, int reached)
{
    char among[64] = "";
    if (count < 2)
        nothing_to_do("pools on a device need two devices, and 1 is visible");
    for (CUdevice a = 0; a < count; a++) {
        int pools = 0;
        if (OWNER >= 0 && OWNER != a)
            continue;
        CHECK(cuDeviceGetAttribute(&pools, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, a));
        for (CUdevice b = 0; pools && b < count; b++) {
            int can = 0;
            if (a == b || (ACCESSOR >= 0 && ACCESSOR != b))
                continue;
            CHECK(cuDeviceCanAccessPeer(&can, b, a)); /* can b reach a's memory */
            if (!can == !reached) {
                owner = location_of(CU_MEM_LOCATION_TYPE_DEVICE, a);
                accessor = location_of(CU_MEM_LOCATION_TYPE_DEVICE, b);
                return;
            }
        }
    }
    if (OWNER >= 0 && ACCESSOR >= 0)
        snprintf(among, sizeof among, ", with owner device %d and accessor device %d", OWNER, ACCESSOR);
    else if (OWNER >= 0)
        snprintf(among, sizeof among, ", with owner device %d", OWNER);
    else if (ACCESSOR >= 0)
        snprintf(among, sizeof among, ", with accessor device %d", ACCESSOR);
    snprintf(found.reason, sizeof found.reason, "%s%s",
             reached ? "no device reaches another one with memory pools"
                     : "no device with memory pools is out of reach of another one",
             among);
    nothing_to_do(found.reason);
}
"""

_HOST = """\
/* CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED, CU_MEM_LOCATION_TYPE_HOST: cuda.h of CUDA 12.0 has neither. */
enum { HOST_POOLS_SUPPORTED = 144, LOCATION_HOST = 2 };

/* The first device that can access pools in host memory. */
static void choose_host(int count)
{
    for (CUdevice b = 0; b < count; b++) {
        int can = 0;
        if (ACCESSOR >= 0 && ACCESSOR != b)
            continue;
        /* An older driver refuses the question. */
        if (CALL(cuDeviceGetAttribute(&can, (CUdevice_attribute)HOST_POOLS_SUPPORTED, b)) == CUDA_SUCCESS && can) {
            owner = location_of((CUmemLocationType)LOCATION_HOST, 0);
            accessor = location_of(CU_MEM_LOCATION_TYPE_DEVICE, b);
            return;
        }
    }
    nothing_to_do("no device can access pools in host memory");
}
"""

_CHOOSERS: Mapping[Variant, tuple[str, str]] = {
    "device": (_PAIR, "choose_pair(count, 1);"),
    "unreachable": (_PAIR, "choose_pair(count, 0);"),
    "host": (_HOST, "choose_host(count);"),
}


def choosers(variants: Iterable[Variant]) -> str:
    """`choose(variant, count)`, which sets owner and accessor, and the functions that it needs."""
    chosen = {variant: _CHOOSERS[variant] for variant in variants}
    calls = [f"    if (variant == VARIANT_{name.upper()})\n        {call}" for name, (_, call) in chosen.items()]
    choose = ["static void choose(enum variant variant, int count)", "{", *calls, "}", ""]
    return "\n".join([*dict.fromkeys(function for function, _ in chosen.values()), "\n".join(choose)])


HELPERS = {
    "stream_on": """\
/* A stream in a context of this device, which becomes current. */
static CUresult stream_on(CUdevice device, CUstream *stream)
{
    CUcontext context = NULL;
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    return cuStreamCreate(stream, CU_STREAM_NON_BLOCKING);
}
""",
    "write_by_kernel": """\
/* ---- the kernel ---- */

enum { WORD = 0x5eedf00d };

static const char image[] =
@PTX@;

/* A kernel in the current context writes WORD, and is waited for. */
static CUresult write_by_kernel(CUdeviceptr to, CUstream stream)
{
    CUmodule module = NULL;
    CUfunction function = NULL;
    struct {
        CUdeviceptr to;
        unsigned int value;
    } parameters = {to, WORD};
    size_t size = sizeof parameters.to + sizeof parameters.value;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &parameters, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     CU_LAUNCH_PARAM_END};
    CHECK(cuModuleLoadData(&module, image));
    CHECK(cuModuleGetFunction(&function, module, "mempool_write"));
    CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, extra));
    return cuStreamSynchronize(stream);
}
""".replace("@PTX@", _quoted(kernels.IMAGE)),
    "read_by_owner": """\
/* What is there, as the owner sees it: the device, in its context, or the processor. */
static CUresult read_by_owner(unsigned int *word, CUdeviceptr from)
{
    CUcontext context = NULL;
    if (owner.type != CU_MEM_LOCATION_TYPE_DEVICE) {
        *word = *(const volatile unsigned int *)(uintptr_t)from;
        return CUDA_SUCCESS;
    }
    CHECK(cuDevicePrimaryCtxRetain(&context, owner.id));
    CHECK(cuCtxSetCurrent(context));
    return cuMemcpyDtoH(word, from, sizeof *word);
}
""",
    "read_all": """\
enum { MIXED = @MIXED@ };

/* The word of which all of it consists, as the current context sees it; MIXED for several. */
static CUresult read_all(unsigned int *word, CUdeviceptr from, size_t size)
{
    unsigned int *words = malloc(size);
    if (!words)
        finish(INCONCLUSIVE, "out of memory");
    CHECK(cuMemcpyDtoH(words, from, size));
    *word = words[0];
    for (size_t i = 1; i < size / sizeof *words; i++)
        if (words[i] != words[0])
            *word = MIXED;
    free(words);
    return CUDA_SUCCESS;
}
""".replace("@MIXED@", str(MIXED)),
    "retain_both": """\
/* Contexts of both devices, the owner's current; none for host memory. */
static CUresult retain_both(void)
{
    CUcontext context = NULL;
    if (owner.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_SUCCESS;
    CHECK(cuDevicePrimaryCtxRetain(&context, accessor.id));
    CHECK(cuDevicePrimaryCtxRetain(&context, owner.id));
    return cuCtxSetCurrent(context);
}
""",
    "sets": """\
/* ---- sets of pool handles ---- */

struct set {
    CUmemoryPool *handles;
    int count;
};

static int holds(const struct set *set, CUmemoryPool handle)
{
    for (int i = 0; i < set->count; i++)
        if (set->handles[i] == handle)
            return 1;
    return 0;
}

static void put(struct set *set, CUmemoryPool handle)
{
    if (holds(set, handle))
        return;
    CUmemoryPool *more = realloc(set->handles, (size_t)(set->count + 1) * sizeof *more);
    if (!more)
        finish(INCONCLUSIVE, "out of memory");
    set->handles = more;
    set->handles[set->count++] = handle;
}

static void take(struct set *set, CUmemoryPool handle)
{
    for (int i = 0; i < set->count; i++)
        if (set->handles[i] == handle)
            set->handles[i--] = set->handles[--set->count];
}
""",
    "note": """\
static void note(CUresult result)
{
    for (int i = 0; i < CODES; i++)
        if (!found.answered[i] || found.codes[i] == result) {
            found.codes[i] = result;
            found.answered[i]++;
            return;
        }
}
""",
    "in_thread": """\
/* Does it in another thread, and waits. */
static void in_thread(void *(*work)(void *))
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, NULL) != 0)
        finish(INCONCLUSIVE, "no other thread can be started");
    pthread_join(thread, NULL);
}
""",
}
