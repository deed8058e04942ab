/* What `mempool probe` asks, without Python: cuInit, and the access of every device to every default pool. */

#include "driver_api.h"

#include <stdio.h>

enum { DEVICE = 1 };

int main(void)
{
    int count = 0;
    if (cuInit(0) || cuDeviceGetCount(&count))
        return 3;
    for (int owner = 0; owner < count; owner++) {
        CUmemoryPool pool;
        if (cuDeviceGetDefaultMemPool(&pool, owner))
            return 4;
        for (int device = 0; device < count; device++) {
            CUmemLocation place = {DEVICE, device};
            int flags = 0;
            if (cuMemPoolGetAccess(&flags, pool, &place))
                return 4;
            printf("%d%c", flags, device + 1 < count ? ' ' : '\n');
        }
    }
    return 0;
}
