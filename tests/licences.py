#!/usr/bin/env python3
"""Checks that every crate that the program is built from may be used under a licence of our list.

Usage: licences.py            (in the repository; asks `cargo metadata`)
Exit status: 0 all are allowed, 1 some are not, 2 cargo cannot be asked.
"""

import json
import re
import subprocess
import sys

# Licences that ask for no more than a notice. `A OR B` needs one of them, `A AND B` both.
ALLOWED = {
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
}


def is_allowed(expression):
    """Whether a licence expression (SPDX; `/` is an old way to write OR) can be satisfied."""
    words = re.findall(r"[()]|[^\s()]+", expression.replace("/", " OR "))
    position = 0

    def take():
        nonlocal position
        position += 1
        return words[position - 1] if position <= len(words) else ""

    def peek():
        return words[position] if position < len(words) else ""

    def one():
        word = take()
        if word == "(":
            inside = either()
            return take() == ")" and inside
        if peek() == "WITH":
            take()
            word = f"{word} WITH {take()}"
        return word in ALLOWED

    def both():
        result = one()
        while peek() == "AND":
            take()
            result = one() and result
        return result

    def either():
        result = both()
        while peek() == "OR":
            take()
            result = both() or result
        return result

    return either() and position == len(words)


def check_the_check():
    good = ["MIT", "MIT OR GPL-3.0", "MIT/Apache-2.0", "(MIT OR GPL-3.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception"]
    bad = ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT", "MIT MIT", "MIT WITH something", "LGPL-2.1 OR GPL-2.0"]
    for expression, expected in [(e, True) for e in good] + [(e, False) for e in bad]:
        assert is_allowed(expression) == expected, expression


def main():
    check_the_check()
    # What is built for Linux; without the filter, crates for other systems would be fetched to be read.
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", "x86_64-unknown-linux-gnu"]
    asked = subprocess.run(command, stdout=subprocess.PIPE)
    if asked.returncode != 0:
        print(f"licences: `{' '.join(command)}` failed: see above", file=sys.stderr)
        return 2
    # Crates without a source are ours.
    packages = [p for p in json.loads(asked.stdout)["packages"] if p["source"]]
    refused = [p for p in packages if not is_allowed(p["license"] or "")]
    for package in refused:
        licence = package["license"] or f"no expression (file: {package['license_file']})"
        print(f"licences: {package['name']} {package['version']} is under {licence}, which is not on the list of "
              "tests/licences.py: use another crate, or add the licence there and say why", file=sys.stderr)
    print(f"licences: {len(packages)} crates, {len(refused)} not allowed")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
