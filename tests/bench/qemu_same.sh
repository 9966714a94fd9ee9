#!/usr/bin/env bash
# Verdicts on the installed qemu-nbd, each of five times in an empty store: two copies of the same programs as two
# versions (nothing may be found), and write-through as the default against write-back (the
# improvement must be found). Needs fio and qemu-utils; about fifteen minutes.
#   tests/bench/qemu_same.sh [MATRIX_PROGRAM]
set -euo pipefail
cd "$(dirname "$0")/../.."
matrix=$(realpath "${1:-target/debug/matrix}")
[ -x "$matrix" ] || { echo "$matrix is missing: cargo build" >&2; exit 2; }
nbd=$(command -v qemu-nbd) && img=$(command -v qemu-img) && command -v fio >/dev/null || {
    echo "fio, qemu-nbd or qemu-img is missing: apt-get install fio qemu-utils" >&2
    exit 2
}
lab=$(mktemp -d "${TMPDIR:-/var/tmp}/qemu_same.XXXXXX")
trap 'rm -rf "$lab"' EXIT

for name in a b writethrough writeback; do
    mkdir "$lab/$name"
    cp "$nbd" "$img" "$lab/$name"
done
for cache in writethrough writeback; do
    printf '#!/bin/sh\nexec %s --cache=%s "$@"\n' "$nbd" "$cache" >"$lab/$cache/qemu-nbd"
done

# Counts of verdicts of a run in an empty store.
judge() { # NAME BASELINE CANDIDATE
    local status=0
    "$matrix" run matrices/qemu-block.toml --state "$lab/state-$1" --preset default-cache --only "load.jobs == 1" \
        --version "$2=$lab/$2/" --version "$3=$lab/$3/" --json >"$lab/report" 2>"$lab/log" || status=$?
    [ "$status" -le 1 ] || { tail "$lab/log" >&2; exit 1; }
    python3 - "$lab/report" <<'PYTHON'
import json, sys
report = json.load(open(sys.argv[1]))
of_versions = [row for row in report["verdicts"] if row["axis"] == "version"]
print(*(f'{row["metric"]}: {row["verdict"]} x{row["ratio"]:.3f} n={row["n"][0]}' for row in of_versions), sep=", ")
PYTHON
    rm -rf "$lab/state-$1"
}

wrong=0
for i in 1 2 3 4 5; do
    told=$(judge "same-$i" a b)
    echo "the same $i: $told"
    case $told in *regression* | *improvement* | "") wrong=$((wrong + 1)) ;; esac
    told=$(judge "default-$i" writethrough writeback)
    echo "write-through, write-back $i: $told"
    case $told in *"iops: improvement"*) ;; *) wrong=$((wrong + 1)) ;; esac
done
echo "$wrong of 10 wrong"
[ "$wrong" = 0 ]
