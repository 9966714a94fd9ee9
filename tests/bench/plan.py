#!/usr/bin/env python3
"""Planning against ninja: the same DAG for both, in pairs in one run on one machine.

    cargo build --release && tests/bench/plan.py [--sizes 1000,10000,100000] [--rounds 5] [--keep FOLDER]

10 builds, 100 set-ups, R run steps, R/5 comparisons. Measured are `matrix plan` and `ninja -n` where
nothing is to be done (ours after a real `matrix run` on a `null` machine, ninja's after a tree and a log
that say so), and from nothing. CPU is user + system time; figures are medians; the ratio is ours by ninja's.
"""
import argparse, os, pathlib, shutil, statistics, struct, subprocess, sys, tempfile, time

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


def matrix_file(path, runs):
    values = lambda prefix, count: "[" + ", ".join(f'"{prefix}{i}"' for i in range(count)) + "]"
    path.write_text(f"""[matrix]
name = "plan"
[machines.nowhere]
via = "null"
[build]
run = ["true {{{{ flavour }}}}"]
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="1000,10000,100000")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--matrix", default="target/release/matrix")
    parser.add_argument("--keep", help="a folder that stays, for a profiler")
    arguments = parser.parse_args()
    program = pathlib.Path(arguments.matrix).resolve()
    for needed in [program, shutil.which("ninja")]:
        if not needed or not os.path.exists(needed):
            sys.exit("needs `cargo build --release` and ninja (apt-get install ninja-build)")
    keep = arguments.keep or tempfile.mkdtemp()
    for runs in map(int, arguments.sizes.split(",")):
        if runs % (SETUPS * VARIANTS):
            sys.exit(f"{runs} is not a multiple of {SETUPS * VARIANTS}")
        folder = pathlib.Path(keep) / str(runs)
        # In a process of its own: what this one has at its peak counts for those that it starts.
        if (child := os.fork()) == 0:
            ninja_tree(folder / "ninja", runs)
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            sys.exit("the tree for ninja could not be made")
        (folder / "ours").mkdir()
        matrix_file(folder / "ours/plan.toml", runs)
        ours = [program, "plan", "plan.toml"]
        cpu, wall, peak = measure([program, "run", "plan.toml", "--state", "full"], folder / "ours", "")
        print(f"R = {runs:,}: filling the store with a run: {cpu:.2f} s CPU, {wall:.2f} s, {peak:.0f} MB, "
              f"{wall / runs * 1e6:.0f} µs a step", flush=True)
        cases = {
            "nothing to do": (
                (ours + ["--state", "full"], folder / "ours", "nothing to do"),
                (["ninja"], folder / "ninja/done", "no work to do"),
            ),
            "from nothing": (
                (ours + ["--state", "empty"], folder / "ours", f"{runs} measurements"),
                (["ninja", "-n", "--quiet"], folder / "ninja/new", ""),
            ),
        }
        for name, pair in cases.items():
            taken = [[measure(*side) for side in pair] for _ in range(arguments.rounds)]
            own, other = ([statistics.median(column) for column in zip(*side)] for side in zip(*taken))
            for label, a, b, digits in zip(["CPU s", "wall s", "peak MB"], own, other, [3, 3, 0]):
                print(f"  {name:14}  {label:8} {a:10.{digits}f}  ninja {b:10.{digits}f}  ratio {a / b:.3f}", flush=True)
        if not arguments.keep:
            shutil.rmtree(folder)


main()
