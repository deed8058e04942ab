/*
@HEADER@
 */

#define _POSIX_C_SOURCE 200809L

#include <cuda.h>

#include <errno.h>
@THREAD_HEADER@#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef OWNER
#define OWNER @OWNER@ /* -1: any */
#endif
#ifndef ACCESSOR
#define ACCESSOR @ACCESSOR@
#endif
#ifndef ALLOW_FAULTS
#define ALLOW_FAULTS 0
#endif

enum { LIMIT_SECONDS = @LIMIT@, GONE_SECONDS = 10, CODES = 8, @NUMBERS@ };

enum verdict { @GOOD@ = 0, @BAD@ = @BAD_STATUS@, NO_DRIVER = 3, INCONCLUSIVE = 6 };

enum variant { @VARIANTS@ };
static const char *const variant_names[VARIANTS] = {@VARIANT_NAMES@};

enum arm { @ARMS@ };
static const char *const arm_names[ARMS] = {@ARM_NAMES@};

enum history { @HISTORIES@ };
static const char *const history_names[HISTORIES] = {@HISTORY_NAMES@};

/* What a trial found; the child sends it to the parent as it is. */
struct evidence {
    enum verdict verdict;
    char reason[192];
    int hopeless; /* nothing of this kind can be run on this machine */
    CUresult codes[CODES];
    int answered[CODES]; /* how often each of them was the answer of a call that may fail */
@COUNTERS@
};

static struct evidence found;
static int evidence_fd = -1;

/* ---- calls ---- */

static const char *result_name(CUresult result)
{
    static char number[32];
    const char *name = NULL;
    if (cuGetErrorName(result, &name) == CUDA_SUCCESS && name)
        return name;
    snprintf(number, sizeof number, "CUresult %d", (int)result);
    return number;
}

static CUresult show(const char *call, CUresult result)
{
    printf("  %s = %s\n", call, result_name(result));
    return result;
}

static int exit_status(enum verdict verdict)
{
    return verdict@EXIT@;
}

/* The end of a trial: evidence to the parent, verdict as the exit status. */
static void finish(enum verdict verdict, const char *reason)
{
    found.verdict = verdict;
    if (reason != found.reason)
        snprintf(found.reason, sizeof found.reason, "%s", reason);
    printf("  -> %s\n", found.reason);
    fflush(stdout);
    if (evidence_fd >= 0 && write(evidence_fd, &found, sizeof found) != (ssize_t)sizeof found)
        perror("evidence");
    _exit(exit_status(verdict));
}

static void give_up(const char *call, CUresult result)
{
    snprintf(found.reason, sizeof found.reason, "%s: %.120s", result_name(result), call);
    finish(INCONCLUSIVE, found.reason);
}

/* Prints the call with its result. */
#define CALL(call) show(#call, (call))

/* The same for a call without which the trial proves nothing. */
#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        CUresult check_result = CALL(call);                                                                            \
        if (check_result != CUDA_SUCCESS)                                                                              \
            give_up(#call, check_result);                                                                              \
    } while (0)

/* ---- the driver's structures ---- */

static CUmemLocation location_of(CUmemLocationType type, int id)
{
    CUmemLocation location;
    memset(&location, 0, sizeof location);
    location.type = type;
    location.id = id;
    return location;
}

@STRUCTURES@
/* ---- devices ---- */

static CUmemLocation owner;
static CUmemLocation accessor;

static void nothing_to_do(const char *reason)
{
    found.hopeless = 1;
    finish(INCONCLUSIVE, reason);
}

static void print_device(const char *role, CUdevice device)
{
    char name[256] = "";
    char bus[32] = "";
    CHECK(cuDeviceGetName(name, sizeof name, device));
    CHECK(cuDeviceGetPCIBusId(bus, sizeof bus, device));
    printf("    %s: device %d, %s, %s\n", role, device, name, bus);
}

@CHOOSERS@
@HELPERS@
/* ---- the trial ---- */

@VARIABLES@

@THREADS@static void judge(void)
{
@RULES@
}

static void conclude(void)
{
@SIZES@    judge();
}

static void trial(enum variant variant, enum arm arm, enum history history)
{
    int count = 0;
    (void)arm;
    (void)history;
    alarm(LIMIT_SECONDS);
    printf("trial: %s, arm %s, history %s\n", variant_names[variant], arm_names[arm], history_names[history]);
    if (CALL(cuInit(0)) != CUDA_SUCCESS || CALL(cuDeviceGetCount(&count)) != CUDA_SUCCESS || count == 0) {
        found.hopeless = 1;
        finish(NO_DRIVER, "no driver, or no device");
    }
    choose(variant, count);
    if (owner.type == CU_MEM_LOCATION_TYPE_DEVICE)
        print_device("owner", owner.id);
    print_device("accessor", accessor.id);

@STEPS@
    conclude();
}

/* ---- the parent: it never calls cuInit ---- */

static void ignore(int signal_number)
{
    (void)signal_number; /* its arrival interrupts the read below */
}

static int stuck; /* a trial is, which nothing ends: no other one may follow it on its device */

/* Whether the child has ended, or does so soon. */
static int gone(pid_t child, int *status)
{
    const struct timespec tenth = {0, 100000000};
    for (int i = 0; i < 10 * GONE_SECONDS; i++) {
        if (waitpid(child, status, WNOHANG) != 0)
            return 1;
        nanosleep(&tenth, NULL);
    }
    return 0;
}

