"""Files that root makes and removes on a node, below its own folders and never by a link."""
