"""The log format of every process, in text and JSON: written, and read back.

A few lines over the standard library's `logging.Formatter`. python-json-logger has the JSON half
alone, and an argument that cannot be formatted, or a lone surrogate, breaks its lines. structlog
adds a second way to log beside that of all libraries here, and takes memory on a 1 GB Pi. Neither
has the text half, or reads lines back.
"""
