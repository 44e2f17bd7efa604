"""A sweep: one file, many trainings.

What it asks for, which runs that makes, how they stand, and their table.
"""
