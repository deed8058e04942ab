/* A program linked with -lcuda: what a typed port cannot say, NULL and fork. Prints one line a question. */

#include "driver_api.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DEVICE = 1, PINNED = 1, READWRITE = 3 };

static void print(const char *question, CUresult code)
{
    const char *name = "?";
    cuGetErrorName(code, &name);
    printf("%s: %s\n", question, name);
    fflush(stdout);
}

static void ask_with_null(CUmemoryPool pool)
{
    CUmemAccessDesc entry = {{DEVICE, 1}, READWRITE};
    CUmemLocation place = {DEVICE, 1};
    int flags = 0;
    print("set NULL array, count 1", cuMemPoolSetAccess(pool, NULL, 1));
    print("set count 0", cuMemPoolSetAccess(pool, &entry, 0));
    print("set NULL pool", cuMemPoolSetAccess(NULL, &entry, 1));
    print("get NULL pool", cuMemPoolGetAccess(&flags, NULL, &place));
    print("get NULL location", cuMemPoolGetAccess(&flags, pool, NULL));
    print("get NULL flags", cuMemPoolGetAccess(NULL, pool, &place));
    print("create NULL properties", cuMemPoolCreate(&pool, NULL));
    print("destroy NULL pool", cuMemPoolDestroy(NULL));
}

static void ask_after_fork(void)
{
    int count = 0;
    pid_t child = fork();
    if (child == 0) {
        print("in a forked child, cuInit", cuInit(0));
        print("in a forked child, count", cuDeviceGetCount(&count));
        _exit(0);
    }
    waitpid(child, NULL, 0);
    print("in its parent, count", cuDeviceGetCount(&count));
}

int main(int argc, char **argv)
{
    int count = 0;
    int flags = 0;
    CUmemoryPool pool = NULL;
    CUmemPoolProps properties = {.allocType = PINNED, .location = {DEVICE, 0}};
    CUmemAccessDesc entry = {{DEVICE, 1}, READWRITE};
    CUmemLocation place = {DEVICE, 1};

    print("count before cuInit", cuDeviceGetCount(&count));
    print("cuInit", cuInit(0));
    if (argc > 1 && strcmp(argv[1], "wild") == 0) /* reads a pool that never was one */
        return cuMemPoolGetAccess(&flags, (CUmemoryPool)0x1234, &place);
    if (argc > 1)
        return 0;
    print("create", cuMemPoolCreate(&pool, &properties));
    print("grant", cuMemPoolSetAccess(pool, &entry, 1));
    print("get", cuMemPoolGetAccess(&flags, pool, &place));
    printf("flags: %d\n", flags);
    ask_with_null(pool);
    ask_after_fork();
    print("destroy", cuMemPoolDestroy(pool));
    return 0;
}
