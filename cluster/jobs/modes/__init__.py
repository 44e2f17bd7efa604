"""The training modes: for each, what is traced for the workers, what is dispatched, and how replies are read."""
