"""Live sessions: readings of a sensor come as they are made, labels go back."""
