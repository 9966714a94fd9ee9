#!/usr/bin/env bash
# Installs what the tests need, then runs all checks: form, lints, tests, licences.
# A machine with Rust (with rustfmt and clippy) and git is enough to begin with.
set -euo pipefail
cd "$(dirname "$0")/.."

step() { printf '\n== %s\n' "$*"; }

# Packages are installed only where a command is missing: so a prepared machine needs no network for this.
install_missing() {
    local missing=() command
    for command in cc fio qemu-img qemu-nbd dbench mkfs.xfs git perf python3 jq awk mount sshd ssh ip unshare \
        sysbench stress-ng pgbench redis-server redis-benchmark iperf3 gzip xz zstd; do
        PATH="$PATH:/usr/sbin:/sbin" type -P "$command" >/dev/null || missing+=("$command")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    step "installing what is missing: ${missing[*]}"
    local root=()
    [ "$(id -u)" = 0 ] || root=(sudo -n)
    if type -P apt-get >/dev/null; then
        "${root[@]}" apt-get update -q
        "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-remove --no-install-recommends \
            gcc libc6-dev fio qemu-utils dbench xfsprogs git linux-perf python3 jq mawk mount \
            openssh-server openssh-client iproute2 util-linux \
            sysbench stress-ng postgresql redis-server redis-tools iperf3 gzip xz-utils zstd
    elif type -P dnf >/dev/null; then
        "${root[@]}" dnf install -y --setopt=install_weak_deps=False \
            gcc fio fio-engine-libaio fio-engine-nbd qemu-img dbench xfsprogs git-core perf python3 jq gawk util-linux \
            openssh-server openssh-clients iproute \
            sysbench stress-ng postgresql-server postgresql-contrib redis iperf3 gzip xz zstd
    else
        echo "neither apt-get nor dnf is here: install these yourself: ${missing[*]}" >&2
        exit 2
    fi
}

# A browser for the tests of pages, and axe-core, which says what those who cannot see would miss: too large to be kept here.
AXE=4.14.1
install_browser() {
    local root=()
    [ "$(id -u)" = 0 ] || root=(sudo -n)
    if ! type -P chromium-headless-shell chromium chromium-browser google-chrome >/dev/null; then
        step "installing a browser"
        if type -P apt-get >/dev/null; then
            "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-remove --no-install-recommends \
                chromium-headless-shell
        else
            "${root[@]}" dnf install -y --setopt=install_weak_deps=False chromium
        fi
    fi
    [ ! -f target/axe/package/axe.min.js ] || return 0
    step "fetching axe-core $AXE"
    if ! type -P npm >/dev/null; then
        if type -P apt-get >/dev/null; then
            "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-remove --no-install-recommends npm
        else
            "${root[@]}" dnf install -y --setopt=install_weak_deps=False npm
        fi
    fi
    mkdir -p target/axe
    (cd target/axe && npm pack --silent "axe-core@$AXE" && tar xzf "axe-core-$AXE.tgz" package/axe.min.js)
}

type -P cargo >/dev/null || { echo "cargo is missing: install Rust, https://rustup.rs" >&2; exit 2; }
install_missing
install_browser

# All checks are made even if one fails; the last lines say which did.
failed=()
check() {
    step "$*"
    "$@" || failed+=("$*")
}

check cargo fmt --check
check cargo clippy --locked --all-targets -- -D warnings
check python3 tests/licences.py
check cargo test --locked --no-fail-fast
# Machines over ssh, in namespaces that only root can make.
as_root=()
[ "$(id -u)" = 0 ] || as_root=(sudo -n --preserve-env=PATH,CARGO_HOME,RUSTUP_HOME,HOME)
check "${as_root[@]}" cargo test --locked --test machines -- --ignored
# Sessions in simulated time with faults, kills and signals; more of them: MATRIX_HISTORIES=100000.
check env MATRIX_HISTORIES=3000 cargo test --locked --release --lib run::session

if [ ${#failed[@]} -gt 0 ]; then
    step "failed"
    printf '%s\n' "${failed[@]}"
    exit 1
fi
step "all checks passed"
