"""What runs on a worker.

`python -m worker_node` is the process: TensorFlow's C++ server, without Python's TensorFlow. It
knows none of the modules below. The coordinator traces them into graphs; the graphs run here:

`recordings` reads the prepared windows from the node's disk.
`gradient` computes the gradient of a batch in slots.
`sender` pushes it exactly once, and keeps on the worker what the push holds back.
`exchange` keeps the parameters on the workers themselves, for `allreduce`.
`monte_carlo` counts points inside the quarter circle, for `pi`.
"""
