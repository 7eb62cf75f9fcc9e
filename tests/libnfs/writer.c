/*
 * Writes pages by libnfs, one for each line "SLOT VERSION" on standard input, and answers "done" when the server has.
 * A page holds its slot and its version in every word (little-endian), as in tests/src/page.rs.
 *
 *   writer URL       of the file, which exists
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <nfsc/libnfs.h>

#define PAGE 4096

static void fail(struct nfs_context *nfs, const char *what)
{
    fprintf(stderr, "%s: %s\n", what, nfs ? nfs_get_error(nfs) : "no memory");
    exit(1);
}

int main(int argc, char **argv)
{
    struct nfs_context *nfs = nfs_init_context();
    struct nfs_url *url;
    struct nfsfh *file;
    unsigned char page[PAGE];
    uint32_t slot, version;

    if (argc != 2 || !nfs)
        fail(nfs, "usage: writer URL");
    url = nfs_parse_url_full(nfs, argv[1]);
    if (!url)
        fail(nfs, argv[1]);
    if (nfs_mount(nfs, url->server, url->path))
        fail(nfs, "mount");
    if (nfs_open(nfs, url->file, O_WRONLY, &file))
        fail(nfs, "open");
    while (scanf("%" SCNu32 " %" SCNu32, &slot, &version) == 2) {
        uint64_t word = (uint64_t)slot << 32 | version;
        uint64_t offset = (uint64_t)slot * PAGE;
        int written;

        for (int i = 0; i < PAGE; i++)
            page[i] = (unsigned char)(word >> 8 * (i % 8));
#ifdef LIBNFS_API_V2
        written = nfs_pwrite(nfs, file, page, PAGE, offset);
#else
        written = nfs_pwrite(nfs, file, offset, PAGE, page);
#endif
        if (written != PAGE)
            fail(nfs, "write");
        puts("done");
        fflush(stdout);
    }
    nfs_close(nfs, file);
    nfs_destroy_url(url);
    nfs_destroy_context(nfs);
    return 0;
}
