"""Whether the node's clock is right, as the kernel has it."""

import ctypes
from ctypes import c_int, c_long

TIME_ERROR = 5
"""What adjtimex returns for a clock that nobody keeps synchronized; it does so under STA_UNSYNC too (adjtimex(2))."""


class _Timex(ctypes.Structure):
    """The beginning of struct timex, and more room than the kernel fills."""

    _fields_ = (("modes", c_int), ("values", c_long * 64))


def clock_synchronized() -> bool | None:
    """Whether something like timesyncd or chrony keeps the clock; None if this process may not ask."""
    asked = _Timex()  # modes 0: nothing is changed
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(asked))
    except AttributeError:
        return None
    return None if state < 0 else state != TIME_ERROR
