/* Preloaded into a process, it moves the process's clock: CLOCK_REALTIME is ahead by the seconds that are in the file
   CHAOS_CLOCK, as one double, which may change at any time. CLOCK_MONOTONIC and sleeps are those of the machine, as
   when an administrator or NTP sets the clock. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile double *ahead(void) {
    static const volatile double zero = 0;
    static const volatile double *found;
    if (!found) {
        const char *path = getenv("CHAOS_CLOCK");
        int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
        void *page = file < 0 ? MAP_FAILED : mmap(0, sizeof(double), PROT_READ, MAP_SHARED, file, 0);
        if (file >= 0)
            close(file);
        found = page == MAP_FAILED ? &zero : page;
    }
    return found;
}

static void move(struct timespec *moment) {
    double whole, part = modf(*ahead(), &whole);
    moment->tv_sec += (time_t)whole;
    moment->tv_nsec += (long)(part * 1e9);
    if (moment->tv_nsec >= 1000000000L) {
        moment->tv_sec++;
        moment->tv_nsec -= 1000000000L;
    } else if (moment->tv_nsec < 0) {
        moment->tv_sec--;
        moment->tv_nsec += 1000000000L;
    }
}

int clock_gettime(clockid_t clock, struct timespec *moment) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, moment);
    if (!result && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        move(moment);
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec moment;
    clock_gettime(CLOCK_REALTIME, &moment);
    now->tv_sec = moment.tv_sec;
    now->tv_usec = moment.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *into) {
    struct timespec moment;
    clock_gettime(CLOCK_REALTIME, &moment);
    if (into)
        *into = moment.tv_sec;
    return moment.tv_sec;
}
