"""Files that root makes, gives away and removes on a node: below folders that root owns, never through a link."""
