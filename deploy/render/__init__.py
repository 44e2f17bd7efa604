"""The files of a deployment on nodes: units, exports, mounts, firewall.

Pure functions of the inventory.
"""
