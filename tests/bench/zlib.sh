#!/usr/bin/env bash
# Build → compare across versions on the real zlib: Debian's source, a commit that slows deflate down, one
# that touches documents only. Needs apt with a source registry, git, cc, make, python3. Takes a minute or two.
#   tests/bench/zlib.sh [MATRIX_PROGRAM]
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/bench/debian_source.sh
matrix=$(realpath "${1:-target/debug/matrix}")
[ -x "$matrix" ] || { echo "$matrix is missing: cargo build" >&2; exit 2; }
lab=$(mktemp -d)
trap 'rm -rf "$lab"' EXIT

debian_source zlib "$lab/zlib"
# Half of deflate_fast's and deflate_slow's work once more: each match is searched for twice.
python3 - "$lab/zlib/deflate.c" <<'PYTHON'
import sys
path = sys.argv[1]
text = open(path).read()
call = "s->match_length = longest_match (s, hash_head);"
assert call in text, "deflate.c does not search for matches as it used to"
open(path, "w").write(text.replace(call, "{ volatile uInt again = longest_match(s, hash_head); (void)again; } " + call))
PYTHON
commit "$lab/zlib" "Search for each match twice"
echo "nothing" >>"$lab/zlib/README"
commit "$lab/zlib" "Say nothing more"

run() { "$matrix" "$1" matrices/zlib.toml --state "$lab/state" --repo "$lab/zlib" "${@:2}"; }
status=0
run run --against base=main~2 --version slow=main~1 --events "$lab/events" || status=$?
[ "$status" = 1 ] || { echo "a regression was to be found (exit status 1), not $status" >&2; exit 1; }
grep -F '"build_done"' "$lab/events"

# Documents only: nothing is built or measured.
run plan --version docs=main --json |
    python3 -c 'import json, sys; steps = json.load(sys.stdin)["steps"]; print("docs only:", steps["build"], steps["run"]); sys.exit(steps["build"]["run"] + steps["run"]["run"])'
