# The file of the signers is root's, and so is this copy of the signature.
verify() {
    [ -r "$signers" ] || refuse 78 "$1: no signer is pinned on this node: \`fab deploy start\` pins one"
    command -v ssh-keygen >/dev/null || refuse 78 "$1: no ssh-keygen on this node to verify it with: install openssh-client"
    [ -n "$3" ] || refuse 78 "$1 is not signed: \`fab deploy start\` from its checkout signs it"
    proof=$(mktemp "${signers%/*}/.proof-XXXXXXXX")
    printf '%s\n' "$3" >"$proof"
    said=$(printf %s "$2" | ssh-keygen -Y verify -f "$signers" -I operator -n pscluster-release -s "$proof" 2>&1) || {
        rm -f "$proof"
        refuse 78 "$1 is not what the operator signed whom this node pinned in $signers: $(echo "$said" | head -n 1)"
    }
    rm -f "$proof"
}
