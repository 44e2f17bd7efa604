"""One thread for calls of sessions in a TensorFlow server, which starts eight.

Each of these threads waits on 1,700 prepared calls, 4.7 MB. It hands a call that arrives to a pool
(grpc_worker_service.cc) and never computes, so that one thread does. TensorFlow has no setting for
their number: `native/session_threads.cc` changes it on its way.
"""

import ctypes
import platform
from collections.abc import Callable
from pathlib import Path

OBJECT = Path(__file__).parent / "native" / f"session_threads.{platform.machine()}.so"


def one_session_thread(file: Path = OBJECT) -> Callable[[], int]:
    """Have servers start one such thread; call it before TensorFlow is loaded.

    Return what counts the servers that have. Without the file for this machine, and with another
    TensorFlow, there are none.
    """
    try:
        count: Callable[[], int] = ctypes.CDLL(str(file), ctypes.RTLD_GLOBAL).pscluster_one_thread
    except OSError:
        return int
    return count
