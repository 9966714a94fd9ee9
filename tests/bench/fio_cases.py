#!/usr/bin/env python3
"""Checks `matrix parse fio` against a folder of real fio outputs whose right values are known.

Usage: fio_cases.py [CASES [MATRIX]]

CASES holds fio/ and fio-gen/: outputs, each with NAME.expected.json (right values, job by job) and
perhaps NAME.rc (fio's exit status); beside CASES there may be fio-nbd/, outputs without right
values. Default: ../shared/data/cases beside the repository; when it is absent there is nothing to do.
MATRIX is the program; default: target/release/matrix, or else target/debug/matrix.
Exit status: 0 all passed (or no cases), 1 some failed, 2 wrong use.
"""

import json
import pathlib
import subprocess
import sys

TOLERANCE = 1e-3
DIRECTIONS = ("read", "write", "trim", "mixed")

# Outputs that must be refused although fio ended with status 0, or whose reason matters:
# a piece of the file's name, and a piece of the reason.
REFUSED = {
    "f11-error-only": "err=84",
    "f12-verify-failed": "verify failed",
    "g08-": "No space left on device",
    "g10-": "no I/O",
    "g14-": "no I/O",
    "g17b-": "killed",
    "g26-": "exit status 1",
    "g27b-": "No space left on device",
    "g27c-": "No space left on device",
    "g28-": "terse output",
    "g28b-": "--output-format=json",
    "g30-": "exit status 1",
    "fail-connect": "no I/O",
    "server-killed": "failed: error -1",
}

# Pieces of warnings that must be there.
WARNED = {
    "f06-": "5 groups",
    "g06-": "percentiles left out",
    "g29c-": "control characters",
    "g34-": "ramp",
}


def main():
    root = pathlib.Path(__file__).resolve().parent.parent.parent
    arguments = sys.argv[1:]
    if len(arguments) > 2 or arguments[:1] in (["-h"], ["--help"]):
        print(__doc__)
        return 2
    cases = pathlib.Path(arguments[0]) if arguments else root.parent / "shared/data/cases"
    if not cases.is_dir():
        print(f"skipped: no folder {cases}")
        return 0
    programs = [root / "target" / kind / "matrix" for kind in ("release", "debug")]
    if len(arguments) == 2:
        programs = [pathlib.Path(arguments[1])]
    program = next((path for path in programs if path.is_file()), None)
    if program is None:
        print(f"no program {programs[0]}: build it with `cargo build --release`")
        return 2

    passed = failed = 0
    for path in outputs(cases):
        problems = check(program, path)
        if problems:
            failed += 1
            print(f"{path.name}: {'; '.join(problems)}")
        else:
            passed += 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


def outputs(cases):
    """Real outputs, without what is kept beside them."""
    files = []
    for folder in (cases / "fio", cases / "fio-gen", cases.parent / "fio-nbd"):
        files += sorted(folder.glob("*")) if folder.is_dir() else []
    beside = (".expected.json", ".expected.yaml", ".rc", ".stderr", ".fio")
    return [path for path in files if not path.name.endswith(beside)]


def check(program, path):
    """What is wrong with the program's answer to one output, as a list of texts."""
    status = path.with_suffix(".rc")
    status = status.read_text().strip() if status.is_file() else "0"
    ended = subprocess.run(
        [program, "parse", "fio", path, "--json", "--exit-status", status],
        capture_output=True,
        timeout=60,
    )
    try:
        answer = json.loads(ended.stdout)
    except ValueError:
        return [f"no JSON, status {ended.returncode}: {ended.stderr.decode(errors='replace')[:200]}"]
    if ended.returncode != (3 if "refused" in answer else 0):
        return [f"status {ended.returncode}"]
    if (reason := listed(REFUSED, path)) is not None:
        if "refused" not in answer:
            return ["not refused"]
        # Only fio's standard error, which is not given here, says why these failed.
        return [] if reason in answer["refused"] else [f"refused as {answer['refused']!r}"]
    if "refused" in answer:
        return [f"refused: {answer['refused']!r}"]
    problems = []
    warning = listed(WARNED, path)
    if warning is not None and not any(warning in text for text in answer["warnings"]):
        problems.append(f"no warning of {warning!r}: {answer['warnings']}")
    values = {metric["name"]: metric["value"] for metric in answer["metrics"]}
    if len(values) != len(answer["metrics"]):
        problems.append("a name is there twice")
    expected = expected_values(path)
    if expected is None:
        expected = {name: values[name] for name in values}
        if not any(name.endswith(".iops") for name in values):
            problems.append("no IOPS")
    for name, right in expected.items():
        got = values.get(name)
        if right is None:
            if got is not None:
                problems.append(f"{name} is {got}, was not measured")
        elif got is None or abs(got - right) > TOLERANCE * abs(right):
            problems.append(f"{name} is {got}, not {right}")
    # The latency of a direction is absent when it was not measured, never 0.
    for metric in answer["metrics"]:
        if metric["value"] == 0 and not metric["name"].endswith(("cpu.usr", "cpu.sys")):
            problems.append(f"{metric['name']} is 0")
    return problems


def listed(table, path):
    return next((text for piece, text in table.items() if path.name.startswith(piece)), None)


def expected_values(path):
    """Readings by name with their right values, None for one that must be absent."""
    file = path.with_name(path.stem + ".expected.json")
    if not file.is_file():
        return None
    result = json.loads(file.read_text())["result"]
    # Long lists of jobs are cut in the expected files: only sums can be compared then.
    jobs = [job for job in result["jobs"] if isinstance(job, dict)]
    is_whole = len(jobs) == result["n_jobs"]
    several = len(result["sum_by_group"]) > 1
    values = {}
    for group, sums in result["sum_by_group"].items():
        prefix = f"group{group}." if several else ""
        entries = [job for job in jobs if str(job["groupid"] or 0) == group]
        for direction in DIRECTIONS:
            name = prefix + direction
            right = sums.get(direction)
            if right is None:
                values[f"{name}.iops"] = None
                continue
            values[f"{name}.iops"] = right["iops"]
            # Given in whole KiB/s, so it may be one less for each job.
            if right["bw_kib_s"] > result["n_jobs"] / TOLERANCE:
                values[f"{name}.bw"] = right["bw_kib_s"] * 1024
            if right["io_bytes"]:
                values[f"{name}.io_bytes"] = right["io_bytes"]
            values[f"{name}.lat_mean"] = right["lat_mean_ns_io_weighted"] or None
            used = [job[direction] for job in entries if direction in job]
            if is_whole and len(used) == 1:
                values[f"{name}.clat_mean"] = used[0]["clat_mean_ns"] or None
                values[f"{name}.clat_p99"] = used[0].get("clat_p99_ns")
            elif is_whole:
                # No case has histograms of several jobs.
                values[f"{name}.clat_p99"] = None
    return values


if __name__ == "__main__":
    sys.exit(main())
