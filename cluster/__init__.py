"""The coordinator: the jobs that train, sweep, export and run programs, and their pages."""
