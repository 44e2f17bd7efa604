"""The arithmetic of the built-in networks as a native library: the same bits on every processor.

`native/` is the library's source; `program` writes networks in its instructions, `library` finds
and calls it, `build` makes it for both machines. This package stands below all others.
"""
