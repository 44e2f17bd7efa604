"""Published recordings from where they are published: checked, resumable, bounded; it knows no reader."""
