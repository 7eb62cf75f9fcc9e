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
 Which routes a read may take: the one that costs least (the default).
 */
#define ODAFS_ROUTE_POLICY 0

/*
 Calls only.
 */
#define ODAFS_ROUTE_RPC 1

/*
 Guarded direct reads where there is a reference, calls otherwise.
 */
#define ODAFS_ROUTE_GUARDED 2

/*
 One-sided direct reads where there is a reference, calls otherwise. Connecting fails where the server does not grant them.
 */
#define ODAFS_ROUTE_ONE_SIDED 3

/*
 Pages may be kept in this process, and are checked when a file is opened, as NFS clients do (the default).
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
 A thread polls until the answer is there: the shortest latency, for a whole processor.
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
 Write them, as odafs_pwrite().
 */
#define ODAFS_OP_WRITE 1

/*
 Bring all that was written before to stable storage, as odafs_fsync().
 */
#define ODAFS_OP_FSYNC 2

/*
 Registered memory: what is read into it over RDMA (odafs://) is written there by the server, and not copied here. It
 belongs to no connection. One read at a time may use it.
 */
typedef struct odafs_buffer odafs_buffer;

/*
 A connection to one export of a server. Any number of threads may use one at a time, and share its caches.
 */
typedef struct odafs_client odafs_client;

/*
 A directory that is being listed. One thread at a time may use it.
 */
typedef struct odafs_dir odafs_dir;

/*
 An open file. Any number of threads may use one at a time.
 */
typedef struct odafs_file odafs_file;

/*
 A queue of submissions and one of completions, and threads between them. Any number of threads may use it at a time.
 */
typedef struct odafs_ring odafs_ring;

/*
 Options of a connection. Fill it with odafs_options_init() first, then set what is to be another. 0 and NULL are the
 defaults.
 */
typedef struct odafs_options {
  /*
   Length of this structure in bytes, as the program was compiled; odafs_options_init() sets it.
   */
  size_t size;
  /*
   How long any one call may take in milliseconds, reconnecting included; 0 is 30,000.
   */
  uint64_t deadline_ms;
  /*
   Bytes that the data cache and the directory of references share; 0 is 64 MiB.
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
   Connections of each kind, at most; 0 is 8.
   */
  uint32_t lanes;
  /*
   32 bytes, or NULL: our X25519 secret key, for servers that admit clients by key.
   */
  const uint8_t *identity;
  /*
   32 bytes, or NULL: the server's X25519 public key. A server with another one is refused.
   */
  const uint8_t *server_key;
} odafs_options;

/*
 One name in a directory.
 */
typedef struct odafs_entry {
  /*
   The name, without the directory: there until the next call with the same odafs_dir.
   */
  const char *name;
  /*
   1 if `stat` is known, 0 if the file went away meanwhile.
   */
  int has_stat;
  /*
   What is known about it (not about a link's target).
   */
  struct stat stat;
} odafs_entry;

/*
 A part of a file.
 */
typedef struct odafs_range {
  /*
   First byte, in the file.
   */
  uint64_t offset;
  /*
   Length in bytes.
   */
  size_t bytes;
} odafs_range;

/*
 Something to do.
 */
typedef struct odafs_submission {
  /*
   ODAFS_OP_...
   */
  uint32_t op;
  /*
   The file. It may be closed once this is submitted.
   */
  const struct odafs_file *file;
  /*
   The bytes; they belong to the ring until this has completed.
   */
  void *buffer;
  /*
   How many.
   */
  size_t bytes;
  /*
   First byte, in the file.
   */
  uint64_t offset;
  /*
   Whatever the program likes: the completion says it again.
   */
  uint64_t user_data;
} odafs_submission;

/*
 Something that was done.
 */
