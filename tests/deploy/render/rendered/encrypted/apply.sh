# Written by pscluster: keys, peers, address and MTU of wg-pscluster. $1: address and prefix, $2: MTU.
set -eu
umask 077
tries=0
until wg show wg-pscluster >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt 100 ] || { echo wg-pscluster 'did not come up' >&2; exit 1; }
    sleep 0.1
done
{ printf '[Interface]\nPrivateKey = '; cat /etc/pscluster/wireguard/private /etc/pscluster/wireguard.peers; } | wg syncconf wg-pscluster /dev/stdin
ip address replace "$1" dev wg-pscluster
ip link set wg-pscluster mtu "$2" up
