/* Which memory of the host is mapped: freed one by one, and all at once when the connection ends. */

#define _GNU_SOURCE

#include "host_memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

typedef struct Mapping {
    struct Mapping *next;
    void *start;
    size_t size;
} Mapping;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Mapping *mappings;

static bool map_file(Mapping *mapping, int file)
{
    struct stat status;
    if (fstat(file, &status) != 0)
        return false;
    mapping->size = (size_t)status.st_size;
    return mmap(mapping->start, mapping->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, file, 0) ==
           mapping->start;
}

bool map_host_memory(int file, CUdeviceptr pointer)
{
    Mapping *mapping = malloc(sizeof *mapping);
    if (mapping == NULL)
        return false;
    mapping->start = (void *)(uintptr_t)pointer;
    if (!map_file(mapping, file)) {
        free(mapping);
        return false;
    }
    pthread_mutex_lock(&lock);
    mapping->next = mappings;
    mappings = mapping;
    pthread_mutex_unlock(&lock);
    return true;
}

static void unmap(Mapping **link)
{
    Mapping *mapping = *link;
    *link = mapping->next;
    munmap(mapping->start, mapping->size);
    free(mapping);
}

void unmap_host_memory(CUdeviceptr pointer)
{
    pthread_mutex_lock(&lock);
    Mapping **link = &mappings;
    while (*link && (*link)->start != (void *)(uintptr_t)pointer)
        link = &(*link)->next;
    if (*link)
        unmap(link);
    pthread_mutex_unlock(&lock);
}

void unmap_all_host_memory(void)
{
    pthread_mutex_lock(&lock);
    while (mappings)
        unmap(&mappings);
    pthread_mutex_unlock(&lock);
}
