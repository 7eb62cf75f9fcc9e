/*
 * libodafs: the client of ODAFS, a file server whose page cache its clients read directly.
 *
 * Functions that return int or ssize_t return -1, those that return a pointer NULL, when they fail; errno says how, and
 * odafs_last_error() tells it in words, with the remedy. Any number of threads may use a client, a file or a ring at a time;
 * a directory is for one thread at a time. A NULL handle is EINVAL; one that was closed may not be used. After fork() the
 * child may use nothing that was made before. "Safety" says what the caller has to see to.
 */

#ifndef ODAFS_H
#define ODAFS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

/*
 The route of reads: the cheapest one (the default).
 */
#define ODAFS_ROUTE_POLICY 0

/*
 Calls only.
 */
#define ODAFS_ROUTE_RPC 1

/*
 Guarded direct reads wherever there is a reference, calls otherwise.
 */
#define ODAFS_ROUTE_GUARDED 2

/*
 One-sided direct reads wherever there is a reference, calls otherwise. Connecting fails if the server does not grant
 them.
 */
#define ODAFS_ROUTE_ONE_SIDED 3

/*
 This process may keep pages, which are checked when a file is opened, as NFS clients do (the default).
 */
#define ODAFS_CACHE_CLOSE_TO_OPEN 0

/*
 Every read sees the server.
 */
#define ODAFS_CACHE_OFF 1

/*
 A thread polls for 50 us, then sleeps (the default).
 */
#define ODAFS_WAIT_ADAPTIVE 0

/*
 A thread polls until the answer is there. This has the shortest latency and takes a whole processor.
 */
#define ODAFS_WAIT_SPIN 1

/*
 A thread sleeps at once.
 */
#define ODAFS_WAIT_SLEEP 2

/*
 Read `bytes` bytes at `offset` to `buffer`, as odafs_pread().
 */
#define ODAFS_OP_READ 0

/*
 Write `bytes` bytes at `offset` from `buffer`, as odafs_pwrite().
 */
#define ODAFS_OP_WRITE 1

/*
 Bring everything written before to stable storage, as odafs_fsync().
 */
#define ODAFS_OP_FSYNC 2

/*
 Registered memory. Over RDMA (odafs://), the server writes data of reads directly into it, and nothing is copied
 here. The memory belongs to no connection. Only one read at a time may use it.
 */
typedef struct odafs_buffer odafs_buffer;

/*
 A connection to one export of a server. Any number of threads may use it at the same time. They share its caches.
 */
typedef struct odafs_client odafs_client;

/*
 A directory listing. Only one thread at a time may use it.
 */
typedef struct odafs_dir odafs_dir;

/*
 An open file. Any number of threads may use it at the same time.
 */
typedef struct odafs_file odafs_file;

/*
 A queue of submissions, a queue of completions, and threads between them. Any number of threads may use it at the
 same time.
 */
typedef struct odafs_ring odafs_ring;

/*
 Options of a connection. Call odafs_options_init() first, then change what you need. 0 and NULL mean the default.
 */
typedef struct odafs_options {
  /*
   Size of this structure in bytes when the program was compiled. odafs_options_init() sets it.
   */
  size_t size;
  /*
   How long any one call may take in milliseconds, including reconnecting. 0: 30,000.
   */
  uint64_t deadline_ms;
  /*
   Memory in bytes that the data cache and the directory of references share. 0: 64 MiB.
   */
  uint64_t memory_bytes;
  /*
   ODAFS_ROUTE_...
   */
  uint32_t route;
  /*
   ODAFS_CACHE_...
   */
  uint32_t cache;
  /*
   ODAFS_WAIT_...
   */
  uint32_t wait;
  /*
   The most connections of each kind. 0: 8.
   */
  uint32_t lanes;
  /*
   32 bytes, or NULL: this client's X25519 secret key, for servers that admit clients by key.
   */
  const uint8_t *identity;
  /*
   32 bytes, or NULL: the server's X25519 public key. A server with another key is refused.
   */
  const uint8_t *server_key;
} odafs_options;

/*
 One name in a directory.
 */
typedef struct odafs_entry {
  /*
   The name, without the directory. It is valid until the next call with the same odafs_dir.
   */
  const char *name;
  /*
   1 if `stat` is set, 0 if the file has gone meanwhile.
   */
  int has_stat;
  /*
   The attributes (of a symbolic link itself, not of its target).
   */
  struct stat stat;
} odafs_entry;

/*
 A part of a file.
 */
typedef struct odafs_range {
  /*
   First byte, as an offset in the file.
   */
  uint64_t offset;
  /*
   Length in bytes.
   */
  size_t bytes;
} odafs_range;

/*
 A part of one of several files.
 */
