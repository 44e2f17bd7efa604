exec </dev/null
[ -d "$folder" ] || refuse 77 "$folder is not there: publish it again"
broken=$(cd "$folder" && printf '%s\n' "$sums" | sha256sum --check --quiet --strict 2>&1) ||
    refuse 72 "$folder: $(echo "$broken" | head -n 1): publish it again"
for file in "$folder"/* "$folder"/.[!.]*; do
    case " SHA256SUMS $names " in *" ${file##*/} "*) ;; *) rm -rf "$file" ;; esac
done
chmod a+rX "$folder" "$folder"/*
printf '%s\n' "$sums" >"$folder/SHA256SUMS"
sync -f "$folder"
touch "$folder/.complete"
echo "changed: $folder is complete"
