"""Apps, a person's own model and data: how one is found, kept with its run, and made a network.

Only the coordinator imports an app (`app.load`) and makes a network of its model
(`networks.network_of`); workers get graphs. `files`, `copy` and `environments` need no TensorFlow:
`fab` uses them too.
"""