typedef struct odafs_file_range {
  /*
   The file.
   */
  const struct odafs_file *file;
  /*
   First byte, as an offset in the file.
   */
  uint64_t offset;
  /*
   Length in bytes.
   */
  size_t bytes;
} odafs_file_range;

/*
 A request.
 */
typedef struct odafs_submission {
  /*
   ODAFS_OP_...
   */
  uint32_t op;
  /*
   The file. It may be closed after the submission.
   */
  const struct odafs_file *file;
  /*
   The bytes. They belong to the ring until the submission has completed.
   */
  void *buffer;
  /*
   Length in bytes.
   */
  size_t bytes;
  /*
   First byte, as an offset in the file.
   */
  uint64_t offset;
  /*
   A value of the program's choice, which the completion contains again.
   */
  uint64_t user_data;
} odafs_submission;

/*
 The result of a submission.
 */
typedef struct odafs_completion {
  /*
   The value of the submission.
   */
  uint64_t user_data;
  /*
   Bytes read or written, 0 for ODAFS_OP_FSYNC; or -errno.
   */
  int64_t result;
} odafs_completion;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Zeroed memory of `bytes` bytes. Returns NULL on failure. EINVAL: `bytes` is 0. ENOMEM: there is no memory left.
 */
struct odafs_buffer *odafs_buffer_new(size_t bytes);

/*
 The bytes. The pointer is valid until the next read into the buffer begins; ask again after that. Returns NULL with
 EBUSY while another thread reads into the buffer.

 Safety:
 `buffer` is NULL or a buffer.
 */
void *odafs_buffer_data(const struct odafs_buffer *buffer);

/*
 The length in bytes, or 0 if `buffer` is NULL.

 Safety:
 `buffer` is NULL or a buffer.
 */
size_t odafs_buffer_bytes(const struct odafs_buffer *buffer);

/*
 Frees the memory. If `buffer` is NULL, does nothing.

 Safety:
 `buffer` is NULL, or came from odafs_buffer_new() and neither it nor its bytes are used again.
 */
void odafs_buffer_free(struct odafs_buffer *buffer);

/*
 As odafs_pread(), into the bytes from `from` to `from + bytes` of registered memory. EINVAL: these are out of
 bounds.

 Safety:
 `file` is NULL or open; `buffer` is NULL or a buffer whose bytes no other thread uses during the call.
 */
ssize_t odafs_pread_buffer(const struct odafs_file *file,
                           const struct odafs_buffer *buffer,
                           size_t from,
                           size_t bytes,
                           uint64_t offset);

/*
 The version of the library, such as "0.1.0".
 */
const char *odafs_version(void);

/*
 Sets all of `options` to the defaults.

 Safety:
 `options` is NULL, or points to an odafs_options.
 */
void odafs_options_init(struct odafs_options *options);

/*
 Connects with the default options. Returns NULL on failure. EINVAL: the URL is malformed. ENOENT or ECONNREFUSED:
 nothing answers there, or no export contains the path. EACCES: the server does not admit this client.

 Safety:
 `url` is NULL or a text that ends with a NUL.
 */
struct odafs_client *odafs_connect(const char *url);

/*
 Connects. `options` may be NULL.

 Safety:
 `url` is NULL or a text that ends with a NUL; `options` is NULL or was set by odafs_options_init(), and its keys are
 NULL or point to 32 bytes each.
 */
struct odafs_client *odafs_connect_with(const char *url, const struct odafs_options *options);

/*
 Closes a connection. Its files and directories stay usable until they are closed. If `client` is NULL, does nothing.

 Safety:
 `client` is NULL, or came from odafs_connect() or odafs_connect_with() and is not used again.
 */
void odafs_disconnect(struct odafs_client *client);

/*
 Makes one call that does nothing. Returns 0 if the server answers.

 Safety:
 `client` is NULL or connected.
 */
int odafs_ping(const struct odafs_client *client);

/*
 Begins a directory listing. Returns NULL on failure.

 Safety:
 `client` is NULL or connected; `path` is NULL or a text that ends with a NUL.
 */
struct odafs_dir *odafs_opendir(const struct odafs_client *client, const char *path);

/*
 Gets the next entry, without "." and "..". Returns 1 if there is one, 0 at the end, -1 on failure.

 Safety:
 `dir` is NULL or open, and no other thread uses it; `entry` is NULL or points to an odafs_entry.
 */
int odafs_readdir(struct odafs_dir *dir, struct odafs_entry *entry);

/*
 Ends a listing. If `dir` is NULL, does nothing.

 Safety:
 `dir` is NULL, or came from odafs_opendir() and is not used again.
 */
void odafs_closedir(struct odafs_dir *dir);

/*
 The text for the last call of this thread that failed: what is wrong, and what to do. It is never NULL, and does not
 change until a call of this thread fails again. As with errno, it is meaningful only right after a failure.
 */
const char *odafs_last_error(void);

