digest() { (cd "$1" && find . -path ./.digest -prune -o -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum); }
