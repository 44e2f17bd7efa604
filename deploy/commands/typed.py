"""What invoke cannot read of a command line: the program of `fab job run PROGRAM.py`, and what follows `--`.

Fabric runs the words behind `--` on hosts, joined by spaces. Here they are a program's arguments, each as it was typed.
A positional with a default would never take its word (invoke 2.2), so the program becomes a flag before invoke parses,
and so does the word of `fab deploy render kubernetes`.
"""

from collections.abc import Sequence
from typing import Any

from deploy.commands.flags import FLAGS

_FLAG_OF = {
    ("job", "run"): "program",
    ("job.run",): "program",
    ("deploy", "render"): "kind",
    ("deploy.render",): "kind",
}
"""The flag that the first word after an action becomes."""
_TAKEN: list[str] = []


def read(program: Any) -> None:
    """Prepare what a Fabric program has yet to parse; call it while its fabfile is loaded.

    `after_dashes` returns the words behind `--` afterwards.
    """
    argv, core = getattr(program, "argv", None), getattr(program, "core", None)
    if argv is None or core is None:  # something else reads the fabfile
        return
    _TAKEN[:] = argv[argv.index("--") + 1 :] if "--" in argv else []
    core.remainder = ""
    core.unparsed[:] = with_word_as_flag(core.unparsed)


def after_dashes() -> tuple[str, ...]:
    """The words behind `--` of this call."""
    return tuple(_TAKEN)


def with_word_as_flag(words: Sequence[str]) -> list[str]:
    """The words of one call with `--program WORD` in the place of the program of `job run`, and so on. Pure."""
    found = list(words)
    for start, flag in _FLAG_OF.items():
        for at in range(len(found)):
            if tuple(found[at : at + len(start)]) == start:
                place = _first_word(found, at + len(start), flag)
                if place is not None:
                    found[place : place + 1] = [f"--{flag}", found[place]]
                return found
    return found


def _first_word(words: Sequence[str], at: int, flag: str) -> int | None:
    """The place of the first word from `at` on that is neither a flag nor the value of one; None beside `flag`."""
    by_name = {known.typed.rstrip("_").replace("_", "-"): known for known in FLAGS.values()}
    while at < len(words):
        name, separator, _ = words[at].removeprefix("--").partition("=")
        if not words[at].startswith("-"):
            return at
        if name == flag:
            return None
        known = by_name.get(name)
        takes_value = known is not None and known.default is not False and not separator
        at += 2 if takes_value else 1
    return None
