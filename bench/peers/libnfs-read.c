/* Reads a file by libnfs, record after record and from the start again, for a while.
 *
 *   libnfs-read URL COPY RECORD_BYTES DEPTH MILLISECONDS
 *
 * URL is libnfs' own (nfs://HOST/PATH?nfsport=N&mountport=N&version=3); COPY is the same file here: what is read first
 * is compared with it. DEPTH reads are in flight together. Prints "ready", waits for a line, reads, and prints
 *
 *   READS ELAPSED_NS CPU_NS P50_NS P99_NS P999_NS
 *
 * Data are left where libnfs hands them out: no copy is made for the caller. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <nfsc/libnfs.h>

enum { DEPTH_MAX = 64, CHECKED = 8, TIMES_MAX = 1 << 22 };

struct slot {
    uint64_t offset, start;
};

static struct nfs_context *nfs;
static struct nfsfh *file;
static uint64_t file_bytes, record_bytes, next_record;
static struct slot slots[DEPTH_MAX];
static unsigned in_flight, checks_left;
static uint64_t reads, until;
static uint32_t *times;
static char *expected;
static int copy;

static void fail(const char *what)
{
    fprintf(stderr, "libnfs-read: %s: %s\n", what, nfs ? nfs_get_error(nfs) : strerror(errno));
    exit(1);
}

static uint64_t now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void ask(struct slot *slot);

static void answered(int status, struct nfs_context *context, void *data, void *private)
{
    struct slot *slot = private;
    uint64_t end = now(CLOCK_MONOTONIC);
    (void)context;
    in_flight--;
    if (status < 0 || (uint64_t)status != record_bytes)
        fail("a read failed, or was short");
    if (checks_left > 0) {
        checks_left--;
        if (pread(copy, expected, record_bytes, (off_t)slot->offset) != (ssize_t)record_bytes
            || memcmp(expected, data, record_bytes) != 0)
            fail("a read did not return the file's bytes");
    } else if (reads < TIMES_MAX) {
        uint64_t took = end - slot->start;
        times[reads++] = took > UINT32_MAX ? UINT32_MAX : (uint32_t)took;
    }
    if (end < until || checks_left > 0)
        ask(slot);
}

static void ask(struct slot *slot)
{
    slot->offset = next_record * record_bytes;
    next_record = (next_record + 1) % (file_bytes / record_bytes);
    slot->start = now(CLOCK_MONOTONIC);
    in_flight++;
    if (nfs_pread_async(nfs, file, slot->offset, record_bytes, answered, slot) < 0)
        fail("a read could not be sent");
}

static void run(unsigned depth)
{
    for (unsigned i = 0; i < depth; i++)
        ask(&slots[i]);
    while (in_flight > 0) {
        struct pollfd fd = { .fd = nfs_get_fd(nfs), .events = (short)nfs_which_events(nfs) };
        if (poll(&fd, 1, 10000) <= 0)
            fail("no answer");
        if (nfs_service(nfs, fd.revents) < 0)
            fail("the connection was lost");
    }
}

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static uint32_t at(double quantile)
{
    return times[(uint64_t)((double)(reads - 1) * quantile)];
}

int main(int argc, char **argv)
{
    if (argc != 6) {
        fprintf(stderr, "usage: libnfs-read URL COPY RECORD_BYTES DEPTH MILLISECONDS\n");
        return 2;
    }
    record_bytes = strtoull(argv[3], NULL, 10);
    unsigned depth = (unsigned)strtoul(argv[4], NULL, 10);
    uint64_t span = strtoull(argv[5], NULL, 10) * 1000000u;
    if (record_bytes == 0 || depth == 0 || depth > DEPTH_MAX)
        fail("a number is out of range");
    copy = open(argv[2], O_RDONLY);
    if (copy < 0)
        fail(argv[2]);
    file_bytes = (uint64_t)lseek(copy, 0, SEEK_END);
    times = malloc(TIMES_MAX * sizeof *times);
    expected = malloc(record_bytes);
    if (!times || !expected || file_bytes < record_bytes)
        fail("no memory, or the file is too short");

    nfs = nfs_init_context();
    if (!nfs)
        fail("no context");
    struct nfs_url *url = nfs_parse_url_full(nfs, argv[1]);
    if (!url || nfs_mount(nfs, url->server, url->path) != 0)
        fail("cannot mount");
    if (nfs_open(nfs, url->file, O_RDONLY, &file) != 0)
        fail("cannot open");
    if (nfs_get_readmax(nfs) < record_bytes)
        fprintf(stderr, "libnfs-read: a record is several calls of %llu bytes\n",
                (unsigned long long)nfs_get_readmax(nfs));

    checks_left = CHECKED;
    run(depth);
    reads = 0;
    puts("ready");
    fflush(stdout);
    if (getchar() == EOF)
        return 1;

    uint64_t begin = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
    until = begin + span;
    run(depth);
    uint64_t elapsed = now(CLOCK_MONOTONIC) - begin;
    cpu = now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    qsort(times, reads, sizeof *times, compare);
    printf("%llu %llu %llu %u %u %u\n", (unsigned long long)reads, (unsigned long long)elapsed,
           (unsigned long long)cpu, at(0.5), at(0.99), at(0.999));
    return 0;
}
