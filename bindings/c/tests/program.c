/* What a program does with the library, checked against the served directory itself: program URL DIRECTORY.
 * DIRECTORY/data has 1 MiB + 100 bytes. Built by tests/programs.rs, and by the stage `c` of .ci/run for valgrind and
 * AddressSanitizer. */
#include <errno.h>
#include <fcntl.h>
#include <odafs.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SIZE ((1 << 20) + 100)

static odafs_client *client;
static unsigned char *truth;

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "line %d: %s; errno %d; %s\n", __LINE__, #condition, errno, odafs_last_error());           \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* It fails with this number, and a text in which this word stands. */
#define FAILS(call, number, word)                                                                                      \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        CHECK((call) == -1 && errno == (number) && strstr(odafs_last_error(), word));              \
    } while (0)
#define FAILS_NULL(call, number, word)                                                                                 \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        CHECK((call) == NULL && errno == (number) && strstr(odafs_last_error(), word));                                \
    } while (0)

static void reading(void)
{
    odafs_file *file = odafs_open(client, "data", O_RDONLY, 0);
    CHECK(file);
    unsigned char *buffer = malloc(SIZE + 10);
    CHECK(odafs_pread(file, buffer, SIZE + 10, 0) == SIZE && !memcmp(buffer, truth, SIZE));
    for (int round = 0; round < 3; round++) /* by a call, then by what that brought */
        for (uint64_t at = 0; at < SIZE; at += 65521)
            CHECK(odafs_pread(file, buffer, 100, at) == 100 && !memcmp(buffer, truth + at, 100));
    CHECK(odafs_pread(file, buffer, 100, SIZE - 7) == 7);
    CHECK(odafs_pread(file, buffer, 100, SIZE) == 0);
    CHECK(odafs_pread(file, buffer, 100, UINT64_MAX) == 0);
    CHECK(odafs_pread(file, NULL, 0, 0) == 0);
    FAILS(odafs_pread(file, NULL, 1, 0), EINVAL, "buffer");
    FAILS(odafs_pread(file, buffer, (size_t)-1, 0), EINVAL, "buffer");
    FAILS(odafs_pread(NULL, buffer, 1, 0), EINVAL, "NULL");
    FAILS(odafs_pwrite(file, buffer, 1, 0), EBADF, "O_RDWR");
    struct stat known;
    CHECK(odafs_fstat(file, &known) == 0 && known.st_size == SIZE && S_ISREG(known.st_mode));
    FAILS(odafs_fstat(file, NULL), EINVAL, "NULL");
    CHECK(odafs_revalidate(file) >= 0);
    odafs_close(file);
    free(buffer);
}

static void gathering(void)
{
    enum { COUNT = 20000, BYTES = 200 }; /* more than go together */
    odafs_file *file = odafs_open(client, "data", O_RDONLY, 0);
    CHECK(file);
    odafs_range *ranges = calloc(COUNT, sizeof *ranges);
    size_t *counts = calloc(COUNT, sizeof *counts), sum = 0;
    unsigned char *buffer = malloc(COUNT * BYTES);
    for (int i = 0; i < COUNT; i++) {
        ranges[i].offset = (i * 7919ull * 131) % SIZE;
        ranges[i].bytes = i % (BYTES + 1);
        sum += ranges[i].bytes;
    }
    ranges[0].offset = SIZE - 5, ranges[0].bytes = 10, sum += 10;
    CHECK(odafs_will_need(file, ranges, COUNT) >= 0);
    for (int round = 0; round < 3; round++) {
        memset(buffer, 0, sum);
        ssize_t got = odafs_read_ranges(file, ranges, COUNT, buffer, sum, counts);
        CHECK(got > 0);
        size_t at = 0, all = 0;
        for (int i = 0; i < COUNT; i++) {
            size_t left = SIZE - ranges[i].offset, want = ranges[i].bytes < left ? ranges[i].bytes : left;
            CHECK(counts[i] == want && !memcmp(buffer + at, truth + ranges[i].offset, want));
            at += ranges[i].bytes, all += want;
        }
        CHECK(counts[0] == 5 && (size_t)got == all);
    }
    CHECK(odafs_read_ranges(file, ranges, 2, buffer, 11, NULL) == 6);
    CHECK(odafs_read_ranges(file, NULL, 0, NULL, 0, NULL) == 0);
    FAILS(odafs_read_ranges(file, ranges, COUNT, buffer, sum - 1, NULL), EINVAL, "longer");
    FAILS(odafs_read_ranges(file, NULL, 3, buffer, sum, NULL), EINVAL, "ranges");

    odafs_buffer *registered = odafs_buffer_new(256 << 10);
    CHECK(registered && odafs_buffer_bytes(registered) == 256 << 10);
    odafs_range two[] = {{1000, 128 << 10}, {SIZE - 100, 64 << 10}};
    CHECK(odafs_read_ranges_buffer(file, two, 2, registered, 1, counts) == (128 << 10) + 100 && counts[1] == 100);
    CHECK(!memcmp((char *)odafs_buffer_data(registered) + 1, truth + 1000, 128 << 10));
    CHECK(odafs_pread_buffer(file, registered, 0, 256 << 10, 77) == 256 << 10);
    CHECK(!memcmp(odafs_buffer_data(registered), truth + 77, 256 << 10));
    FAILS(odafs_pread_buffer(file, registered, 1, 256 << 10, 0), EINVAL, "buffer");
    FAILS(odafs_read_ranges_buffer(file, two, 2, registered, (256 << 10) + 1, NULL), EINVAL, "buffer");
    odafs_buffer_free(registered);
    FAILS_NULL(odafs_buffer_new(0), EINVAL, "0 bytes");
    odafs_close(file);
    free(ranges), free(counts), free(buffer);
}

