"""How fast exports of one run answer on a machine, in turn.

`experiments.inference` and `fab job inference` use it.
"""
