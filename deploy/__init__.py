"""Bringing an inventory to life: deployment, supervisor, jobs and the commands.

Nothing here imports TensorFlow, and of `cluster` only the inventory and the errors.
"""
