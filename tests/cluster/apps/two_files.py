"""An app of two files for tests that look at files and run none."""

from pathlib import Path


def write_app(folder: Path, entry: str, blocks: str = "width = 8\n") -> Path:
    """Write the app `digits` of two files into the folder; return its path."""
    made = folder / "digits"
    (made / "parts").mkdir(parents=True)
    (made / "app.py").write_text(entry)
    (made / "parts" / "blocks.py").write_text(blocks)
    return made
