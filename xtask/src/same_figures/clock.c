/* The clock of programs that are compared: a look at it moves it on, by a step that the looks of the thread before
   decide. So times are the same in each run, and as unequal among themselves as real ones. */
#include <dlfcn.h>
#include <stdint.h>
#include <time.h>

static __thread uint64_t looks = 1, passed;

int clock_gettime(clockid_t clock, struct timespec *now)
{
    static time_t booted;
    if (!booted) { /* Waits go by the kernel's clock, so this one begins there. */
        int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
        real(CLOCK_MONOTONIC, now);
        booted = now->tv_sec;
    }
    looks = looks * 6364136223846793005u + 1442695040888963407u;
    passed += 1000 + (looks >> 40) % 100000;
    now->tv_sec = passed / 1000000000 + (clock == CLOCK_REALTIME ? 1767225600 : booted);
    now->tv_nsec = passed % 1000000000;
    return 0;
}
