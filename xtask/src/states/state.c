/* Brings memory into a state: state STEP.. in a process of its own, which then stays and holds what it has. Prints its
 * number when the last step is done.
 *
 *   touch KIB        so much more anonymous memory, in pages of 4 KiB
 *   fill KIB         anonymous memory until no more than KIB is free
 *   keep PERCENT     gives back pages at random, so that PERCENT of them stay
 *   scatter PAGES OF gives back PAGES pages, chosen at random, in one of OF pageblocks
 *   pin KIB          pages of pipes until no more than KIB is free: memory of the kernel that cannot move
 *   pins PAGES       so many pages of pipes
 *   unpin            gives back 15 of 16 pages of pipes, in the order in which they came
 *   hold OF          refers to one page in one of OF pageblocks from a pipe, as device I/O does: it cannot move now
 *   release          gives back all anonymous memory but what is held
 *   lock             locks what there is
 *   cache DIR KIB    reads KIB of files of 64 KiB, made as holes, below DIR, so that their pages are cached
 *   names DIR COUNT  makes COUNT empty files below DIR, and looks for eight times as many that are not there
 *   files DIR KIB    fills files of 64 KiB below DIR until no more than KIB is free
 *   thin DIR         removes every other file below DIR
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <err.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/uio.h>
#include <unistd.h>

#define PAGE 4096ul
#define BLOCK_PAGES 512
#define MOST_OF_BLOCK 32
#define FILE_BYTES 65536
#define SLOTS 16
#define MOST_PIPES 16384
#define MOST_PAGES (1ul << 20)
#define MOST_BLOCKS (1ul << 14)

enum { GONE, THERE, HELD };
static char *memory;
static size_t touched;
static unsigned char pages[MOST_PAGES];
static char buffer[FILE_BYTES];

/* Chance with a fixed seed: every guest draws the same numbers. */
static uint64_t chance(uint64_t below) {
    static uint64_t x = 88172645463325252ull;
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    return x % below;
}

static size_t free_kib(void) {
    struct sysinfo info;
    if (sysinfo(&info) != 0)
        err(1, "sysinfo");
    return info.freeram * (size_t)info.mem_unit / 1024;
}

static void touch(size_t count) {
    for (; count > 0 && touched < MOST_PAGES; count--, touched++) {
        memory[touched * PAGE] = 1;
        pages[touched] = THERE;
    }
}

/* Gives back those of `count` pages that are there. */
static void give_back_all(size_t page, size_t count) {
    for (size_t end = page + count, run = 0; page < end; page += run ? run : 1, run = 0) {
        for (; page + run < end && pages[page + run] == THERE; run++)
            pages[page + run] = GONE;
        if (run && madvise(memory + page * PAGE, run * PAGE, MADV_DONTNEED) != 0)
            err(1, "madvise");
    }
}

static void give_back(size_t page) {
    give_back_all(page, 1);
}

/* Returns the frame of a page; pages are asked for in their order. */
static uint64_t frame_of(size_t page) {
    static uint64_t entries[4096];
    static size_t first = MOST_PAGES;
    static int map = -1;
    size_t count = sizeof entries / sizeof *entries;
    if (map < 0 && (map = open("/proc/self/pagemap", O_RDONLY)) < 0)
        err(1, "pagemap");
    if (page < first || page >= first + count) {
        first = page;
        off_t at = ((uintptr_t)memory / PAGE + page) * sizeof *entries;
        if (pread(map, entries, sizeof entries, at) != sizeof entries)
            err(1, "pagemap");
    }
    return entries[page - first] & ((1ull << 55) - 1);
}

/* Calls `act` for `count` pages at random in one of `of` pageblocks. */
static void in_blocks(size_t count, size_t of, void (*act)(size_t)) {
    static uint32_t wanted[MOST_BLOCKS][MOST_OF_BLOCK];
    for (size_t block = 0; block < MOST_BLOCKS; block++)
        for (size_t i = 0; i < count && i < MOST_OF_BLOCK; i++)
            wanted[block][i] = block % of == 0 ? chance(BLOCK_PAGES) : BLOCK_PAGES;
    for (size_t page = 0; page < touched; page++) {
        if (pages[page] != THERE)
            continue;
        uint64_t frame = frame_of(page), block = frame / BLOCK_PAGES % MOST_BLOCKS;
        for (size_t i = 0; i < count && i < MOST_OF_BLOCK; i++)
            if (wanted[block][i] == frame % BLOCK_PAGES)
                act(page);
    }
}

static int pipes[MOST_PIPES][2];
static size_t slots;

/* Returns a pipe with a free slot; all of them stay open. */
static int slot(void) {
    int *ends = pipes[slots / SLOTS];
    if (slots == (size_t)MOST_PIPES * SLOTS || (slots % SLOTS == 0 && pipe(ends) != 0))
        err(1, "pipe");
    slots++;
    return ends[1];
}

static void unpin(void) {
    for (size_t i = 0; i < slots / SLOTS; i++)
        for (size_t page = 1; page < SLOTS; page++)
            if (read(pipes[i][0], buffer, PAGE) != PAGE)
                err(1, "a pipe");
}

