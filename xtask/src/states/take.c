/* Asks the kernel for blocks of one order by faults, as many as there are: take ORDER NODES FILE WORD
 *
 * For each node, on the CPU of its number: touches one byte of each naturally aligned unit of 2^ORDER pages, and asks
 * whether the unit's last page is resident, so that the fault gave the whole unit. A unit that it did not give is given
 * back at once. Of smaller units than a huge page, the last of each 2 MiB is left out and closed, so that no huge page
 * fits: to switch these off would move the marks (6.12). Ends after MISSES such in a row, and after one where free
 * memory is down to the high marks; and in any case below the min marks, where a small page would be reclaimed for.
 * kswapd, which is woken before, does not run meanwhile: this process goes first. What was given stays until all nodes
 * are done, then all is freed.
 * The kernel's own count of such faults is the number behind WORD in FILE, or FILE itself if WORD is empty.
 *
 * Prints lines for each node, then what the kernel says while all is held. */
#define _GNU_SOURCE
#include <err.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>

#define PAGE 4096ul
#define ALIGN (2ul << 20)
#define MISSES 24

/* Adds up the numbers behind a word in a file; of all of it, if there is no word. */
static unsigned long sum_in(const char *path, const char *word) {
    char line[512];
    unsigned long sum = 0;
    FILE *file = fopen(path, "r");
    if (!file)
        err(1, "%s", path);
    while (fgets(line, sizeof line, file))
        if (strncmp(line, word, strlen(word)) == 0)
            sum += strtoul(line + strlen(word), NULL, 10);
    fclose(file);
    return sum;
}

static unsigned long free_kib(void) {
    return sum_in("/proc/meminfo", "MemFree:");
}

/* Returns the KiB that zones keep below a mark: the mark, and what is kept from requests for higher zones. */
static unsigned long kept_kib(const char *mark) {
    char line[512];
    unsigned long sum = 0, of_zone = 0, value;
    FILE *file = fopen("/proc/zoneinfo", "r");
    if (!file)
        err(1, "zoneinfo");
    while (fgets(line, sizeof line, file)) {
        char *at = line + strspn(line, " "), *protection = strstr(line, "protection: (");
        if (strncmp(at, mark, strlen(mark)) == 0 && at[strlen(mark)] == ' ')
            of_zone = strtoul(at + strlen(mark), NULL, 10);
        if (sscanf(at, "managed %lu", &value) == 1 && value == 0)
            of_zone = 0;
        if (protection && of_zone > 0) {
            unsigned long most = 0;
            for (char *word = strtok(protection + 13, ", )"); word; word = strtok(NULL, ", )"))
                if ((value = strtoul(word, NULL, 10)) > most)
                    most = value;
            sum += of_zone + most, of_zone = 0;
        }
    }
    fclose(file);
    return sum * PAGE / 1024;
}

int main(int argc, char **argv) {
    if (argc != 5)
        errx(2, "usage: take ORDER NODES FILE WORD");
    size_t unit = PAGE << atoi(argv[1]);
    int nodes = atoi(argv[2]);
    struct sysinfo info;
    sysinfo(&info);
    size_t bytes = (info.totalram * info.mem_unit + ALIGN) / ALIGN * ALIGN;
    char *map = mmap(NULL, bytes + ALIGN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        err(1, "mmap");
    char *at = (char *)(((uintptr_t)map + ALIGN - 1) / ALIGN * ALIGN), *end = at + bytes;
    if (madvise(at, bytes, MADV_HUGEPAGE) != 0)
        err(1, "madvise");
    for (char *last = at + ALIGN - unit; unit < ALIGN && last < end; last += ALIGN)
        if (mprotect(last, unit, PROT_NONE) != 0)
            err(1, "mprotect");
    struct sched_param first = { .sched_priority = 1 };
    if (sched_setscheduler(0, SCHED_FIFO, &first) != 0)
        err(1, "sched_setscheduler");
    unsigned long min = kept_kib("min"), high = kept_kib("high");
    unsigned long before = free_kib(), counted = sum_in(argv[3], argv[4]);
    for (int node = 0; node < nodes; node++) {
        cpu_set_t cpus;
        CPU_ZERO(&cpus);
        CPU_SET(node, &cpus);
        if (sched_setaffinity(0, sizeof cpus, &cpus) != 0)
            err(1, "CPU %d", node);
        unsigned long given = 0, refused = 0;
        for (int misses = 0; at < end && misses < MISSES; at += unit) {
            unsigned char resident = 0;
            if (unit < ALIGN && (uintptr_t)(at + unit) % ALIGN == 0)
                continue;
            sysinfo(&info);
            unsigned long free = info.freeram * info.mem_unit / 1024;
            if (free < min || (misses > 0 && free < high))
                break;
            *(volatile char *)at = 1;
            if (mincore(at + unit - PAGE, PAGE, &resident) != 0)
                err(1, "mincore");
            if (resident & 1) {
                given++, misses = 0;
            } else {
                refused++, misses++;
                madvise(at, unit, MADV_DONTNEED);
            }
        }
        printf("node%d given %lu\nnode%d refused %lu\n", node, given, node, refused);
        at = (char *)(((uintptr_t)at + ALIGN - 1) / ALIGN * ALIGN);
    }
    printf("counted %lu\n", sum_in(argv[3], argv[4]) - counted);
    printf("anon_huge_kib %lu\n", sum_in("/proc/self/smaps", "AnonHugePages:"));
    printf("free_kib_before %lu\nfree_kib_held %lu\n", before, free_kib());
    printf("min_kib %lu\nhigh_kib %lu\n", min, high);
    munmap(map, bytes + ALIGN);
    printf("free_kib_after %lu\n", free_kib());
    return 0;
}