/*
 Opens or creates a file. `flags` are those of open(2): O_RDONLY, O_WRONLY or O_RDWR, with O_CREAT, O_EXCL and
 O_TRUNC. O_CLOEXEC and O_LARGEFILE have no effect. O_APPEND and all others are EINVAL. `mode` is the permission bits
 of a new file (no umask is applied). An absolute path begins with the export's name, as in a URL; a relative one
 starts at the URL's path. Returns NULL on failure.

 Safety:
 `client` is NULL or connected; `path` is NULL or a text that ends with a NUL.
 */
struct odafs_file *odafs_open(const struct odafs_client *client, const char *path, int flags, uint32_t mode);

/*
 Closes a file. Written data that was not synced stays with the server. To be sure that it is on stable storage, call
 odafs_fsync() first. If `file` is NULL, does nothing.

 Safety:
 `file` is NULL, or came from odafs_open() and is not used again.
 */
void odafs_close(struct odafs_file *file);

/*
 Reads up to `bytes` bytes from `offset` on. Returns how many were read: fewer than asked for only at the end of the
 file, and 0 behind it. Returns -1 on failure; the buffer may have been written to then, but never is after the call.

 Safety:
 `file` is NULL or open; `buffer` has room for `bytes`, and no other thread uses that room during the call.
 */
ssize_t odafs_pread(const struct odafs_file *file, void *buffer, size_t bytes, uint64_t offset);

/*
 Writes all of `bytes` bytes at `offset`, and returns `bytes`. Until odafs_fsync() has returned 0, a crash of the
 server may lose them. Returns -1 on failure: some of the bytes may have been written, and after ETIMEDOUT or
 ECONNABORTED may still be.

 Safety:
 `file` is NULL or open; `buffer` holds `bytes` bytes, and no other thread changes them during the call.
 */
ssize_t odafs_pwrite(const struct odafs_file *file, const void *buffer, size_t bytes, uint64_t offset);

/*
 Brings everything that was written to the file through this client to the server's stable storage. Sends again what
 a restart of the server lost. Returns -1 with EIO if unsynced bytes were lost.

 Safety:
 `file` is NULL or open.
 */
int odafs_fsync(const struct odafs_file *file);

/*
 The present attributes of the file. `st_dev` is the server's number of its file system.

 Safety:
 `file` is NULL or open; `stat` is NULL or points to a struct stat.
 */
int odafs_fstat(const struct odafs_file *file, struct stat *stat);

/*
 Checks what is cached of the file against the server, as opening it does. Returns 1 if all of it is still valid,
 otherwise 0.

 Safety:
 `file` is NULL or open.
 */
int odafs_revalidate(const struct odafs_file *file);

/*
 Reads many ranges of a file in one call, all in flight together. The buffer gets one range after the other: range i
 begins where the lengths of those before it end, even if one of them was read short. Ranges may overlap and have any
 order. `counts` is NULL, or has room for `count` numbers: how many bytes of each range were read, fewer than asked
 for only at the end of the file. Returns the total, or -1 on failure: the error is that of the first range that
 failed, and the others may or may not have been read.

 Safety:
 `file` is NULL or open; `ranges` points to `count` ranges; `buffer` has room for `bytes`, and no other thread uses that
 room during the call; `counts` is NULL or has room for `count` numbers.
 */
ssize_t odafs_read_ranges(const struct odafs_file *file,
                          const struct odafs_range *ranges,
                          size_t count,
                          void *buffer,
                          size_t bytes,
                          size_t *counts);

/*
 As odafs_read_ranges(), of several files that one client has opened. The reads of all files are in flight together.
 Ranges of one file should follow one another, because a route is chosen for each such row of them.

 Safety:
 `ranges` points to `count` ranges, whose files are NULL or open; `buffer` has room for `bytes`, and no other thread uses
 that room during the call; `counts` is NULL or has room for `count` numbers.
 */
ssize_t odafs_read_files(const struct odafs_file_range *ranges,
                         size_t count,
                         void *buffer,
                         size_t bytes,
                         size_t *counts);

/*
 As odafs_read_ranges(), into registered memory from its byte `from` on. Over RDMA (odafs://), the server writes
 ranges of 64 KiB or more there directly, and they are not copied here.

 Safety:
 `file` is NULL or open; `ranges` points to `count` ranges; `buffer` is NULL or a buffer whose bytes no other thread uses
 during the call; `counts` is NULL or has room for `count` numbers.
 */
ssize_t odafs_read_ranges_buffer(const struct odafs_file *file,
                                 const struct odafs_range *ranges,
                                 size_t count,
                                 const struct odafs_buffer *buffer,
                                 size_t from,
                                 size_t *counts);

/*
 Says that these ranges will be read soon. If direct reads are worthwhile, one call fetches the references of their
 pages. No data is read. Returns how many references came, or -1 on failure, which does not affect later reads.

 Safety:
 `file` is NULL or open; `ranges` points to `count` ranges.
 */
