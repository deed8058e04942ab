/*
 * How the library asks a simulated machine (server.py): one line over a Unix socket, and one line back.
 *
 *     cuMemPoolGetAccess 4711 93458488360960 1 0      call, thread, arguments
 *     0 3                                             code, results
 *
 * Integers are decimal, texts and bytes hexadecimal, as arguments after an x. Times are in nanoseconds. With a pointer
 * to new memory of the host comes a descriptor of the file that has its bytes.
 *
 * A connection is what a process is to a driver.
 */

#ifndef CONNECTION_H
#define CONNECTION_H

#include "driver_api.h"

#pragma GCC visibility push(hidden)

enum { REPLY_BYTES = 8192 };

int64_t thread_id(void);

/* What a call takes or gives besides numbers. */
typedef struct {
    const void *bytes;
    size_t size;
} Data;

/*
 * The code; what follows it in the reply goes to `results`, of `capacity` bytes. `data` is the last argument, or NULL.
 * Ends the process when the driver would.
 */
CUresult forward(char *results, size_t capacity, const Data *data, const char *call, const int64_t *arguments,
                 size_t count);

#pragma GCC visibility pop

#endif