static void pin(void) {
    if (write(slot(), buffer, PAGE) != PAGE)
        err(1, "a pipe");
}

static void hold(size_t page) {
    struct iovec part = { memory + page * PAGE, PAGE };
    if (vmsplice(slot(), &part, 1, 0) != PAGE)
        err(1, "vmsplice");
    pages[page] = HELD;
}

static void name_of(char *name, const char *folder, const char *kind, size_t i) {
    sprintf(name, "%s/%s%zu", folder, kind, i);
}

static void cache(const char *folder, size_t kib) {
    char name[256];
    for (size_t i = 0; i < kib * 1024 / FILE_BYTES; i++) {
        name_of(name, folder, "hole", i);
        int file = open(name, O_RDWR | O_CREAT, 0600);
        if (file < 0 || ftruncate(file, FILE_BYTES) != 0 || read(file, buffer, FILE_BYTES) != FILE_BYTES)
            err(1, "%s", name);
        close(file);
    }
}

static void make_names(const char *folder, size_t count) {
    char name[256];
    struct stat found;
    for (size_t i = 0; i < count; i++) {
        name_of(name, folder, "empty", i);
        int file = open(name, O_WRONLY | O_CREAT, 0600);
        if (file < 0)
            err(1, "%s", name);
        close(file);
        for (size_t j = 0; j < 8; j++) {
            name_of(name, folder, "absent", i * 8 + j);
            stat(name, &found);
        }
    }
}

static void fill_files(const char *folder, size_t leave) {
    char name[256];
    for (size_t i = 0; free_kib() > leave; i++) {
        name_of(name, folder, "file", i);
        int file = open(name, O_WRONLY | O_CREAT, 0600);
        if (file < 0 || write(file, buffer, FILE_BYTES) != FILE_BYTES)
            err(1, "%s", name);
        close(file);
    }
}

static void thin(const char *folder) {
    char name[256];
    for (size_t i = 0;; i += 2) {
        name_of(name, folder, "file", i);
        if (unlink(name) != 0)
            return;
    }
}

static size_t number(char ***words) {
    char *end, *word = **words;
    size_t value = word ? strtoul(word, &end, 10) : 0;
    if (!word || *end || end == word)
        errx(2, "a number is missing");
    ++*words;
    return value;
}

static char *folder_in(char ***words) {
    if (!**words)
        errx(2, "a folder is missing");
    return *(*words)++;
}

static void step(const char *name, char ***words) {
    if (strcmp(name, "touch") == 0) {
        touch(number(words) / 4);
    } else if (strcmp(name, "fill") == 0) {
        for (size_t leave = number(words); free_kib() > leave && touched < MOST_PAGES;)
            touch(32);
    } else if (strcmp(name, "keep") == 0) {
        size_t percent = number(words);
        for (size_t page = 0; page < touched; page++)
            if (chance(100) >= percent)
                give_back(page);
    } else if (strcmp(name, "scatter") == 0) {
        size_t count = number(words);
        in_blocks(count, number(words), give_back);
    } else if (strcmp(name, "pin") == 0) {
        for (size_t leave = number(words); free_kib() > leave;)
            pin();
    } else if (strcmp(name, "pins") == 0) {
        for (size_t count = number(words); count > 0; count--)
            pin();
    } else if (strcmp(name, "unpin") == 0) {
        unpin();
    } else if (strcmp(name, "hold") == 0) {
        in_blocks(1, number(words), hold);
    } else if (strcmp(name, "release") == 0) {
        give_back_all(0, touched);
    } else if (strcmp(name, "lock") == 0) {
        if (mlock2(memory, touched * PAGE, MLOCK_ONFAULT) != 0)
            err(1, "mlock2");
    } else if (strcmp(name, "cache") == 0) {
        char *folder = folder_in(words);
        cache(folder, number(words));
    } else if (strcmp(name, "names") == 0) {
        char *folder = folder_in(words);
        make_names(folder, number(words));
    } else if (strcmp(name, "files") == 0) {
        char *folder = folder_in(words);
        fill_files(folder, number(words));
    } else if (strcmp(name, "thin") == 0) {
        thin(folder_in(words));
    } else {
        errx(2, "there is no step %s", name);
    }
}

int main(int argc, char **argv) {
    int ready[2];
    char byte;
    if (argc < 2 || pipe(ready) != 0)
        errx(2, "usage: state STEP..");
    /* The child fills memory, not the parent: a fork afterwards would need page tables for all of it. */
    pid_t child = fork();
    if (child < 0)
        err(1, "fork");
    if (child > 0) {
        close(ready[1]);
        if (read(ready[0], &byte, 1) != 1)
            errx(1, "a step failed");
        printf("%d\n", child);
        return 0;
    }
    memory = mmap(NULL, MOST_PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        err(1, "mmap");
    for (char **words = argv + 1; *words;) {
        const char *name = *words++;
        step(name, &words);
        fprintf(stderr, "%s: %zu KiB are free\n", name, free_kib());
    }
    fclose(stdout);
    if (write(ready[1], "", 1) != 1)
        err(1, "pipe");
    close(ready[1]);
    for (;;)
        pause();
}
