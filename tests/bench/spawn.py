#!/usr/bin/env python3
"""Dispatching against ninja and a bare loop: 2,000 short steps, two at a time, in pairs in one run.

    cargo build --release && tests/bench/spawn.py [--steps 2000] [--rounds 7] [--state FOLDER]

All run `true`: the loop (posix_spawn and wait4, written here and compiled with `cc`), ninja, and we, with a
folder for each step, its output read, and each result durable (on the disk that FOLDER is on) before it is told. CPU is user + system time with all
children; figures are medians; ratios are of the medians.
"""
import argparse, os, pathlib, shutil, statistics, subprocess, sys, tempfile, time

FLOOR = r"""
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
extern char **environ;
int main(int count, char **words) {
    int steps = atoi(words[1]), slots = atoi(words[2]), started = 0, running = 0;
    char *argv[] = {"/bin/true", 0};
    while (started < steps || running) {
        while (running < slots && started < steps) {
            pid_t pid;
            if (posix_spawn(&pid, argv[0], 0, 0, argv, environ)) return 1;
            started++, running++;
        }
        if (wait4(-1, 0, 0, 0) < 0) return 1;
        running--;
    }
}
"""
SLOTS = 2


def matrix_file(path, steps):
    values = lambda prefix, n: "[" + ", ".join(f'"{prefix}{i}"' for i in range(n)) + "]"
    path.write_text(f"""[matrix]
name = "spawn"
[machines.here]
via   = "local"
slots = {SLOTS}
[axes]
machine = ["here"]
a = {values("a", steps // 50)}
b = {values("b", 50)}
[run]
command = ["/bin/true", "{{{{ a }}}}", "{{{{ b }}}}"]
parser  = "time"
repeat  = 1
[metrics.real]
""")


def ninja_file(path, steps):
    text = "rule step\n  command = /bin/true\n"
    path.write_text(text + "".join(f"build out{n}: step\n" for n in range(steps)))


def measure(command, cwd, environment):
    start = time.monotonic()
    child = subprocess.Popen(command, cwd=cwd, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    said = child.stderr.read()
    _, status, used = os.wait4(child.pid, 0)
    wall = time.monotonic() - start
    if status:
        sys.exit(f"{' '.join(map(str, command))}: status {status}\n{said.decode()[-2000:]}")
    return used.ru_utime + used.ru_stime, wall


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--matrix", default="target/release/matrix")
    parser.add_argument("--state", help="a folder on the disk to be written to")
    arguments = parser.parse_args()
    program = pathlib.Path(arguments.matrix).resolve()
    if not program.exists() or not shutil.which("ninja") or not shutil.which("cc"):
        sys.exit("needs `cargo build --release`, ninja and cc (apt-get install ninja-build gcc)")
    with tempfile.TemporaryDirectory(dir=arguments.state) as folder:
        folder = pathlib.Path(folder)
        steps, environment = arguments.steps, os.environ | {"MATRIX_LOCK": str(folder / "lock")}
        (folder / "floor.c").write_text(FLOOR)
        subprocess.run(["cc", "-O2", "-o", "floor", "floor.c"], cwd=folder, check=True)
        matrix_file(folder / "spawn.toml", steps)
        ninja_file(folder / "build.ninja", steps)
        commands = {
            "loop": [folder / "floor", str(steps), str(SLOTS)],
            "ninja": ["ninja", "--quiet", f"-j{SLOTS}"],
            "matrix": [program, "run", "spawn.toml", "--state", "state", "--json"],
        }
        taken = {name: [] for name in commands}
        for _ in range(arguments.rounds):
            for name, command in commands.items():
                for left in ["state", ".ninja_log"]:
                    path = folder / left
                    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
                taken[name].append(measure(command, folder, environment))
    medians = {name: [statistics.median(column) for column in zip(*list)] for name, list in taken.items()}
    cpu, wall = medians["matrix"]
    for name, (other_cpu, other_wall) in medians.items():
        print(f"{name:7} CPU {other_cpu / steps * 1e6:5.0f} µs a step, wall {other_wall / steps * 1e6:5.0f} µs; "
              f"ours by it: CPU {cpu / other_cpu:.2f}, wall {wall / other_wall:.2f}")


main()
