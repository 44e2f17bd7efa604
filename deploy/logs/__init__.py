"""Log lines of every process, merged by time."""
