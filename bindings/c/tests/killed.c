/* Reads until the server is gone, says so, and reads on when it is there again: killed URL DIRECTORY. */
#include <errno.h>
#include <fcntl.h>
#include <odafs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void say(const char *what)
{
    puts(what);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    enum { PIECE = 3000, PIECES = 300, TRIES = 240 };
    static char truth[PIECE * PIECES], buffer[PIECE];
    char path[4096];
    if (argc != 3)
        return 2;
    snprintf(path, sizeof path, "%s/data", argv[2]);
    int local = open(path, O_RDONLY);
    if (local < 0 || read(local, truth, sizeof truth) != sizeof truth)
        return 3;
    odafs_options options;
    odafs_options_init(&options);
    options.deadline_ms = 500;
    options.cache = ODAFS_CACHE_OFF;
    /* The deadline is for the reads: a machine that stands still for as long is no failure. */
    odafs_client *client = NULL;
    odafs_file *file = NULL;
    for (int tries = 0; !client && tries < TRIES; tries++)
        client = odafs_connect_with(argv[1], &options);
    for (int tries = 0; client && !file && tries < TRIES; tries++)
        file = odafs_open(client, "data", O_RDONLY, 0);
    if (!file)
        return 4;
    int reading = 0, failures = 0, again = 0;
    for (long i = 0; again < PIECES; i++) {
        long at = i % PIECES * PIECE;
        ssize_t got = odafs_pread(file, buffer, PIECE, at);
        if (got >= 0) {
            if (got != PIECE || memcmp(buffer, truth + at, PIECE))
                return 5;
            again += failures > 0;
            if (i >= 2 * PIECES && !reading) {
                reading = 1;
                say("reading");
            }
            continue;
        }
        if (errno != ETIMEDOUT && errno != ECONNABORTED) {
            fprintf(stderr, "errno %d: %s\n", errno, odafs_last_error());
            return 6;
        }
        if (!reading)
            continue;
        if (failures++ == 0)
            say("failed by its deadline");
        if (failures == TRIES)
            return 7;
    }
    say("reading again");
    odafs_close(file);
    odafs_disconnect(client);
    return 0;
}
