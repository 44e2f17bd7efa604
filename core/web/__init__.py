"""The ground of every page: its guard, the entrance of its connections, its shared files."""

from pathlib import Path

STATIC = Path(__file__).with_name("static")
