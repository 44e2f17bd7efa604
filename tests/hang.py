"""The one limit of all waits in tests."""

HANG_SECONDS = 600.0
"""What passes it hangs. A busy neighbour may cost a test twenty times its usual time."""
