"""How fast exports of one run answer on a machine, in turn: for `benchmarks.inference` and `fab job inference`."""
