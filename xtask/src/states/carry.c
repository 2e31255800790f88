/* Appends files to the tar archive that the second disk holds: carry FOLDER PATH..
 *
 * Each becomes FOLDER/PATH. Files of the kernel have no size before they are read, so the header is written after the
 * contents. All goes past the page cache, from one buffer: to look at memory must not change it. The end of the archive
 * stands in /carried. A file that is not there is passed over. */
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SECTOR 512

static char buffer[65536] __attribute__((aligned(4096)));

static void put(int disk, size_t bytes, off_t at) {
    if (pwrite(disk, buffer, bytes, at) != (ssize_t)bytes)
        err(1, "the second disk");
}

static void put_header(int disk, const char *folder, const char *path, size_t bytes, off_t at) {
    memset(buffer, 0, SECTOR);
    if (snprintf(buffer, 100, "%s%s", folder, path) >= 100)
        errx(1, "%s: too long a name", path);
    strcpy(buffer + 100, "0000644");
    strcpy(buffer + 108, "0000000");
    strcpy(buffer + 116, "0000000");
    sprintf(buffer + 124, "%011zo", bytes);
    strcpy(buffer + 136, "00000000000");
    memset(buffer + 148, ' ', 8);
    buffer[156] = '0';
    strcpy(buffer + 257, "ustar");
    memcpy(buffer + 263, "00", 2);
    unsigned sum = 0;
    for (size_t i = 0; i < SECTOR; i++)
        sum += (unsigned char)buffer[i];
    sprintf(buffer + 148, "%06o", sum);
    put(disk, SECTOR, at);
}

/* Returns the end of the archive behind the file. */
static off_t carry(int disk, const char *folder, const char *path, off_t at) {
    int file = open(path, O_RDONLY);
    if (file < 0)
        return at;
    size_t bytes = 0;
    for (;;) {
        size_t have = 0;
        ssize_t got;
        while (have < sizeof buffer && (got = read(file, buffer + have, sizeof buffer - have)) > 0)
            have += got;
        if (have == 0)
            break;
        size_t whole = (have + SECTOR - 1) / SECTOR * SECTOR;
        memset(buffer + have, 0, whole - have);
        put(disk, whole, at + SECTOR + bytes);
        bytes += have;
        if (have < sizeof buffer)
            break;
    }
    close(file);
    put_header(disk, folder, path, bytes, at);
    return at + SECTOR + (bytes + SECTOR - 1) / SECTOR * SECTOR;
}

int main(int argc, char **argv) {
    off_t at = 0;
    int disk = open("/dev/vdb", O_WRONLY | O_DIRECT);
    if (argc < 2 || disk < 0)
        err(1, "usage: carry FOLDER PATH..; /dev/vdb");
    FILE *carried = fopen("/carried", "r");
    if (carried) {
        if (fscanf(carried, "%ld", &at) != 1)
            errx(1, "/carried is garbled");
        fclose(carried);
    }
    for (int i = 2; i < argc; i++)
        at = carry(disk, argv[1], argv[i], at);
    carried = fopen("/carried", "w");
    if (!carried || fprintf(carried, "%ld\n", at) < 0 || fclose(carried) != 0)
        err(1, "/carried");
    return 0;
}
