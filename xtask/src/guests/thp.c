/* thpfioscale's measurement: thp BYTES MADVISE
 *
 * Maps BYTES, on a boundary of 2 MiB, and advises huge pages if MADVISE is 1. Then, for each of the first half of its
 * units of 2 MiB: writes one byte, asks whether page 64 of the unit is resident (so the fault gave a huge page), writes
 * the whole unit. Prints a line for each unit at the end: 1 if huge, and the microseconds that it took. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define UNIT (2ul << 20)
#define PROBED_PAGE 64
#define PAGE 4096
#define MOST_UNITS 65536

static struct {
    unsigned char huge;
    uint32_t micros;
} units[MOST_UNITS];

static uint64_t micros_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000ull + now.tv_nsec / 1000;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: thp BYTES MADVISE\n");
        return 2;
    }
    size_t bytes = strtoull(argv[1], NULL, 10), count = bytes / UNIT / 2;
    if (count > MOST_UNITS) {
        fprintf(stderr, "thp: more than %d units\n", MOST_UNITS);
        return 2;
    }
    char *map = mmap(NULL, bytes + UNIT, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) {
        perror("thp: mmap");
        return 1;
    }
    char *first = (char *)(((uintptr_t)map + UNIT - 1) / UNIT * UNIT);
    if (strcmp(argv[2], "1") == 0 && madvise(first, bytes, MADV_HUGEPAGE) != 0) {
        perror("thp: madvise");
        return 1;
    }
    for (size_t i = 0; i < count; i++) {
        char *unit = first + i * UNIT;
        uint64_t begun = micros_now();
        unsigned char resident = 0;
        *(volatile char *)unit = 1;
        mincore(unit + PROBED_PAGE * PAGE, PAGE, &resident);
        memset(unit, 2, UNIT);
        units[i].huge = resident & 1;
        units[i].micros = micros_now() - begun;
    }
    for (size_t i = 0; i < count; i++)
        printf("%d %u\n", units[i].huge, units[i].micros);
    return 0;
}
