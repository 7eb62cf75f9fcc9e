"""Locks ranges of files by fcntl, as it is told line by line, and answers each line with one.

    open FILE PATH                      opened
    try FILE read|write FIRST LENGTH    granted, or refused
    wait FILE read|write FIRST LENGTH   waiting: it goes on in the background
    waits FILE                          waiting, granted, or the name of the error
    join FILE                           the same, as soon as it waits no more
    unlock FILE FIRST LENGTH            unlocked
    write FILE TEXT                     written to the end, and synced, or the name of the error
    close FILE                          closed
    walk FILE ME DIRECTORY SEED STEPS   walked: see there
"""
import errno, fcntl, os, random, struct, sys, threading, time

KINDS = {"read": fcntl.F_RDLCK, "write": fcntl.F_WRLCK, "none": fcntl.F_UNLCK}
files, waiters = {}, {}


def flock(kind, first, length):
    """A `struct flock` of 64-bit Linux."""
    return struct.pack("hhqqi", KINDS[kind], os.SEEK_SET, int(first), int(length), 0)


def lock(file, kind, first, length):
    """Whether the range is locked now, or unlocked."""
    try:
        fcntl.fcntl(files[file], fcntl.F_SETLK, flock(kind, first, length))
        return True
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise
        return False


def in_the_way(file, kind, first, length):
    """What another's lock is in the way of such a lock: its kind, first byte and length, or None."""
    found = fcntl.fcntl(files[file], fcntl.F_GETLK, flock(kind, first, length))
    kind, _, first, length, _ = struct.unpack("hhqqi", found)
    return None if kind == fcntl.F_UNLCK else (kind, first, length)


def wait(file, kind, first, length):
    """The locks of a process are of all its threads."""
    outcome = ["waiting"]

    def until_granted():
        try:
            fcntl.fcntl(files[file], fcntl.F_SETLKW, flock(kind, first, length))
            outcome[0] = "granted"
        except OSError as error:
            outcome[0] = errno.errorcode[error.errno]

    waiter = threading.Thread(target=until_granted, daemon=True)
    waiter.start()
    waiters[file] = (waiter, outcome)


def write(file, text):
    try:
        os.lseek(files[file], 0, os.SEEK_END)
        os.write(files[file], (text + "\n").encode())
        os.fsync(files[file])
        return "written"
    except OSError as error:
        return errno.errorcode[error.errno]


BYTES = 40


def walk(file, me, directory, seed, steps):
    """Two lockers take, give back and test random ranges of a file by turns, one as `one`, the other as `two`. Both know from
    the seed what either does, and so what each call must say."""
    chance = random.Random(int(seed))
    held = {"one": ["none"] * BYTES, "two": ["none"] * BYTES}
    granted = refused = 0
    for step in range(int(steps)):
        who = chance.choice(["one", "two"])
        what = chance.choice(["lock", "lock", "unlock", "test"])
        kind = chance.choice(["read", "write"])
        first = chance.randrange(BYTES)
        length = chance.randint(1, min(12, BYTES - first))
        there = range(first, first + length)
        theirs = held["two" if who == "one" else "one"]
        free = not any(theirs[at] == "write" or theirs[at] == "read" and kind == "write" for at in there)
        if what == "lock" and free or what == "unlock":
            held[who][first : first + length] = [kind if what == "lock" else "none"] * length
        granted += what == "lock" and free
        refused += what == "lock" and not free
        done = os.path.join(directory, f"step-{step}")
        until = time.monotonic() + 300
        while who != me and not os.path.exists(done):
            if time.monotonic() > until:
                return f"step {step}: the other does not come"
            time.sleep(0.002)
        if who != me:
            continue
        said = f"step {step} of seed {seed}: {me} {what} {kind} {first} {length}: "
        if what == "unlock":
            lock(file, "none", first, length)
        elif what == "lock" and lock(file, kind, first, length) != free:
            return said + ("refused" if free else "granted")
        elif what == "test":
            found = in_the_way(file, kind, first, length)
            if (found is None) != free:
                return said + f"{found}"
            if found and any(KINDS[theirs[at]] != found[0] for at in range(found[1], found[1] + found[2])):
                return said + f"{found}, but {theirs}"
        open(done, "w").close()
    lock(file, "none", 0, 0)
    # A walk on which nobody meets anybody shows nothing.
    return "walked" if min(granted, refused) > int(steps) // 20 else f"{granted} granted, {refused} refused"


def answer(what, file, *arguments):
    if what == "open":
        files[file] = os.open(arguments[0], os.O_RDWR)
        return "opened"
    if what == "try":
        return "granted" if lock(file, *arguments) else "refused"
    if what == "wait":
        wait(file, *arguments)
        return "waiting"
    if what == "waits":
        return waiters[file][1][0]
    if what == "join":
        waiter, outcome = waiters.pop(file)
        waiter.join()
        return outcome[0]
    if what == "unlock":
        lock(file, "none", *arguments)
        return "unlocked"
    if what == "write":
        return write(file, " ".join(arguments))
    if what == "close":
        os.close(files.pop(file))
        return "closed"
    return walk(file, *arguments)


for line in sys.stdin:
    print(answer(*line.split()), flush=True)
