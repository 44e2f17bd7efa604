"""Published recordings from where they are published.

A fetch is checked, resumable and bounded; it knows no reader.
"""
