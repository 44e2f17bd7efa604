"""Ends with code 7 on worker 1 while the others work.

`fab` ends those and names the one that failed.

    fab job run --on workers examples/programs/fails_on_one_worker.py

It needs no TensorFlow, only RANK and WORLD_SIZE, which other libraries read as well.
"""

import os
import sys
import time

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
print(
    f"rank {rank} of {size}; rank 0 is at {os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
)
if rank == 1:
    time.sleep(0.5)
    sys.exit(7)
time.sleep(600)
