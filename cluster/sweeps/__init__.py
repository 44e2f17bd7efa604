"""A sweep: one file, many trainings.

What it asks for, which runs that makes, how they stand, their table, and what runs them.
"""
