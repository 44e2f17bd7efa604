"""The jobs of a cluster: train, cv, evaluate, pi.

Each runs in the coordinator and leaves a run's folder.
"""
