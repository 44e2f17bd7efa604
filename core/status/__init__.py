"""What a run is doing, as one object that the live page, `/api/status` and the report all show.

Knows no TensorFlow.
"""
