"""Jobs: submitted, attached to, restarted, kept."""
