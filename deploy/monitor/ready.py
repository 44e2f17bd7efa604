"""Wait until Prometheus answers queries: `ready.py HOST:PORT PASSWORD_FILE`.

Standard library alone: on a node this very file is a program, without our packages.
"""

import base64
import http.client
import sys
import time
from pathlib import Path

USER = "pscluster"
_SECONDS = 5.0


def is_ready(address: str, password: str) -> bool:
    """Whether the Prometheus at `address` takes the password and answers queries."""
    asking = http.client.HTTPConnection(address, timeout=_SECONDS)
    basic = base64.b64encode(f"{USER}:{password}".encode()).decode()
    try:
        asking.request("GET", "/-/ready", headers={"Authorization": f"Basic {basic}"})
        return asking.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        asking.close()


if __name__ == "__main__":
    while not is_ready(sys.argv[1], Path(sys.argv[2]).read_text(encoding="ascii").strip()):
        time.sleep(1.0)