/* Ranges of several files, more than go together. */
static void gathering_files(const char *url)
{
    enum { COUNT = 1500 };
    odafs_file *data = odafs_open(client, "data", O_RDONLY, 0);
    odafs_file *small = odafs_open(client, "small", O_RDWR | O_CREAT | O_EXCL, 0640);
    CHECK(data && small && odafs_pwrite(small, truth + 77, 5000, 0) == 5000 && odafs_fsync(small) == 0);
    odafs_file_range *ranges = calloc(COUNT, sizeof *ranges);
    size_t *counts = calloc(COUNT, sizeof *counts), sum = 0;
    for (int i = 0; i < COUNT; i++) {
        ranges[i].file = i % 3 ? data : small;
        ranges[i].offset = (i * 7919ull) % (i % 3 ? SIZE : 5000);
        ranges[i].bytes = i % 130;
        sum += ranges[i].bytes;
    }
    unsigned char *buffer = malloc(sum);
    for (int round = 0; round < 3; round++) {
        memset(buffer, 0, sum);
        ssize_t got = odafs_read_files(ranges, COUNT, buffer, sum, counts);
        size_t at = 0, all = 0;
        for (int i = 0; i < COUNT; i++) {
            size_t left = (i % 3 ? SIZE : 5000) - ranges[i].offset, want = ranges[i].bytes < left ? ranges[i].bytes : left;
            CHECK(counts[i] == want && !memcmp(buffer + at, truth + ranges[i].offset + (i % 3 ? 0 : 77), want));
            at += ranges[i].bytes, all += want;
        }
        CHECK((size_t)got == all);
    }
    CHECK(odafs_read_files(ranges, COUNT, buffer, sum, NULL) > 0);
    CHECK(odafs_read_files(NULL, 0, NULL, 0, NULL) == 0);
    FAILS(odafs_read_files(ranges, COUNT, buffer, sum - 1, NULL), EINVAL, "longer");
    FAILS(odafs_read_files(NULL, 3, buffer, sum, NULL), EINVAL, "ranges");

    odafs_client *other = odafs_connect(url);
    odafs_file *stranger = odafs_open(other, "data", O_RDONLY, 0), *written = odafs_open(client, "small", O_WRONLY, 0);
    CHECK(other && stranger && written);
    ranges[1].file = stranger;
    FAILS(odafs_read_files(ranges, COUNT, buffer, sum, NULL), EINVAL, "different clients");
    ranges[1].file = written;
    FAILS(odafs_read_files(ranges, COUNT, buffer, sum, NULL), EBADF, "O_WRONLY");
    ranges[1].file = NULL;
    FAILS(odafs_read_files(ranges, COUNT, buffer, sum, NULL), EINVAL, "file");
    odafs_close(written), odafs_close(stranger), odafs_disconnect(other);
    CHECK(odafs_unlink(client, "small") == 0);
    odafs_close(data), odafs_close(small);
    free(ranges), free(counts), free(buffer);
}

