exec </dev/null
count=0
for each in "$parent"/*; do
    case " $kept " in *" ${each##*/} "*) continue ;; esac
    case ${each##*/} in *[!0-9a-f]*) continue ;; ????????????????) ;; *) continue ;; esac
    [ -d "$each" ] || continue
    rm -f "$each/.complete"
    rm -rf "$each"
    count=$((count + 1))
done
[ "$count" -gt 0 ] && echo "changed: removed $count" || echo "unchanged: nothing to remove"
