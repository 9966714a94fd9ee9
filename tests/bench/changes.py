#!/usr/bin/env python3
"""Times `matrix changes` on a long past: the first look, which reads row by row, one night more, and nothing new.

The first night is a real run on a `null` machine; the others are written into its store as a run would write them.
"""

import argparse
import hashlib
import pathlib
import random
import resource
import sqlite3
import subprocess
import tempfile
import time

DAY_MS = 86_400_000
MATRIX = """
[matrix]
name = "past"
[machines.x]
via = "null"
[axes]
machine = ["x"]
a = [{a}]
b = [{b}]
[run]
command = "x {{{{ a }}}} {{{{ b }}}} {{{{ version }}}}"
parser  = "fio"
repeat  = {repeat}
[metrics.iops]
better = "higher"
[metrics.lat]
better = "lower"
"""


def night(store, number, cells, repeat):
    """Writes one night: a session of its own, another level in each cell, noise of 1 %."""
    metrics = [row[0] for row in store.execute("SELECT id FROM metric ORDER BY id")]
    began = 1_700_000_000_000 + number * DAY_MS
    session = store.execute(
        "INSERT INTO session (started_ms, ended_ms, matrix, preset, seed, arguments, program_version, process)"
        " VALUES (?, ?, 'past', '', 1, '', '', '')", (began, began + 1)).lastrowid
    attempt = store.execute("SELECT coalesce(max(id), 0) FROM attempt").fetchone()[0]
    attempts, done, samples = [], [], []
    for round_ in range(repeat):
        for a, b in cells:
            attempt += 1
            key = hashlib.blake2b(f"{a},{b},{number}".encode(), digest_size=16).digest()
            name = f"version=n{number},machine=x,a={a},b={b}"
            attempts.append((attempt, session, key, round_, name, f"n{number}", began + round_))
            done.append((key, round_, attempt))
            for metric in metrics:
                samples.append((key, round_, metric, random.gauss(100.0, 1.0), attempt))
    store.executemany(
        "INSERT INTO attempt (id, session, kind, key, round, cell, machine, version, started_ms, duration_us, outcome,"
        " reason, has_log) VALUES (?, ?, 'run', ?, ?, ?, 'x', ?, ?, 1000, 'ok', '', 0)", attempts)
    store.executemany("INSERT INTO done VALUES (?, ?, ?)", done)
    store.executemany("INSERT INTO sample VALUES (?, ?, ?, ?, ?)", samples)
    store.commit()


def timed(what, command, folder):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wall = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{what:28} {cpu:7.2f} s of CPU {wall:7.2f} s in all", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--series", type=int, default=10_000)
    parser.add_argument("--points", type=int, default=200)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--matrix", default="target/release/matrix")
    arguments = parser.parse_args()
    program = str(pathlib.Path(arguments.matrix).resolve())
    cells = [(a, b) for a in range(arguments.series // 100) for b in range(50)]
    random.seed(1)
    with tempfile.TemporaryDirectory() as folder:
        values = [", ".join(str(n) for n in range(count)) for count in (arguments.series // 100, 50)]
        text = MATRIX.format(a=values[0], b=values[1], repeat=arguments.repeat)
        (pathlib.Path(folder) / "m.toml").write_text(text)
        (pathlib.Path(folder) / "n0").mkdir()
        run = [program, "run", "m.toml", "--version", "n0/"]
        subprocess.run(run, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        store = sqlite3.connect(pathlib.Path(folder) / ".matrix/matrix.db")
        store.execute("PRAGMA synchronous = OFF")
        for number in range(1, arguments.points - 1):
            night(store, number, cells, arguments.repeat)
        changes = [program, "changes", "m.toml"]
        timed("first look", changes, folder)
        night(store, arguments.points - 1, cells, arguments.repeat)
        timed("one night more", changes, folder)
        timed("nothing new", changes, folder)


if __name__ == "__main__":
    main()
