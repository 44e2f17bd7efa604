"""Runs items of work on the workers: membership, dispatch, deadlines, fencing, codecs.

It knows no job.
"""
