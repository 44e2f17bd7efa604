"""`journalctl`, as far as `fab deploy logs` needs it: `play_journalctl.py -D FOLDER OPTIONS`.

FOLDER/journal holds a JSON object a line. It answers as systemd 252 does, in what it refuses too,
which tests/deploy/logs/test_node_logs.py holds against the real one. `-f` ends when FOLDER/over is
there.
"""

import argparse
import fnmatch
import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("-D", dest="folder", type=Path)
parser.add_argument("-u", dest="units", action="append")
parser.add_argument("-n", dest="lines", type=int)
parser.add_argument("-o", dest="output", choices=["json"])
parser.add_argument("-f", dest="follow", action="store_true")
parser.add_argument("--since")
parser.add_argument("--after-cursor")
parser.add_argument("--output-fields")
for flag in ("-q", "--all", "--no-pager", "--no-tail", "--reverse"):
    parser.add_argument(flag, action="store_true")
asked = parser.parse_args()


def journal() -> list[dict[str, Any]]:
    path: Path = asked.folder / "journal"
    if path.exists():
        *whole, _ = path.read_text().split("\n")
    else:
        *whole, _ = [""]
    return [
        {**json.loads(line), "__CURSOR": f"s=played;i={number:x}"}
        for number, line in enumerate(whole, 1)
    ]


if asked.since and asked.after_cursor:
    sys.exit("Please specify only one of --since=, --cursor=, and --after-cursor=.")
if not re.fullmatch(r"@\d{1,12}(\.\d{1,6})?", asked.since or "@0"):
    sys.exit(f"Failed to parse timestamp: {asked.since}")
known = {str(entry["_SYSTEMD_UNIT"]) for entry in journal()}
units: set[str] = set()
for pattern in asked.units:
    units |= set(fnmatch.filter(known, pattern)) if "*" in pattern else {pattern}
if not units:
    sys.exit("Failed to add filter for units: No data available")


def wanted() -> list[dict[str, Any]]:
    begin = float((asked.since or "@0")[1:]) * 1e6
    return [
        entry
        for entry in journal()
        if entry["_SYSTEMD_UNIT"] in units and int(entry["__REALTIME_TIMESTAMP"]) >= begin
    ]


def entries() -> Iterator[dict[str, Any]]:
    found = wanted()
    seen = len(found)
    if asked.after_cursor:
        found = [entry for entry in found if _place(entry["__CURSOR"]) > _place(asked.after_cursor)]
    if asked.lines is None or asked.no_tail:
        count = len(found)
    else:
        count = asked.lines
    if asked.reverse:
        yield from found[::-1][:count]
    else:
        yield from found[:count] if asked.since else found[max(0, len(found) - count) :]
    while asked.follow and not (asked.folder / "over").exists():
        time.sleep(0.05)
        now = wanted()
        yield from now[seen:]
        seen = len(now)


def _place(cursor: str) -> int:
    return int(cursor.partition(";i=")[2], 16)


for entry in entries():
    print(json.dumps(entry), flush=True)
