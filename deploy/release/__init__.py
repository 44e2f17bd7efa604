"""What a node runs and how it gets there, in two layers: a rarely changing environment and the code beside it.

The environment is installed on the node's own disk from a wheelhouse, a folder of wheels that is downloaded once on the
operator's machine and shared over NFS. The code is one small wheel, unpacked beside earlier ones. Both are named after
hashes: what is there under its key is never touched again. This room makes the files, and renders the shell scripts
that a node runs as root; it knows no SSH.
"""