static void writing(void)
{
    odafs_file *file = odafs_open(client, "made", O_RDWR | O_CREAT | O_EXCL, 0640);
    CHECK(file);
    CHECK(odafs_pwrite(file, truth, 10000, 0) == 10000 && odafs_pwrite(file, truth, 1, 20000) == 1);
    CHECK(odafs_fsync(file) == 0);
    char back[10000];
    CHECK(odafs_pread(file, back, sizeof back, 0) == sizeof back && !memcmp(back, truth, sizeof back));
    odafs_close(file);
    FAILS_NULL(odafs_open(client, "made", O_RDWR | O_CREAT | O_EXCL, 0640), EEXIST, "made");
    FAILS_NULL(odafs_open(client, "made", O_RDWR | O_APPEND, 0), EINVAL, "append");
    struct stat known;
    CHECK(odafs_stat(client, "made", &known) == 0 && known.st_size == 20001 && (known.st_mode & 07777) == 0640);
    CHECK(odafs_truncate(client, "made", 7) == 0 && odafs_chmod(client, "made", 0600) == 0);
    CHECK(odafs_stat(client, "made", &known) == 0 && known.st_size == 7 && (known.st_mode & 07777) == 0600);
    odafs_close(odafs_open(client, "made", O_WRONLY | O_TRUNC, 0));
    CHECK(odafs_stat(client, "made", &known) == 0 && known.st_size == 0);
    CHECK(odafs_mkdir(client, "room") == 0 && odafs_rename(client, "made", "room/moved") == 0);
    CHECK(odafs_link(client, "room/moved", "again") == 0 && odafs_symlink(client, "again", "link") == 0);
    char target[100];
    CHECK(odafs_readlink(client, "link", target, sizeof target) == 5 && !memcmp(target, "again", 5));
    CHECK(odafs_readlink(client, "link", target, 2) == 2);
    CHECK(odafs_lstat(client, "link", &known) == 0 && S_ISLNK(known.st_mode));
    FAILS(odafs_rmdir(client, "room"), ENOTEMPTY, "room");
    odafs_dir *dir = odafs_opendir(client, "room");
    odafs_entry entry;
    CHECK(dir && odafs_readdir(dir, &entry) == 1 && !strcmp(entry.name, "moved") && entry.has_stat);
    CHECK(odafs_readdir(dir, &entry) == 0);
    odafs_closedir(dir);
    CHECK(odafs_unlink(client, "room/moved") == 0 && odafs_rmdir(client, "room") == 0);
    CHECK(odafs_unlink(client, "again") == 0 && odafs_unlink(client, "link") == 0);
}

static void ring(void)
{
    enum { COUNT = 500, BYTES = 5000, ENTRIES = 64 };
    odafs_file *file = odafs_open(client, "data", O_RDWR, 0);
    odafs_ring *ring = odafs_ring_new(ENTRIES, 3);
    CHECK(file && ring);
    unsigned char *buffers = malloc(ENTRIES * BYTES);
    uint64_t at[ENTRIES];
    int free_slots[ENTRIES], free_count = ENTRIES, submitted = 0, completed = 0;
    for (int i = 0; i < ENTRIES; i++)
        free_slots[i] = i;
    while (completed < COUNT) {
        while (free_count > 0 && submitted < COUNT) {
            int slot = free_slots[--free_count];
            at[slot] = (submitted++ * 7919ull * 131) % (SIZE - BYTES);
            odafs_submission read = {ODAFS_OP_READ, file, buffers + slot * BYTES, BYTES, at[slot], slot};
            CHECK(odafs_ring_submit(ring, &read, 1) == 1);
        }
        struct pollfd poller = {odafs_ring_fd(ring), POLLIN, 0};
        CHECK(poll(&poller, 1, 30000) == 1);
        odafs_completion done[16];
        ssize_t count = odafs_ring_wait(ring, done, 16, 1, 0);
        CHECK(count > 0);
        for (ssize_t i = 0; i < count; i++, completed++) {
            int slot = done[i].user_data;
            CHECK(done[i].result == BYTES && !memcmp(buffers + slot * BYTES, truth + at[slot], BYTES));
            free_slots[free_count++] = slot;
        }
    }
    odafs_completion done[2];
    CHECK(odafs_ring_wait(ring, done, 2, 1, 10) == 0);
    struct pollfd poller = {odafs_ring_fd(ring), POLLIN, 0};
    CHECK(poll(&poller, 1, 0) == 0);

    odafs_submission two[] = {{ODAFS_OP_FSYNC, file, NULL, 0, 0, 1}, {9, file, NULL, 0, 0, 2}};
    CHECK(odafs_ring_submit(ring, two, 2) == 1);
    CHECK(odafs_ring_wait(ring, done, 2, 1, -1) == 1 && done[0].user_data == 1 && done[0].result == 0);
    FAILS(odafs_ring_submit(ring, two + 1, 1), EINVAL, "ODAFS_OP");
    FAILS(odafs_ring_wait(ring, done, 1, 2, 0), EINVAL, "completions");
    FAILS_NULL(odafs_ring_new(0, 0), EINVAL, "entries");

    /* A full ring, which is freed while it works. */
    odafs_submission many[ENTRIES + 1];
    for (int i = 0; i <= ENTRIES; i++)
        many[i] = (odafs_submission){ODAFS_OP_READ, file, buffers + i % ENTRIES * BYTES, BYTES, 0, i};
    CHECK(odafs_ring_submit(ring, many, ENTRIES + 1) == ENTRIES);
    FAILS(odafs_ring_submit(ring, many, 1), EAGAIN, "full");
    odafs_close(file);
    odafs_ring_free(ring);
    free(buffers);
}

