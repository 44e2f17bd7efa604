"""The jobs of a cluster: train, cv, evaluate, recognise, pi.

Each runs in the coordinator and leaves a run's folder.
"""
