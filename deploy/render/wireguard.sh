# Written by pscluster: keys, peers, address and MTU of {{ interface }}. $1: address and prefix, $2: MTU.
set -eu
umask 077
tries=0
until wg show {{ interface }} >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt 100 ] || { echo {{ interface }} 'did not come up' >&2; exit 1; }
    sleep 0.1
done
{ printf '[Interface]\nPrivateKey = '; cat {{ private }} {{ peers }}; } | wg syncconf {{ interface }} /dev/stdin
ip address replace "$1" dev {{ interface }}
ip link set {{ interface }} mtu "$2" up