static void *one_of_many(void *unused)
{
    (void)unused;
    reading();
    FAILS_NULL(odafs_open(client, "nothing of this name", O_RDONLY, 0), ENOENT, "nothing of this name");
    return NULL;
}

static void threads(void)
{
    pthread_t ids[6];
    for (int i = 0; i < 6; i++)
        CHECK(pthread_create(ids + i, NULL, one_of_many, NULL) == 0);
    for (int i = 0; i < 6; i++)
        CHECK(pthread_join(ids[i], NULL) == 0);
}

static void errors(const char *url)
{
    FAILS_NULL(odafs_connect(NULL), EINVAL, "NULL");
    FAILS_NULL(odafs_connect("http://here/"), EINVAL, "odafs+shm://");
    FAILS_NULL(odafs_connect("odafs+shm://%2Fnowhere%2Fat.all/"), ECONNREFUSED, "is it running");
    FAILS_NULL(odafs_connect("nfs://127.0.0.1:1/"), ECONNREFUSED, "is it running");
    odafs_options options;
    odafs_options_init(&options);
    options.route = 77;
    FAILS_NULL(odafs_connect_with(url, &options), EINVAL, "route");
    memset(&options, 0, sizeof options);
    FAILS_NULL(odafs_connect_with(url, &options), EINVAL, "odafs_options_init");
    odafs_options_init(&options);
    options.cache = ODAFS_CACHE_OFF;
    options.deadline_ms = 5000;
    odafs_client *other = odafs_connect_with(url, &options);
    CHECK(other && odafs_ping(other) == 0);
    odafs_file *file = odafs_open(other, "data", O_RDONLY, 0);
    odafs_disconnect(other);
    char byte;
    CHECK(odafs_pread(file, &byte, 1, 5) == 1 && (unsigned char)byte == truth[5]); /* it outlives its client */
    odafs_close(file);
    FAILS_NULL(odafs_open(client, NULL, O_RDONLY, 0), EINVAL, "path");
    FAILS_NULL(odafs_open(client, "", O_RDONLY, 0), EINVAL, "empty");
    FAILS_NULL(odafs_open(client, ".", O_RDONLY, 0), EISDIR, "directory");
    FAILS_NULL(odafs_opendir(client, "data"), ENOTDIR, "data");
    FAILS(odafs_unlink(client, "nothing"), ENOENT, "nothing");
    FAILS(odafs_mkdir(NULL, "x"), EINVAL, "NULL");
    odafs_close(NULL), odafs_disconnect(NULL), odafs_closedir(NULL), odafs_ring_free(NULL), odafs_buffer_free(NULL);
}

int main(int argc, char **argv)
{
    CHECK(argc == 3 && strlen(odafs_version()) > 0);
    char path[4096];
    snprintf(path, sizeof path, "%s/data", argv[2]);
    int local = open(path, O_RDONLY);
    truth = malloc(SIZE);
    CHECK(local >= 0 && read(local, truth, SIZE) == SIZE);
    close(local);
    client = odafs_connect(argv[1]);
    CHECK(client);
    reading();
    gathering();
    gathering_files(argv[1]);
    writing();
    ring();
    threads();
    errors(argv[1]);
    odafs_disconnect(client);
    free(truth);
    puts("all is well");
    return 0;
}
