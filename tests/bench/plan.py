#!/usr/bin/env python3
"""Planning against ninja: the same DAG for both, in pairs in one run on one machine.

    cargo build --release && tests/bench/plan.py [--sizes 1000,10000,100000] [--rounds 5] [--keep FOLDER]

10 builds, 100 set-ups, R run steps, R/5 comparisons. Measured are `matrix plan` and `ninja -n` where
nothing is to be done (ours after a real `matrix run` on a `null` machine, ninja's after a tree and a log
that say so), and from nothing; then `matrix plan` where one of the ten builds has changed, against itself
with nothing to do. CPU is user + system time; figures are medians; the ratio is ours by ninja's.
The store is filled in memory and moved to the disk, so that no sample waits for the disk.
"""
import argparse, json, os, pathlib, shutil, statistics, struct, subprocess, sys, tempfile, time

BUILDS, SETUPS, VARIANTS = 10, 100, 5
MASK = (1 << 64) - 1


def steps(runs):
    """Kind, number and needs of each step, in order."""
    for number in range(BUILDS):
        yield "build", number, []
    for number in range(SETUPS):
        yield "setup", number, [("build", number % BUILDS)]
    for number in range(runs):
        yield "run", number, [("setup", number // VARIANTS % SETUPS)]
    for number in range(runs // VARIANTS):
        yield "compare", number, [("run", VARIANTS * number + i) for i in range(VARIANTS)]


def output(kind, number):
    # No folder with more than a thousand files.
    return f"out/{kind}/{number // 1000}/{number % 1000}"


def murmur_64a(data, seed=0xDECAFBADDECAFBAD, m=0xC6A4A7935BD1E995):
    """What ninja's log keeps of a command (Appleby's MurmurHash64A)."""
    value = seed ^ (len(data) * m & MASK)
    whole = len(data) // 8 * 8
    for (k,) in struct.iter_unpack("<Q", data[:whole]):
        k = k * m & MASK
        value = (value ^ ((k ^ k >> 47) * m & MASK)) * m & MASK
    if data[whole:]:
        value = (value ^ int.from_bytes(data[whole:], "little")) * m & MASK
    value = (value ^ value >> 47) * m & MASK
    return value ^ value >> 47


def ninja_tree(folder, runs):
    """`build.ninja`; in `done/` with all outputs and a log that knows them, in `new/` with neither."""
    text = ["builddir = .\nrule step\n  command = touch $out\n"]
    log = ["# ninja log v5\n"]
    done = folder / "done"
    (folder / "new").mkdir(parents=True)
    done.mkdir()
    start = 1_700_000_000
    ranks = {"build": 1, "setup": 2, "run": 3, "compare": 4}
    source = done / "source"
    source.touch()
    os.utime(source, (start, start))
    made = set()
    for kind, number, needs in steps(runs):
        out = output(kind, number)
        text.append(f"build {out}: step {' '.join(output(*need) for need in needs) or 'source'}\n")
        path = f"{done}/{out}"
        if number % 1000 == 0:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
        at = start + ranks[kind]
        os.utime(path, (at, at))
        log.append(f"0\t1\t{at * 10**9}\t{out}\t{murmur_64a(f'touch {out}'.encode()):x}\n")
    for place in ["new", "done"]:
        (folder / place / "build.ninja").write_text("".join(text))
    (folder / "new/source").touch()
    (done / ".ninja_log").write_text("".join(log))


def matrix_file(path, runs, build="true {{ flavour }}"):
    values = lambda prefix, count: "[" + ", ".join(f'"{prefix}{i}"' for i in range(count)) + "]"
    path.write_text(f"""[matrix]
name = "plan"
[machines.nowhere]
via = "null"
[build]
run = ["{build}"]
[axes]
machine = ["nowhere"]
flavour = {values("f", BUILDS)}
service = {values("s", SETUPS // BUILDS)}
work    = {values("w", runs // SETUPS // VARIANTS)}
variant = {values("v", VARIANTS)}
[[setup]]
name = "server"
run  = ["true {{{{ flavour }}}} {{{{ service }}}}"]
[run]
command = ["true", "{{{{ flavour }}}}", "{{{{ service }}}}", "{{{{ work }}}}", "{{{{ variant }}}}"]
parser  = "json"
repeat  = 1
[metrics.value]
better = "higher"
[[compare]]
axis     = "variant"
baseline = "v0"
""")


def measure(command, cwd, says):
    """CPU seconds, wall seconds and peak MB of a command that must print `says`."""
    with tempfile.TemporaryFile() as out:
        start = time.monotonic()
        child = subprocess.Popen(command, cwd=cwd, stdout=out, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(child.pid, 0)
        wall = time.monotonic() - start
        out.seek(0)
        text = out.read().decode(errors="replace")
    if status or says not in text:
        sys.exit(f"{' '.join(map(str, command))}: status {status}, expected `{says}`:\n{text[-2000:]}")
    return used.ru_utime + used.ru_stime, wall, used.ru_maxrss / 1024


def check_steps(command, cwd, runs):
    """A changed build concerns itself and what is measured with it: a tenth of all else."""
    steps = json.loads(subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, check=True).stdout)["steps"]
    wanted = {"build": 1, "setup": SETUPS // BUILDS, "run": runs // BUILDS, "compare": runs // VARIANTS // BUILDS}
    found = {kind: count["run"] for kind, count in steps.items()}
    if found != wanted:
        sys.exit(f"one of ten builds changed: {found} are to be done, not {wanted}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="1000,10000,100000")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--matrix", default="target/release/matrix")
    parser.add_argument("--keep", help="a folder that stays, for a profiler; what is in it is used again")
    arguments = parser.parse_args()
    program = pathlib.Path(arguments.matrix).resolve()
    for needed in [program, shutil.which("ninja")]:
        if not needed or not os.path.exists(needed):
            sys.exit("needs `cargo build --release` and ninja (apt-get install ninja-build)")
    keep = arguments.keep or tempfile.mkdtemp()
    per_cell = {}
    for runs in map(int, arguments.sizes.split(",")):
        if runs % (SETUPS * VARIANTS):
            sys.exit(f"{runs} is not a multiple of {SETUPS * VARIANTS}")
        folder = pathlib.Path(keep) / str(runs)
        if not (folder / "ninja").exists():
            # In a process of its own: what this one has at its peak counts for those that it starts.
            if (child := os.fork()) == 0:
                ninja_tree(folder / "ninja", runs)
                os._exit(0)
            if os.waitpid(child, 0)[1]:
                sys.exit("the tree for ninja could not be made")
        if not (folder / "ours").exists():
            (folder / "ours").mkdir(parents=True)
            matrix_file(folder / "ours/plan.toml", runs)
            matrix_file(folder / "ours/changed.toml", runs, "true {{ 'new' if flavour == 'f3' else flavour }}")
            memory = tempfile.mkdtemp(dir="/dev/shm")
            fill = [program, "run", "plan.toml", "--state", memory]
            cpu, wall, peak = measure(fill, folder / "ours", "")
            shutil.move(memory, folder / "ours/full")
            print(f"R = {runs:,}: filling the store with a run: {cpu:.2f} s CPU, {wall:.2f} s, {peak:.0f} MB, "
                  f"{cpu / runs * 1e6:.0f} µs of CPU a step", flush=True)
        print(f"R = {runs:,}", flush=True)
        ours = lambda matrix, state, says: ([program, "plan", matrix, "--state", state], folder / "ours", says)
        nothing = ours("plan.toml", "full", "nothing to do")
        ninja = lambda words, state, says: (["ninja"] + words, folder / "ninja" / state, says)
        changed = ours("changed.toml", "full", f"{runs // BUILDS} measurements")
        cases = {
            "nothing to do": (nothing, ninja([], "done", "no work to do")),
            "from nothing": (ours("plan.toml", "empty", f"{runs} measurements"), ninja(["-n", "--quiet"], "new", "")),
            "one of ten builds": (changed, nothing),
        }
        check_steps(changed[0] + ["--json"], changed[1], runs)
        own = {}
        for name, pair in cases.items():
            taken = [[measure(*side) for side in pair] for _ in range(arguments.rounds)]
            own[name], other = ([statistics.median(column) for column in zip(*side)] for side in zip(*taken))
            beside = "ninja" if pair[1][0][0] == "ninja" else "before"
            for label, a, b, digits in zip(["CPU s", "wall s", "peak MB"], own[name], other, [3, 3, 0]):
                print(f"  {name:17}  {label:8} {a:10.{digits}f}  {beside:6} {b:10.{digits}f}  ratio {a / b:.3f}", flush=True)
        done, new = own["nothing to do"][0], own["from nothing"][0]
        print(f"  from nothing / nothing to do: CPU {new / done:.2f}", flush=True)
        per_cell[runs] = done / runs * 1e6, new / runs * 1e6
        if not arguments.keep:
            shutil.rmtree(folder)
    print("growth: CPU µs a cell with nothing to do, from nothing")
    for runs, (done, new) in per_cell.items():
        print(f"  R = {runs:9,}  {done:7.2f}  {new:7.2f}")


main()
