// Copies a file on the server: reads and writes are under way together, on a ring.
//
//   c++ -std=c++17 copy.cpp $(pkg-config --cflags --libs odafs) -o copy && ./copy odafs+shm:/// from to
#include <cstdio>
#include <fcntl.h>
#include <memory>
#include <odafs.h>
#include <stdexcept>
#include <string>
#include <vector>

template <typename T, void (*close)(T *)> struct Closes {
    void operator()(T *handle) const { close(handle); }
};
using Client = std::unique_ptr<odafs_client, Closes<odafs_client, odafs_disconnect>>;
using File = std::unique_ptr<odafs_file, Closes<odafs_file, odafs_close>>;
using Ring = std::unique_ptr<odafs_ring, Closes<odafs_ring, odafs_ring_free>>;

template <typename T> T checked(T answer, const std::string &what)
{
    bool failed;
    if constexpr (std::is_pointer_v<T>)
        failed = answer == nullptr;
    else
        failed = answer < 0;
    if (failed)
        throw std::runtime_error(what + ": " + odafs_last_error());
    return answer;
}

static void copy(const char *url, const std::string &from, const std::string &to)
{
    constexpr size_t piece = 256 << 10, depth = 8;
    Client client(checked(odafs_connect(url), url));
    File source(checked(odafs_open(client.get(), from.c_str(), O_RDONLY, 0), from));
    // It appears under its name when all of it is there.
    const std::string part = to + ".part";
    File target(checked(odafs_open(client.get(), part.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644), part));
    struct stat known;
    checked(odafs_fstat(source.get(), &known), from);
    const uint64_t size = known.st_size;

    std::vector<std::vector<char>> buffers(depth, std::vector<char>(piece));
    Ring ring(checked(odafs_ring_new(depth, 0), "ring"));
    std::vector<uint64_t> offsets(depth);
    std::vector<bool> reading(depth);
    size_t under_way = 0;
    uint64_t next = 0;
    auto read_next = [&](size_t slot) {
        if (next >= size)
            return;
        offsets[slot] = next;
        reading[slot] = true;
        next += piece;
        odafs_submission read{ODAFS_OP_READ, source.get(), buffers[slot].data(), piece, offsets[slot], slot};
        checked(odafs_ring_submit(ring.get(), &read, 1), from);
        under_way++;
    };
    for (size_t slot = 0; slot < depth; slot++)
        read_next(slot);
    while (under_way > 0) {
        odafs_completion done;
        checked(odafs_ring_wait(ring.get(), &done, 1, 1, -1), "ring");
        under_way--;
        const size_t slot = done.user_data;
        checked(done.result, reading[slot] ? from : to);
        if (!reading[slot]) {
            read_next(slot);
            continue;
        }
        reading[slot] = false;
        odafs_submission write{ODAFS_OP_WRITE, target.get(), buffers[slot].data(), size_t(done.result), offsets[slot], slot};
        checked(odafs_ring_submit(ring.get(), &write, 1), to);
        under_way++;
    }
    checked(odafs_fsync(target.get()), to);
    checked(odafs_rename(client.get(), part.c_str(), to.c_str()), to);
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        std::fprintf(stderr, "usage: copy URL FROM TO\n");
        return 2;
    }
    try {
        copy(argv[1], argv[2], argv[3]);
    } catch (const std::exception &failed) {
        std::fprintf(stderr, "%s\n", failed.what());
        return 1;
    }
    return 0;
}
