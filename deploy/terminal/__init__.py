"""What a person at the terminal sees: tables, progress, hints."""
