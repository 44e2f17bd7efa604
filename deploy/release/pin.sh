exec </dev/null
{% include "release/verify.sh" %}
mkdir -p "$root"
{% include "release/lock.sh" %}
fingerprint() { cut -d ' ' -f 3- | ssh-keygen -lf - | cut -d ' ' -f 2; }
pin() {
    printf '%s\n' "$allowed" >"$root/.signers"
    sync -f "$root/.signers"
    mv -T "$root/.signers" "$signers"
    echo "changed: pinned the signer $(fingerprint <"$signers")"
}
if [ ! -e "$signers" ]; then
    # What an earlier version installed here bears no signature, and a rollback may need it.
    for each in "$root"/releases/*/environment; do
        each=${each%/environment}
        if [ -d "$each" ] && [ ! -e "$each/.signature" ]; then echo "${each##*/}"; fi
    done >"$root/.unsigned"
    mv -T "$root/.unsigned" "$root/unsigned"
    pin
    return
fi
[ "$(cat "$signers")" = "$allowed" ] && { echo "unchanged: signer"; return; }
[ -n "$handover" ] || refuse 78 "this node takes releases that $(fingerprint <"$signers") has signed," \
    "this one is by $(printf '%s\n' "$allowed" | fingerprint): \`deployment.signing_key\` names the key to sign with," \
    "\`deployment.former_signing_key\` the pinned one, which then hands over; where that is lost," \
    "remove $signers on the node as root"
verify "the signer" "pscluster signer $allowed" "$handover"
pin
