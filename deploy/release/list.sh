exec </dev/null
[ -d "$root" ] || { echo "unchanged: nothing is installed"; return; }
cd "$root"
now=$(readlink current) && echo "current ${now#releases/}"
for each in environments/*/.complete; do
    [ ! -e "$each" ] || { each=${each%/.complete}; echo "environment ${each#environments/}"; }
done
for each in releases/*/environment; do
    [ -L "$each" ] || continue
    environment=$(readlink "$each")
    folder=${each%/environment}
    echo "release ${folder#releases/} ${environment##*/} $(stat -c %Y "$folder")"
done
[ ! -e history ] || while read -r seconds key; do echo "history $seconds $key"; done <history
echo "unchanged: listed"
