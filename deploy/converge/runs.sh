for unit in {{ units }}; do
    pid=$(systemctl show --value -p MainPID "$unit")
    echo "unit $unit $(systemctl is-active "$unit") $(readlink "/proc/${pid:-0}/cwd")"
done
