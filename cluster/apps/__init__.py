"""Apps, a person's own model and data: how an app is found, looked over, kept with its run, and read."""
