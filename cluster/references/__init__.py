"""Tables of papers beside our own figures: read with types and bounds, matched by settings."""
