/* Reads a file, some ranges of it in one call, and lists the directory.
 *
 *   cc read.c $(pkg-config --cflags --libs odafs) -o read && ./read odafs+shm:/// data.bin
 */
#include <fcntl.h>
#include <odafs.h>
#include <stdio.h>

static int failed(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, odafs_last_error());
    return 1;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: read URL FILE\n");
        return 2;
    }
    odafs_client *client = odafs_connect(argv[1]);
    if (!client)
        return failed(argv[1]);

    odafs_file *file = odafs_open(client, argv[2], O_RDONLY, 0);
    if (!file)
        return failed(argv[2]);
    char page[4096];
    ssize_t bytes = odafs_pread(file, page, sizeof page, 0);
    if (bytes < 0)
        return failed(argv[2]);
    printf("%zd bytes\n", bytes);

    /* Three ranges in one call, one behind the other in the buffer. */
    odafs_range ranges[] = {{0, 16}, {4096, 16}, {8192, 16}};
    size_t counts[3];
    bytes = odafs_read_ranges(file, ranges, 3, page, sizeof page, counts);
    if (bytes < 0)
        return failed(argv[2]);
    printf("%zd bytes of 3 ranges: %zu, %zu, %zu\n", bytes, counts[0], counts[1], counts[2]);
    odafs_close(file);

    odafs_dir *dir = odafs_opendir(client, ".");
    odafs_entry entry;
    int more = dir ? 1 : -1;
    while (more > 0 && (more = odafs_readdir(dir, &entry)) > 0)
        printf("%10lld %s\n", entry.has_stat ? (long long)entry.stat.st_size : -1, entry.name);
    odafs_closedir(dir);
    odafs_disconnect(client);
    return more < 0 ? failed("list") : 0;
}
