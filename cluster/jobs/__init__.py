"""The jobs of a cluster: train, evaluate, pi. Each runs in the coordinator and leaves a folder under `runs/`."""
