"""TensorFlow, with the options that decide how a graph is computed.

A module that takes `tf` from `core.ground.lazy` has them.
"""

import core.engine.environment  # noqa: F401  (before tensorflow)

import tensorflow as tf  # isort: skip

# Grappler rewrites a tree of additions into one n-ary sum, which adds in another order. Whether it
# does depends on how a step is cut into parts, and so would the bits of the result (measured).
tf.config.optimizer.set_experimental_options({"arithmetic_optimization": False})
