/* A ring of many reads on a server that answers no more fails them all together, by one deadline: stopped URL. */
#include <errno.h>
#include <fcntl.h>
#include <odafs.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    enum { READS = 64, BYTES = 5000 };
    static char buffers[READS][BYTES];
    odafs_submission submissions[READS] = {{0}};
    odafs_completion completions[READS];
    odafs_options options;
    if (argc != 2)
        return 2;
    odafs_options_init(&options);
    options.deadline_ms = 500;
    options.cache = ODAFS_CACHE_OFF;
    options.route = ODAFS_ROUTE_RPC;
    /* The deadline is for the reads: a machine that stands still for as long is no failure. */
    odafs_client *client = NULL;
    odafs_file *file = NULL;
    for (int tries = 0; !client && tries < 120; tries++)
        client = odafs_connect_with(argv[1], &options);
    for (int tries = 0; client && !file && tries < 120; tries++)
        file = odafs_open(client, "data", O_RDONLY, 0);
    odafs_ring *ring = odafs_ring_new(READS, 1);
    if (!file || !ring)
        return 4;
    puts("open");
    fflush(stdout);
    if (getchar() == EOF)
        return 5;
    for (int i = 0; i < READS; i++)
        submissions[i] = (odafs_submission){
            .op = ODAFS_OP_READ, .file = file, .buffer = buffers[i], .bytes = BYTES, .offset = (uint64_t)i * BYTES};
    if (odafs_ring_submit(ring, submissions, READS) != READS)
        return 6;
    /* One after the other they would take 32 s. */
    ssize_t failed = odafs_ring_wait(ring, completions, READS, READS, 15000);
    if (failed != READS) {
        fprintf(stderr, "%zd of %d completed\n", failed, READS);
        return 7;
    }
    for (int i = 0; i < READS; i++)
        if (completions[i].result != -ETIMEDOUT && completions[i].result != -ECONNABORTED) {
            fprintf(stderr, "read %d: %lld\n", i, (long long)completions[i].result);
            return 8;
        }
    odafs_ring_free(ring);
    odafs_close(file);
    return 0;
}
