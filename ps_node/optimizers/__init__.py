"""Optimizers, one module each: updates of one shard on its parameter server."""

EXTENSIONS = {
    "adam": "adam:Adam",
    "adamw": "adam:AdamW",
    "sgd": "sgd:MomentumSGD",
    "lion": "lion:Lion",
    "rmsprop": "rmsprop:RMSprop",
    "adagrad": "adagrad:Adagrad",
}
"""Module and class by `jobs.train.optimizer.name`."""
