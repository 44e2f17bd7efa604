"""A chief that keeps checkpoints: `fab job run examples/programs/keeps_checkpoints.py`.

The parameter servers run elsewhere, as another account or on other nodes, and see no folder of the
chief. With `experimental_io_device` the chief alone writes and reads. Stopped and started again,
the program continues.
"""

import os

import tensorflow as tf

STEPS = 5

strategy = tf.distribute.ParameterServerStrategy(
    tf.distribute.cluster_resolver.TFConfigClusterResolver()
)
with strategy.scope():
    steps = tf.Variable(0, dtype=tf.int64)
    weights = tf.Variable(tf.zeros([1000]))

here = tf.train.CheckpointOptions(experimental_io_device="/job:chief")
checkpoint = tf.train.Checkpoint(steps=steps, weights=weights)
manager = tf.train.CheckpointManager(
    checkpoint, os.path.join(os.environ["PSCLUSTER_RUN"], "kept"), max_to_keep=2
)
if manager.latest_checkpoint:
    checkpoint.restore(manager.latest_checkpoint, options=here).assert_consumed()
print("begins at step", int(steps.numpy()))

while steps.numpy() < STEPS:
    weights.assign_add(tf.ones([1000]))
    steps.assign_add(1)
    manager.save(options=here)
print("ends at step", int(steps.numpy()), "with", float(weights.numpy().mean()))
