"""What runs on a parameter server.

`python -m ps_node` is the process: TensorFlow's C++ server, without Python's TensorFlow. It knows
none of the modules below. The coordinator traces them into graphs; the graphs run here:

`shard` keeps one shard of the flat vector: parameters, statistics, optimizer slots, counts.
`shards` applies a push to it: the ledger drops duplicates, staleness lowers the rate.
`steps` collects the partial sums of a synchronous step and applies them once.
`optimizers` are the fused updates.
"""
