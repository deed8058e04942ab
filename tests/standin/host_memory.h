/* Memory of the host that the processor and the simulated devices share: files, mapped here and in the server. */

#ifndef HOST_MEMORY_H
#define HOST_MEMORY_H

#include "driver_api.h"

#include <stdbool.h>

#pragma GCC visibility push(hidden)

/* All of the file, at `pointer` and nowhere else. */
bool map_host_memory(int file, CUdeviceptr pointer);

/* Takes any pointer, and does nothing when it is none of map_host_memory. */
void unmap_host_memory(CUdeviceptr pointer);

void unmap_all_host_memory(void);

#pragma GCC visibility pop

#endif
