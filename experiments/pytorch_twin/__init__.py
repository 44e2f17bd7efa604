"""Our trainings beside the same ones in PyTorch, epoch by epoch in turn: see `__main__`."""
