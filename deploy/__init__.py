"""Bringing an inventory to life: the supervisor, the service manager interface, and the `fab` commands.

Nothing here imports TensorFlow, and of `cluster` only the inventory and the errors.
"""
