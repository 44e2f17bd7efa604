digest() {
    (cd "$1" && {
        find . -path ./.digest -prune -o -type f -print0 | sort -z | xargs -0 sha256sum
        find . \( -path ./.digest -o -path ./environment -o -path ./.environment \) -prune -o -printf '%y %m %p %l\n' | sort
    } | sha256sum)
}
