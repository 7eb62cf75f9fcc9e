#!/bin/sh
# Makes the traces of this directory again, from real programs. See README.md.
#
# Usage: record.sh ODAFS OUT
#   ODAFS  the program `odafs`
#   OUT    a directory for the traces; it is made
#
# Needs strace, gcc, python3 with venv and pip, sqlite3 and maildrop (Debian: `apt-get install strace gcc python3-venv sqlite3
# maildrop`), and a package index for pyarrow.
set -eu
PATH=/usr/bin:/bin
odafs=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
mkdir "$work/data"
cd "$work/data"

# trace NAME FLAGS COMMAND...: FLAGS are those of `odafs bench convert`.
trace() {
    name=$1 flags=$2
    shift 2
    strace -f -qq -y -ttt -T -s 0 -e trace=file,desc,process -o "$work/$name.strace" "$@" >"$work/$name.out"
    # shellcheck disable=SC2086
    "$odafs" bench convert --from strace $flags "$work/$name.strace" >"$out/$name.trace"
    echo "$name: $(wc -l <"$out/$name.trace") lines, $(wc -c <"$out/$name.trace") bytes"
}

# A Parquet scan: a filter and sums over four of twelve columns, eight files, with pyarrow's threads.
python3 -m venv "$work/venv"
"$work/venv/bin/pip" --quiet install pyarrow==26.0.1 || "$work/venv/bin/pip" --quiet install pyarrow
mkdir parquet
cat >"$work/make.py" <<'PY'
import pyarrow as pa, pyarrow.parquet as pq, random
random.seed(1)
n = 60_000
for part in range(8):
    columns = {f"c{i}": [random.random() for _ in range(n)] for i in range(10)}
    columns["key"] = [part * n + i for i in range(n)]
    columns["group"] = [f"group-{random.randrange(50)}" for _ in range(n)]
    pq.write_table(pa.table(columns), f"parquet/part-{part}.parquet", row_group_size=5_000)
PY
cat >"$work/scan.py" <<'PY'
import pyarrow.compute as pc, pyarrow.dataset as ds
data = ds.dataset("parquet", format="parquet")
rows = data.to_table(columns=["key", "c3", "group"], filter=pc.field("c7") < 0.1)
print(rows.group_by("group").aggregate([("c3", "sum")]).num_rows, "groups")
PY
"$work/venv/bin/python" "$work/make.py"
trace parquet "--under $work/data" "$work/venv/bin/python" "$work/scan.py"

# SQLite: look-ups by an index, an aggregate over a range, then some updates.
mkdir sqlite
sqlite3 sqlite/shop.db "
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER, day INTEGER, cents INTEGER, note TEXT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300000)
INSERT INTO orders SELECT i, abs(random()) % 20000, i / 800, abs(random()) % 100000, hex(randomblob(24)) FROM n;
CREATE INDEX by_customer ON orders (customer);"
python3 -c "
for c in range(17, 20000, 200): print(f'SELECT count(*), sum(cents) FROM orders WHERE customer = {c};')
print('SELECT day, sum(cents) FROM orders WHERE day BETWEEN 100 AND 120 GROUP BY day;')
for i in range(1000, 300000, 40011): print(f'UPDATE orders SET cents = cents + 1 WHERE id = {i};')
" >"$work/queries.sql"
trace sqlite "--under $work/data --one-thread" sqlite3 -init /dev/null sqlite/shop.db ".read $work/queries.sql"

# A compiler: four files of C and a link, one after the other, with the system's headers.
mkdir build
for i in 1 2 3 4; do
    printf '#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <sys/socket.h>\n#include <pthread.h>\n#include "all.h"\nint f%s(int x) { printf("%%d\\n", x); return x + %s; }\n' $i $i >build/f$i.c
done
echo 'int f1(int), f2(int), f3(int), f4(int);' >build/all.h
printf '#include "all.h"\nint main(void) { return f1(f2(f3(f4(0)))) == 0; }\n' >build/main.c
trace compiler "--under / --one-thread" sh -c \
    'cd build && for f in f1 f2 f3 f4 main; do gcc -O1 -g -c $f.c -o $f.o; done && gcc *.o -o program'

# A mail spool: maildrop delivers 90 messages to a Maildir; a reader looks at all and marks and removes some.
python3 -c "
import random
random.seed(2)
for i in range(90):
    body = '\n'.join('x' * 70 for _ in range(random.choice([3, 20, 60, 400])))
    open(f'$work/message-{i}', 'w').write(f'From: a@example.org\nTo: b@example.org\nSubject: {i}\nMessage-Id: <{i}@example.org>\n\n{body}\n')
"
mkdir mail
maildirmake mail/Maildir 2>/dev/null || mkdir -p mail/Maildir/tmp mail/Maildir/new mail/Maildir/cur
printf 'to "%s"\n' "$work/data/mail/Maildir" >"$work/filter"
chmod 600 "$work/filter"
cat >"$work/read.py" <<'PY'
import mailbox
box = mailbox.Maildir("mail/Maildir", create=False)
for number, key in enumerate(sorted(box.keys())):
    message = box[key]
    message.get_payload()
    if number % 3 == 0:
        message.set_subdir("cur")
        message.add_flag("S")
        box[key] = message
    elif number % 7 == 0:
        box.remove(key)
box.flush()
print(len(box), "messages")
PY
trace mail "--under $work/data --one-thread" sh -c \
    "for m in $work/message-*; do maildrop $work/filter <\$m; done; python3 $work/read.py"
