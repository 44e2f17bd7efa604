"""The process of a parameter server: keeps variables, applies the updates that are pushed to it."""
