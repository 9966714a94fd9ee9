#!/usr/bin/env bash
# qemu-block across versions on the real QEMU: Debian's source, a commit that changes qemu-nbd's default
# cache mode, one that touches documents only. Needs root (or sudo), apt with a source registry, 3 GB, and
# ten to thirty minutes for the first build.
#   tests/bench/qemu.sh [MATRIX_PROGRAM]
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/bench/debian_source.sh
matrix=$(realpath "${1:-target/debug/matrix}")
[ -x "$matrix" ] || { echo "$matrix is missing: cargo build" >&2; exit 2; }
root=()
[ "$(id -u)" = 0 ] || root=(sudo -n)
"${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-remove --no-install-recommends \
    gcc libc6-dev pkg-config ninja-build meson python3-venv libglib2.0-dev libaio-dev liburing-dev fio dpkg-dev >&2
lab=$(mktemp -d)
trap 'rm -rf "$lab"' EXIT

debian_source qemu "$lab/qemu"
sed -i 's/bool writethrough = false;/bool writethrough = true;/' "$lab/qemu/qemu-nbd.c"
commit "$lab/qemu" "qemu-nbd: write through unless told otherwise"
echo "nothing" >>"$lab/qemu/docs/index.rst"
commit "$lab/qemu" "docs: say nothing more"
[ "$(git -C "$lab/qemu" diff --name-only main~2 main)" = "$(printf 'docs/index.rst\nqemu-nbd.c')" ] || {
    echo "qemu-nbd.c does not set its default as it used to" >&2
    exit 2
}

run() { "$matrix" "$1" matrices/qemu-block.toml --state "$lab/state" --repo "$lab/qemu" --preset default-cache "${@:2}"; }
status=0
run run --against before=main~2 --version after=main~1 --events "$lab/events" || status=$?
[ "$status" = 1 ] || { echo "a regression was to be found (exit status 1), not $status" >&2; exit 1; }
python3 - "$lab/events" <<'PYTHON'
import json, sys
events = map(json.loads, open(sys.argv[1]))
times = {e["version"]: e["duration_s"] for e in events if e["event"] == "build_done"}
print("builds:", times)
sys.exit(times["after"] > times["before"] / 4)
PYTHON

# Documents only: nothing is built or measured.
run plan --version docs=main --json |
    python3 -c 'import json, sys; steps = json.load(sys.stdin)["steps"]; print("docs only:", steps["build"], steps["run"]); sys.exit(steps["build"]["run"] + steps["run"]["run"])'