typedef struct odafs_completion {
  /*
   That of the submission.
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
 Zeroed memory of `bytes` bytes. NULL on failure: EINVAL, `bytes` is 0; ENOMEM.
 */
struct odafs_buffer *odafs_buffer_new(size_t bytes);

/*
 Its bytes. The pointer holds until the next read into the buffer begins: ask again after it. NULL with EBUSY: another
 thread reads into it.

 Safety:
 `buffer` is NULL or a buffer.
 */
void *odafs_buffer_data(const struct odafs_buffer *buffer);

/*
 Its length in bytes; 0 of NULL.

 Safety:
 `buffer` is NULL or a buffer.
 */
size_t odafs_buffer_bytes(const struct odafs_buffer *buffer);

/*
 Frees the memory. NULL is nothing to do.

 Safety:
 `buffer` is NULL, or came from odafs_buffer_new() and neither it nor its bytes are used again.
 */
void odafs_buffer_free(struct odafs_buffer *buffer);

/*
 As odafs_pread(), into bytes `from` to `from + bytes` of registered memory. EINVAL if those are beyond it.

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
 Connects with the default options. NULL on failure: EINVAL, the URL is none; ENOENT or ECONNREFUSED, nothing answers
 there, or no export holds the path; EACCES, the server does not let us in.

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
 Ends the use of a connection. Its files and directories stay usable until they are closed. NULL is nothing to do.

 Safety:
 `client` is NULL, or came from odafs_connect() or odafs_connect_with() and is not used again.
 */
void odafs_disconnect(struct odafs_client *client);

/*
 One call that does nothing: 0 if the server answers.

 Safety:
 `client` is NULL or connected.
 */
int odafs_ping(const struct odafs_client *client);

/*
 Begins to list a directory. NULL on failure.

 Safety:
 `client` is NULL or connected; `path` is NULL or a text that ends with a NUL.
 */
struct odafs_dir *odafs_opendir(const struct odafs_client *client, const char *path);

/*
 The next entry, without "." and "..": 1 if there is one, 0 at the end, -1 on failure.

 Safety:
 `dir` is NULL or open, and no other thread uses it; `entry` is NULL or points to an odafs_entry.
 */
int odafs_readdir(struct odafs_dir *dir, struct odafs_entry *entry);

/*
 Ends a listing. NULL is nothing to do.

 Safety:
 `dir` is NULL, or came from odafs_opendir() and is not used again.
 */
void odafs_closedir(struct odafs_dir *dir);

/*
 What the last call of this thread that failed says of it: what is wrong, and what to do. It is never NULL, and stays as
 it is until a call of this thread fails again. As with errno, what the text says holds only right after a failure.
 */
const char *odafs_last_error(void);

/*
 Opens a file, or makes one. `flags` are those of open(2): O_RDONLY, O_WRONLY or O_RDWR, with O_CREAT, O_EXCL and O_TRUNC;
 O_CLOEXEC and O_LARGEFILE mean nothing; O_APPEND and all others are EINVAL. `mode` is the permission bits of a new file
 (no umask is applied). An absolute path begins with the export's name, as in a URL; a relative one starts at the URL's
 path. NULL on failure.

 Safety:
 `client` is NULL or connected; `path` is NULL or a text that ends with a NUL.
 */
struct odafs_file *odafs_open(const struct odafs_client *client,
                              const char *path,
                              int flags,
                              uint32_t mode);

/*
 Closes a file. What was written and not synced stays with the server; call odafs_fsync() first to know that it is on
 stable storage. NULL is nothing to do.

 Safety:
 `file` is NULL, or came from odafs_open() and is not used again.
 */
void odafs_close(struct odafs_file *file);

/*
 Reads up to `bytes` bytes from `offset` on and returns how many came: fewer than asked for only at the end of the file, 0
 behind it. -1 on failure; the buffer may have been written to then, but never is after the call.

 Safety:
 `file` is NULL or open; `buffer` has room for `bytes`, and no other thread uses that room during the call.
 */
ssize_t odafs_pread(const struct odafs_file *file,
                    void *buffer,
                    size_t bytes,
                    uint64_t offset);

/*
 Writes all of `bytes` bytes at `offset` and returns `bytes`. Until odafs_fsync() has returned 0 a crash of the server may
 lose them. -1 on failure: some of them may have been written, and after ETIMEDOUT or ECONNABORTED may be yet.

 Safety:
 `file` is NULL or open; `buffer` holds `bytes` bytes, and no other thread changes them during the call.
 */
ssize_t odafs_pwrite(const struct odafs_file *file,
                     const void *buffer,
                     size_t bytes,
                     uint64_t offset);

/*
 Brings all that was written through this client to the file to the server's stable storage; what a restart of the server
 lost is sent again. -1 with EIO: unsynced bytes were lost.

 Safety:
 `file` is NULL or open.
 */
int odafs_fsync(const struct odafs_file *file);

/*
 What is known about the file, fetched now. `st_dev` is the server's number of its file system.

 Safety:
 `file` is NULL or open; `stat` is NULL or points to a struct stat.
 */
int odafs_fstat(const struct odafs_file *file, struct stat *stat);

/*
 Checks what is kept of the file against the server, as opening it does. 1 if all of it still held, 0 if not.

 Safety:
 `file` is NULL or open.
 */
int odafs_revalidate(const struct odafs_file *file);

/*
 Reads many ranges of a file in one call, all in flight together. Their bytes come one range behind the other: range i
 begins in `buffer` where the lengths of those before it end, also if one of them came short. Ranges may overlap and have
 any order. `counts` is NULL, or has room for `count` numbers: how many bytes of each range came, fewer than asked for
 only at the end of the file. Returns how many came in all, -1 on failure: the first range that failed is told of, the
 others may or may not have been read.

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
 As odafs_read_ranges(), into registered memory from its byte `from` on. Over RDMA (odafs://) ranges of 64 KiB or more are
 written there by the server, and not copied here.

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
 Says that these ranges will be read soon: where direct reads are worth while, the references of their pages are asked for
 in one call. No data is read. Returns how many references came; -1 on failure, on which reads do not depend.

 Safety:
 `file` is NULL or open; `ranges` points to `count` ranges.
 */
ssize_t odafs_will_need(const struct odafs_file *file,
                        const struct odafs_range *ranges,
                        size_t count);

/*
 What is known about a file; symbolic links are followed.

 Safety:
 `client` is NULL or connected; `path` is NULL or a text that ends with a NUL; `stat` is NULL or points to a struct stat.
 */
int odafs_stat(const struct odafs_client *client,
               const char *path,
               struct stat *stat);

/*
 What is known about a file or about a symbolic link itself.

 Safety:
 As odafs_stat().
 */
int odafs_lstat(const struct odafs_client *client, const char *path, struct stat *stat);

/*
 Makes a directory (mode 0755).

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
 Renames; what bears the new name is replaced at once.

 Safety:
 `client` is NULL or connected; both paths are NULL or texts that end with a NUL.
 */
int odafs_rename(const struct odafs_client *client, const char *from, const char *to);

/*
 Gives the file `existing` the further name `path`.

 Safety:
 As odafs_rename().
 */
int odafs_link(const struct odafs_client *client, const char *existing, const char *path);

/*
 Makes a symbolic link at `path` that points to `target`.

 Safety:
 As odafs_rename().
 */
int odafs_symlink(const struct odafs_client *client, const char *target, const char *path);

/*
 Where a symbolic link points: at most `bytes` bytes, without a NUL behind, as readlink(2) does. Returns how many.

 Safety:
 As odafs_mkdir(); `buffer` has room for `bytes`.
 */
ssize_t odafs_readlink(const struct odafs_client *client, const char *path, char *buffer, size_t bytes);

/*
 Makes a file longer, with zeros, or shorter.

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
 A ring for at most `entries` submissions that have not been handed back as completions, with so many `threads` (0: 4).
 NULL on failure.
 */
struct odafs_ring *odafs_ring_new(uint32_t entries, uint32_t threads);

/*
 Waits until all that has begun is done, fails what has not (ECANCELED: it is not done, and nobody is told), drops the
 completions that nobody fetched, and frees the ring. To have all of it done fetch the completions first. NULL is nothing
 to do.

 Safety:
 `ring` is NULL, or came from odafs_ring_new() and is not used again.
 */
void odafs_ring_free(struct odafs_ring *ring);

/*
 A file descriptor that is readable while there are completions, for poll(2) and epoll(7). It belongs to the ring: do not
 read from it, nor close it.

 Safety:
 `ring` is NULL or a ring.
 */
int odafs_ring_fd(const struct odafs_ring *ring);

/*
 Submits: reads that need no waiting are done at once, by this thread; all else is done by the ring's threads, in any
 order. Returns how many were taken, from the first on: fewer than `count` where the ring is full (fetch completions, then
 submit the rest). -1: the first is wrong or has no room (EAGAIN), and nothing was taken. Where a later one is wrong, those
 before it are taken.

 Safety:
 `ring` is NULL or a ring; `submissions` points to `count` submissions, whose files are NULL or open and whose buffers have
 room for their bytes; nobody uses those (for writes: nobody changes them) until the submission has completed.
 */
ssize_t odafs_ring_submit(const struct odafs_ring *ring,
                          const struct odafs_submission *submissions,
                          size_t count);

/*
 Fetches completions: waits until `min` are there or `timeout_ms` has passed (-1: for ever), then gives up to `max`.
 Returns how many, 0 if none came in time. Where one of them failed, odafs_last_error() tells of the last that did.

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
