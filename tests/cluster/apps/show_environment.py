"""Continue in the environment KEY below FOLDER, then wait for a line."""

import os
import sys
from pathlib import Path

from cluster.apps.environments import continue_in

folder, key = sys.argv[1:]
continue_in(Path(folder), key, ["tests.cluster.apps.show_environment", *sys.argv[1:]])
print(os.getpid(), sys.prefix, flush=True)
sys.stdin.readline()
