"""What recordings hold, for a person.

Counts, people, a few windows drawn, the first line that is wrong.
"""
