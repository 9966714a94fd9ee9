#!/usr/bin/env bash
# What ssh adds: STEPS null steps on a machine over ssh against the same steps locally, taken in turns. Needs root.
#
#   cargo build --release && tests/bench/ssh.sh target/release/matrix [STEPS [ROUNDS]]
set -euo pipefail
matrix=$(realpath "$1") steps=${2:-1000} rounds=${3:-3}
lab=$(realpath "$(dirname "$0")/../lab/machines.sh")
folder=$(mktemp -d)
trap '"$lab" down "$folder/lab"; rm -rf "$folder"' EXIT
"$lab" up "$folder/lab" 1
unset MATRIX_STATE
export MATRIX_SSH="ssh -F $folder/lab/ssh_config" MATRIX_LOCK=$folder/lock
cat > "$folder/null.toml" <<END
[matrix]
name = "null-steps"
[machines.here]
via = "local"
[machines.far]
via = "ssh"
host = "lab1"
[axes]
n = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
[run]
command = ["true", "{{ n }}"]
parser = "time"
repeat = $((steps / 10))
[metrics.real]
better = "lower"
END
one() {
    local began ended
    began=$(date +%s%N)
    "$lab" hub "$folder/lab" "$matrix" run "$folder/null.toml" --state "$folder/state-$1-$2" \
        --only "machine == '$1'" >/dev/null 2>"$folder/err" || { cat "$folder/err" >&2; exit 1; }
    ended=$(date +%s%N)
    echo $(((ended - began) / 1000000))
}
one far warm-up >/dev/null
for round in $(seq "$rounds"); do
    here=$(one here "$round") far=$(one far "$round")
    awk -v here="$here" -v far="$far" -v steps="$steps" 'BEGIN {
        printf "%d steps: local %.2f s, over ssh %.2f s: ratio %.2f, %.2f ms more a step\n",
            steps, here / 1000, far / 1000, far / here, (far - here) / steps }'
done
