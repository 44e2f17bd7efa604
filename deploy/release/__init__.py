"""What a node runs and how it gets there: an environment that rarely changes, and the code.

A node installs its environment on its own disk from a wheelhouse: a folder of wheels, downloaded
once on the operator's machine and shared over NFS. The code is one small wheel, unpacked beside
earlier ones. Hashes name both: what exists under its key never changes. This room makes the files
and renders the shell scripts that a node runs as root; it knows no SSH.
"""
