"""The commands: the flags of each, what it does, and the tree that they make."""
