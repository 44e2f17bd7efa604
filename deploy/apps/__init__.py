"""`fab app new`: a new app from one of the templates, real files, which run as they are."""

import re
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType

from core.ground import gone
from core.ground.errors import ClusterError, UsageError
from core.ground.files import folder_beside, take_name
from core.ground.registry import either

FOLDER = Path(__file__).parent / "templates"
TEMPLATES = MappingProxyType(
    {
        "keras": "a Keras model and scikit-learn's handwritten digits",
        "tabular": "a number from the columns of a table",
        "images": "classes of images in folders",
    }
)
"""Descriptions by name."""
USUAL = "keras"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")
_PLACE = "APP_NAME"
"""Mark of the app's name in a template's texts."""


def new_app(name: str, template: str, into: Path) -> Path:
    """Write the app `name` as a new folder below `into`, whole or not at all; its path.

    Raises UsageError for a name that is none, an unknown template or a folder that exists, and
    ClusterError where it cannot be written.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r:.80}: expected a name of letters, digits, - and _ that begins with a letter,"
            " 63 characters at most, such as digits: the folder of that name is made here"
        )
    if template not in TEMPLATES:
        near = get_close_matches(template, TEMPLATES, n=1)
        if near:
            remedy = f"did you mean {near[0]}?"
        else:
            remedy = f"choose {either(TEMPLATES)}"
        remedy = gone.KINDS.get(template, remedy)
        raise UsageError(f"--template: unknown template {template!r:.40}: {remedy}")
    target = into / name
    try:
        with folder_beside(target) as partial:
            partial.chmod(0o755)
            for file in sorted(path for path in (FOLDER / template).iterdir() if path.is_file()):
                text = file.read_text(encoding="utf-8").replace(_PLACE, name)
                (partial / file.name).write_text(text, encoding="utf-8")
            take_name(partial, target)
    except FileExistsError:
        raise UsageError(f"{target}: exists already: choose another name, or remove it") from None
    except OSError as problem:
        raise ClusterError(
            f"{target}: cannot be written ({problem.strerror}): go to a folder of yours and try it"
            " there"
        ) from None
    return target
