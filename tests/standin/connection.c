/* The connection to the server: one a process, one line out and one line back. */

#define _GNU_SOURCE

#include "connection.h"
#include "host_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

enum { ANSWER_SECONDS = 10 };

static const char SOCKET_VARIABLE[] = "MEMPOOL_STANDIN_SOCKET";

static struct {
    pthread_mutex_t lock;
    int fd;
    _Atomic pid_t owner;
    atomic_bool initialized;
    int uvm;
} process = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1, .uvm = -1};

int64_t thread_id(void)
{
    return syscall(SYS_gettid);
}

static void disconnect(void)
{
    if (process.fd >= 0)
        close(process.fd);
    process.fd = -1;
    process.initialized = false;
    unmap_all_host_memory();
}

static bool send_all(const char *data, size_t size)
{
    while (size > 0) {
        ssize_t sent = send(process.fd, data, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return false;
        data += sent;
        size -= (size_t)sent;
    }
    return true;
}

/* As recv; the descriptor that may come with the bytes goes to `file`. */
static ssize_t receive(char *data, size_t size, int *file)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec piece = {data, size};
    struct msghdr message = {
        .msg_iov = &piece, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t got = recvmsg(process.fd, &message, MSG_CMSG_CLOEXEC);
    struct cmsghdr *header = got > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    if (header)
        memcpy(file, CMSG_DATA(header), sizeof *file);
    return got;
}

/* The server sends nothing unasked, so nothing can follow the line. */
static bool receive_line(char *line, size_t size, int *file)
{
    size_t used = 0;
    while (used < size - 1) {
        ssize_t got = receive(line + used, size - 1 - used, file);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        used += (size_t)got;
        if (line[used - 1] == '\n') {
            line[used - 1] = '\0';
            return true;
        }
    }
    return false;
}

static void write_hexadecimal(FILE *out, Data data)
{
    fputs(" x", out);
    for (size_t i = 0; i < data.size; i++)
        fprintf(out, "%02x", ((const unsigned char *)data.bytes)[i]);
}

static bool greet(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    char *line = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&line, &size);
    if (out == NULL)
        return false;
    fputs("hello", out);
    if (visible)
        write_hexadecimal(out, (Data){visible, strlen(visible)});
    fputc('\n', out);
    bool sent = fclose(out) == 0 && send_all(line, size);
    free(line);
    return sent;
}

static bool connect_server(void)
{
    const char *path = getenv(SOCKET_VARIABLE);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (path == NULL || strlen(path) >= sizeof address.sun_path)
        return false;
    strcpy(address.sun_path, path);
    process.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (process.fd < 0)
        return false;
    process.owner = getpid();
    struct timeval limit = {.tv_sec = ANSWER_SECONDS};
    setsockopt(process.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(process.fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (connect(process.fd, (struct sockaddr *)&address, sizeof address) == 0 && greet())
        return true;
    disconnect();
    return false;
}

static int open_beside_socket(const char *name)
{
    char path[sizeof(struct sockaddr_un)];
    const char *socket_path = getenv(SOCKET_VARIABLE);
    const char *slash = socket_path ? strrchr(socket_path, '/') : NULL;
    if (slash == NULL || snprintf(path, sizeof path, "%.*s/%s", (int)(slash - socket_path), socket_path, name) < 0)
        return -1;
    return open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
}

/* As the driver does at cuInit: the one file stays open, the other mapped, by which others see that it was called. */
static void take_device_files(void)
{
    if (process.uvm >= 0)
        return;
    process.uvm = open_beside_socket("nvidia-uvm");
    int control = open_beside_socket("nvidiactl");
    if (control >= 0) {
        mmap(NULL, 1, PROT_NONE, MAP_SHARED, control, 0);
        close(control);
    }
}

static bool exchange(char *reply, size_t capacity, int *file, const Data *data, const char *call,
                     const int64_t *arguments, size_t count)
{
    char *line = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&line, &size);
    if (out == NULL)
        return false;
    fputs(call, out);
    for (size_t i = 0; i < count; i++)
        fprintf(out, " %lld", (long long)arguments[i]);
    if (data)
        write_hexadecimal(out, *data);
    fputc('\n', out);
    bool done = fclose(out) == 0 && send_all(line, size) && receive_line(reply, capacity, file);
    free(line);
    return done;
}

/* The code of a reply, whose file is mapped first. */
static CUresult take(const char *reply, int file)
{
    char *results;
    CUresult code = (CUresult)strtol(reply, &results, 10);
    if (file < 0)
        return code;
    bool mapped = map_host_memory(file, strtoull(results, NULL, 10));
    close(file);
    return mapped ? code : CUDA_ERROR_UNKNOWN;
}

static CUresult forward_locked(char *reply, size_t capacity, const Data *data, const char *call,
                               const int64_t *arguments, size_t count)
{
    bool init = strcmp(call, "cuInit") == 0;
    int file = -1;
    if (process.fd >= 0 && process.owner != getpid())
        disconnect(); /* inherited by fork before cuInit, which is allowed */
    if (process.fd < 0 && !connect_server())
        return init ? CUDA_ERROR_SYSTEM_NOT_READY : CUDA_ERROR_NOT_INITIALIZED;
    if (!exchange(reply, capacity, &file, data, call, arguments, count)) {
        disconnect();
        return init ? CUDA_ERROR_SYSTEM_NOT_READY : CUDA_ERROR_UNKNOWN;
    }
    if (strcmp(reply, "crash") == 0)
        raise(SIGSEGV);
    CUresult code = take(reply, file);
    if (init && code == CUDA_SUCCESS) {
        process.initialized = true;
        take_device_files();
    }
    return code;
}

CUresult forward(char *results, size_t capacity, const Data *data, const char *call, const int64_t *arguments,
                 size_t count)
{
    results[0] = '\0';
    /* Before the lock, which another thread may have held when this process was forked. */
    if (process.initialized && process.owner != getpid())
        return CUDA_ERROR_NOT_INITIALIZED;
    pthread_mutex_lock(&process.lock);
    CUresult code = forward_locked(results, capacity, data, call, arguments, count);
    pthread_mutex_unlock(&process.lock);
    const char *rest = results + strcspn(results, " ");
    memmove(results, rest, strlen(rest) + 1);
    return code;
}

void mempool_standin_reset(void)
{
    pthread_mutex_lock(&process.lock);
    disconnect();
    pthread_mutex_unlock(&process.lock);
}
