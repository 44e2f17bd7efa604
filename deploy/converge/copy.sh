exec </dev/null
final=$root/$key
work=$root/.partial-$key
[ ! -e "$final/.complete" ] || { touch "$final"; echo "unchanged: windows $key"; return; }
mkdir -p "$root"
rm -rf "$root"/.partial-* "$final"
"$python" -I -S -c "$program" copy "$seen" "$work" "$files"
touch "$work/.complete"
cd "$work"
sync -f .
cd "$root"
mv -T "$work" "$final"
ls -dt */ | tail -n +4 | while read -r old; do rm -rf "$old"; done
echo "changed: windows $key"
