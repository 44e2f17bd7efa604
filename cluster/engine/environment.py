"""What has to be in the environment before TensorFlow is imported. Import this module first."""

import os

# GRPC_FAIL_FAST: a call to a dead task fails instead of waiting (community RFC 355). "true", not "use_caller" as in the
# roles: the call by which a worker joins asks to wait, and a worker stopped or killed just then would be waited for for
# ever, cut connections or not (measured).
# ENQUEUE streaming off: one stopped worker would block the stream that all calls share.
os.environ["GRPC_FAIL_FAST"] = "true"
os.environ["TF_ENABLE_EAGER_CLIENT_STREAMING_ENQUEUE"] = "False"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