ssize_t odafs_will_need(const struct odafs_file *file, const struct odafs_range *ranges, size_t count);

/*
 The attributes of a file. Symbolic links are followed.

 Safety:
 `client` is NULL or connected; `path` is NULL or a text that ends with a NUL; `stat` is NULL or points to a struct stat.
 */
int odafs_stat(const struct odafs_client *client,
               const char *path,
               struct stat *stat);

/*
 The attributes of a file, or of a symbolic link itself.

 Safety:
 As odafs_stat().
 */
int odafs_lstat(const struct odafs_client *client, const char *path, struct stat *stat);

/*
 Creates a directory (mode 0755).

 Safety:
 `client` is NULL or connected; `path` is NULL or a text that ends with a NUL.
 */
int odafs_mkdir(const struct odafs_client *client, const char *path);

/*
 Removes a file or a symbolic link.

 Safety:
 As odafs_mkdir().
 */
int odafs_unlink(const struct odafs_client *client, const char *path);

/*
 Removes an empty directory.

 Safety:
 As odafs_mkdir().
 */
int odafs_rmdir(const struct odafs_client *client, const char *path);

/*
 Renames a file or directory. Whatever has the new name is replaced, in one step.

 Safety:
 `client` is NULL or connected; both paths are NULL or texts that end with a NUL.
 */
int odafs_rename(const struct odafs_client *client, const char *from, const char *to);

/*
 Gives the file `existing` another name, `path` (a hard link).

 Safety:
 As odafs_rename().
 */
int odafs_link(const struct odafs_client *client, const char *existing, const char *path);

/*
 Creates a symbolic link at `path` that points to `target`.

 Safety:
 As odafs_rename().
 */
int odafs_symlink(const struct odafs_client *client, const char *target, const char *path);

/*
 The target of a symbolic link: at most `bytes` bytes, without a NUL at the end, as readlink(2) does. Returns how
 many.

 Safety:
 As odafs_mkdir(); `buffer` has room for `bytes`.
 */
ssize_t odafs_readlink(const struct odafs_client *client, const char *path, char *buffer, size_t bytes);

/*
 Sets the size of a file: extends it with zeros, or truncates it.

 Safety:
 As odafs_mkdir().
 */
int odafs_truncate(const struct odafs_client *client, const char *path, uint64_t bytes);

/*
 Sets the permission bits of a file.

 Safety:
 As odafs_mkdir().
 */
int odafs_chmod(const struct odafs_client *client, const char *path, uint32_t mode);

/*
 Creates a ring for at most `entries` submissions whose completions have not been fetched, with this many `threads`
 (0: 4). Returns NULL on failure.
 */
struct odafs_ring *odafs_ring_new(uint32_t entries, uint32_t threads);

/*
 Waits until all submissions that have begun are done, cancels the others (ECANCELED: they are not done, and nobody
 is told), drops completions that nobody has fetched, and frees the ring. To have all of them done, fetch the
 completions first. If `ring` is NULL, does nothing.

 Safety:
 `ring` is NULL, or came from odafs_ring_new() and is not used again.
 */
void odafs_ring_free(struct odafs_ring *ring);

/*
 A file descriptor that is readable while there are completions, for poll(2) and epoll(7). It belongs to the ring:
 neither read from it nor close it.

 Safety:
 `ring` is NULL or a ring.
 */
int odafs_ring_fd(const struct odafs_ring *ring);

/*
 Submits requests. The calling thread does reads that need no waiting at once; the ring's threads do all others, in
 any order. Up to 64 reads of 256 KiB in all that are submitted together, of any files of one client, are in flight
 together, on one of the threads. Returns how many were accepted, from the first on. That is fewer than `count` if the
 ring is full (fetch completions, then submit the rest) or if a later one is invalid. Returns -1 if the first is invalid
 or has no room (EAGAIN); then none was accepted.

 Safety:
 `ring` is NULL or a ring; `submissions` points to `count` submissions, whose files are NULL or open and whose
 buffers have room for their bytes. Until a submission has completed, nobody uses its buffer (for writes: nobody
 changes it).
 */
ssize_t odafs_ring_submit(const struct odafs_ring *ring, const struct odafs_submission *submissions, size_t count);

/*
 Fetches completions: waits until `min` are there or `timeout_ms` has passed (-1: for ever), then returns up to
 `max`. Returns how many, or 0 if none came in time. If one of them failed, odafs_last_error() describes the last one
 that did.

 Safety:
 `ring` is NULL or a ring; `completions` has room for `max`.
 */
ssize_t odafs_ring_wait(const struct odafs_ring *ring,
                        struct odafs_completion *completions,
                        size_t max,
                        size_t min,
                        int timeout_ms);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ODAFS_H */
