"""The training modes: what is traced for the workers, what is dispatched, how replies are read."""