/* Runs a trial in a process of its own, which is this program again. */
static struct evidence run_trial(const char *program, int variant, int arm, int history)
{
    struct evidence result = {.verdict = INCONCLUSIVE, .reason = "the trial could not be started"};
    int ends[2];
    int status = 0;
    if (pipe(ends) != 0)
        return result;
    fflush(stdout);
    pid_t child = fork();
    if (child < 0)
        return result;
    if (child == 0) {
        char number[16];
        snprintf(number, sizeof number, "%d", ends[1]);
        close(ends[0]);
        execl("/proc/self/exe", program, "--trial", variant_names[variant], arm_names[arm], history_names[history],
              number, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    alarm(LIMIT_SECONDS + 5); /* the child has its own alarm; this one is for a child that no signal ends */
    ssize_t got = read(ends[0], &result, sizeof result);
    int late = got < 0 && errno == EINTR;
    if (!late)
        late = !gone(child, &status);
    alarm(0);
    if (late) {
        kill(child, SIGKILL);
        stuck = !gone(child, &status);
    }
    if (stuck) {
        /* It may have told all before: then @BAD_NAME@ stays, and no more than that. */
        if (got != (ssize_t)sizeof result || result.verdict != @BAD@)
            result.verdict = INCONCLUSIVE;
        snprintf(result.reason, sizeof result.reason, "SIGKILL does not end the trial: process %ld remains",
                 (long)child);
    } else if (got == (ssize_t)sizeof result) {
        /* It has told all, however it went. */
    } else if (late) {
        snprintf(result.reason, sizeof result.reason, "the trial did not end in time and was killed");
    } else if (WIFSIGNALED(status)) {
        if (WTERMSIG(status) == SIGSEGV || WTERMSIG(status) == SIGBUS || WTERMSIG(status) == SIGABRT)
            result.verdict = @CRASH@;
        snprintf(result.reason, sizeof result.reason, "the trial died of signal %d%s", WTERMSIG(status),
                 WTERMSIG(status) == SIGALRM ? ", the time limit" : "");
    } else {
        snprintf(result.reason, sizeof result.reason, "the trial exited with %d and no evidence",
                 WEXITSTATUS(status));
    }
    close(ends[0]);
    return result;
}

static const char *verdict_name(enum verdict verdict)
{
    return verdict == @BAD@ ? "@BAD_NAME@" : verdict == @GOOD@ ? "@GOOD_NAME@" : "inconclusive";
}

static enum verdict worse(enum verdict one, enum verdict other)
{
    if (one == @BAD@ || other == @BAD@)
        return @BAD@;
    return one == @GOOD@ ? other : one;
}

static void print_versions(void)
{
    char line[256] = "not readable\n";
    int version = 0;
    FILE *file = fopen("/proc/driver/nvidia/version", "r");
    if (file) {
        if (!fgets(line, sizeof line, file))
            snprintf(line, sizeof line, "empty\n");
        fclose(file);
    }
    printf("CUDA_VERSION %d\n", CUDA_VERSION);
    CALL(cuDriverGetVersion(&version));
    printf("driver API version %d\nkernel module: %s", version, line);
}

static void print_evidence(int variant, int arm, int history, const struct evidence *e)
{
    printf("%s, %s, %s: %s: %s\n", variant_names[variant], arm_names[arm], history_names[history],
           verdict_name(e->verdict), e->reason);
    for (int i = 0; i < CODES; i++)
        if (e->answered[i])
            printf("    %6d calls answered %s\n", e->answered[i], result_name(e->codes[i]));
@EVIDENCE@
}

/* The verdict about one kind of pools; decided by: @DECIDES@. */
static enum verdict all_trials(const char *program, int variant)
{
    enum verdict verdict = @GOOD@;
    for (int arm = 0; arm < ARMS; arm++)
        for (int history = 0; history < HISTORIES; history++) {
@SKIPS@            struct evidence evidence = run_trial(program, variant, arm, history);
            puts("");
            print_evidence(variant, arm, history, &evidence);
            puts("");
            if (evidence.hopeless && !stuck)
                return evidence.verdict;
            if (@DECIDING@)
                verdict = worse(verdict, evidence.verdict);
            if (stuck)
                return worse(verdict, INCONCLUSIVE);
        }
    return verdict;
}

static int index_of(const char *name, const char *const *names, int count)
{
    for (int i = 0; i < count; i++)
        if (strcmp(name, names[i]) == 0)
            return i;
    return -1;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    setenv("CUDA_MPS_PIPE_DIRECTORY", "/nonexistent", 1); /* a fault would kill the other clients of an MPS server */
    unsetenv("CUDA_LAUNCH_BLOCKING"); /* a fault would come from the launch, as if that had failed */
    if (argc == 1) {
        struct sigaction action;
        enum verdict verdict = @GOOD@;
        memset(&action, 0, sizeof action);
        action.sa_handler = ignore;
        sigaction(SIGALRM, &action, NULL);
        print_versions();
        for (int variant = 0; variant < VARIANTS && !stuck; variant++)
            verdict = worse(verdict, all_trials(argv[0], variant));
        printf("RESULT %s\n", verdict_name(verdict));
        return exit_status(verdict);
    }
    if (argc >= 5 && strcmp(argv[1], "--trial") == 0) {
        int variant = index_of(argv[2], variant_names, VARIANTS);
        int arm = index_of(argv[3], arm_names, ARMS);
        int history = index_of(argv[4], history_names, HISTORIES);
        if (argc > 5)
            evidence_fd = atoi(argv[5]);
        if (variant >= 0 && arm >= 0 && history >= 0)
            trial((enum variant)variant, (enum arm)arm, (enum history)history); /* does not return */
    }
    fprintf(stderr, "usage: %s [--trial VARIANT ARM HISTORY]\n", argv[0]);
    return 2;
}
