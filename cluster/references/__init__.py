"""Tables of papers, to be shown beside our own figures: read with types and bounds, and matched with settings."""
