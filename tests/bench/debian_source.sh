# Sourced by the scripts beside it: Debian's source of a package as a git repository, without a change to
# the system: lists and indexes are in a folder of our own, from the registry that apt already uses.

# debian_source PACKAGE FOLDER: a git repository FOLDER, whose branch `main` has one commit.
debian_source() {
    local package=$1 folder=$2 apt
    mkdir -p "$folder.apt/parts" "$folder.apt/lists/partial" "$folder.apt/source"
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
        [ -f "$file" ] || continue
        sed -E 's/^Types:.*/Types: deb-src/; s/^deb /deb-src /' "$file" >"$folder.apt/parts/$(basename "$file")"
    done
    apt=(-q -o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$folder.apt/parts"
        -o "Dir::State::Lists=$folder.apt/lists" -o APT::Sandbox::User=)
    apt-get "${apt[@]}" update >"$folder.apt/log" 2>&1 || { cat "$folder.apt/log" >&2; return 1; }
    (cd "$folder.apt/source" && apt-get "${apt[@]}" source "$package" >>../log 2>&1) || { cat "$folder.apt/log" >&2; return 1; }
    mv "$(find "$folder.apt/source" -mindepth 1 -maxdepth 1 -type d)" "$folder"
    git -C "$folder" init --quiet --initial-branch=main
    # A quilt patch series leaves its state behind; ignored files are part of a release, too.
    rm -rf "$folder/.pc"
    commit "$folder" "Debian's $package"
}

# commit FOLDER MESSAGE: all files.
commit() {
    git -C "$1" add --all --force
    git -C "$1" -c user.name=bench -c user.email=bench@example.org commit --quiet --message "$2"
}
