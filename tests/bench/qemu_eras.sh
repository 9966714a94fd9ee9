#!/usr/bin/env bash
# The recipes of qemu-block on QEMU of three eras and on a neighbouring commit: each must build and answer a client.
# Needs a clone of QEMU with its tags, what the head of the recipe names, fio, 4 GB, and half an hour. A clone of each
# submodule can be given, `NAME=PATH`, else they are fetched.
#   tests/bench/qemu_eras.sh CLONE MATRIX_PROGRAM [keycodemapdb=PATH …]
set -euo pipefail
cd "$(dirname "$0")/../.."
clone=$(realpath "${1:?a clone of QEMU}") matrix=$(realpath "${2:-target/release/matrix}")
[ -x "$matrix" ] || { echo "$matrix is missing: cargo build --release" >&2; exit 2; }
lab=$(mktemp -d "${TMPDIR:-/var/tmp}/qemu_eras.XXXXXX")
trap 'rm -rf "$lab"' EXIT
mkdir "$lab/matrices"
cp -r profiles "$lab"
cp matrices/qemu-block.toml "$lab/matrices"
for mirror in "${@:3}"; do
    sed -i "s#https://gitlab.com/qemu-project/${mirror%%=*}.git#$(realpath "${mirror#*=}")#" "$lab/matrices/qemu-block.toml"
done
versions=()
for version in v5.2.0 v6.1.0 v6.2.0 v7.0.0 v7.2.0 v8.2.0 v9.2.0 v10.1.0; do
    git -C "$clone" rev-parse -q --verify "$version^{commit}" >"$lab/id" || continue
    versions+=(--version "$version")
done
status=0
"$matrix" run "$lab/matrices/qemu-block.toml" --state "$lab/state" --repo "$clone" --preset default-cache --repeat 1 \
    --events "$lab/events" "${versions[@]}" || status=$?
python3 - "$lab/events" <<'PYTHON'
import json, sys
done = [e for e in map(json.loads, open(sys.argv[1])) if e["event"] == "build_done"]
for e in done:
    print(f'{e["version"]}: {e["duration_s"]:.0f} s', e["error"] or "built")
sys.exit(not done or any(e["error"] for e in done))
PYTHON
[ "$status" -le 1 ] || exit "$status"
for line in v6.1.0..v6.2.0 "v6.1.0..v6.2.0 --first-parent"; do
    read -r range option <<<"$line"
    echo "planning $line:"
    # shellcheck disable=SC2086
    time "$matrix" plan "$lab/matrices/qemu-block.toml" --state "$lab/state" --repo "$clone" --version "$range" $option --json >"$lab/plan"
done
