"""What recordings hold, for a person: counts, people, a few windows drawn, the first line that is wrong."""
