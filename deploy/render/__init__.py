"""The texts a deployment puts on nodes: units, exports, mounts, firewall. Pure functions of the inventory."""
