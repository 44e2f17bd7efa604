"""How page and report write states, stages and numbers. `words.yaml` has the texts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any, TypeGuard

import yaml
from markupsafe import Markup

from core.status.parts import figure_text


@dataclass(frozen=True)
class Meaning:
    """A state as people read it.

    `tone` is well, waiting, warning, bad or off: its colour and sign.
    """

    word: str
    tone: str
    meaning: str


WORDS: dict[str, Any] = yaml.safe_load(
    Path(__file__).with_name("words.yaml").read_text(encoding="utf-8")
)


def state_in(kind: str, state: str) -> Meaning:
    """The state of a run, a sweep or a role; an unknown one appears as it is."""
    meaning = WORDS[kind].get(state)
    if meaning:
        return Meaning(**meaning)
    return Meaning(state, "off", "")


run_state = partial(state_in, "run_states")
sweep_state = partial(state_in, "sweep_states")
role_state = partial(state_in, "role_states")


RECORDINGS = "windows"
"""Unit of work where people were recorded."""


def terms(unit: str) -> dict[str, str]:
    """Return words for what a run is about, which texts have in braces: `unit`, `held_out` ..."""
    if unit == RECORDINGS:
        templates = WORDS["of_recordings"]
    else:
        templates = WORDS["of_other_data"]
    units = {"unit": unit, "Unit": unit[:1].upper() + unit[1:]}
    return {**units, **{name: text.format(**units) for name, text in templates.items()}}


def stage(name: str, unit: str) -> str:
    """The stage as people read it; an unknown one appears as it is."""
    if name in WORDS["stages"]:
        return str(WORDS["stages"][name]).format(**terms(unit))
    return name


def glossary(unit: str) -> dict[str, str]:
    """The words of a page about such data, with what they mean."""
    meanings = dict(WORDS["glossary"])
    if unit == RECORDINGS:
        meanings |= WORDS["glossary_of_recordings"]
    else:
        del meanings["window"]
    return {word: meaning.format(**terms(unit)) for word, meaning in meanings.items()}


def figure_word(name: str) -> tuple[str, str]:
    """The name of a figure that only some tasks or apps have, and what it says."""
    meaning = WORDS["figures"].get(name, {"word": name, "hint": ""})
    return meaning["word"], meaning["hint"]


NOTHING = "\N{EN DASH}"
"""Stands where nothing is known (yet)."""

_TIMES = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))
_DECIMAL = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def is_number(value: Any) -> TypeGuard[float]:
    """Whether it is a number that can be shown; what a foreign file has need not be."""
    usable = isinstance(value, int | float) and not isinstance(value, bool)
    return usable and -1e300 < value < 1e300


def count(value: float | None) -> str:
    """A whole number with thin groups: `12,345`."""
    if is_number(value):
        return f"{round(value):,}"
    return NOTHING


def figure(value: float | None, digits: int = 4) -> str:
    """A loss or a share: `0.8132`."""
    if is_number(value):
        return f"{value:.{digits}f}"
    return NOTHING


def measure(value: float | None) -> str:
    """A figure of any size: `0.8132`, `12345.68`."""
    if is_number(value):
        return figure_text(value)
    return NOTHING


def give_or_take(error: float | None) -> str:
    """An error as one word, which is never broken into two rows: `± 0.0001235`."""
    return f"±\N{NO-BREAK SPACE}{figure(error, 7)}"


def percent(value: float | None, digits: int = 1) -> str:
    """A share as `81.3 %`."""
    if is_number(value):
        return f"{100 * value:.{digits}f} %"
    return NOTHING


def short(value: float | None) -> str:
    """Three digits that matter, with k, M or G: `1.25 M`."""
    if not is_number(value):
        return NOTHING
    for size, letter in _DECIMAL:
        if abs(value) >= size:
            return f"{_three(value / size)} {letter}"
    return _three(value)


def rate(value: float | None) -> str:
    """A rate: `1.25 M/s`."""
    text = short(value)
    if text == NOTHING:
        return text
    return f"{text}/s"


def amount(value: float | None) -> str:
    """Bytes, decimal: `1.25 MB`."""
    if not is_number(value):
        return NOTHING
    text = short(value)
    if text[-1].isalpha():
        return f"{text}B"
    return f"{text} B"


def rough(value: float | None) -> str:
    """Two digits that matter: `0.00012`."""
    if is_number(value):
        return f"{value:.2g}"
    return NOTHING


def plain(value: float | None) -> str:
    """A number as it is: `3`, `0.5`."""
    if is_number(value):
        return f"{value:g}"
    return NOTHING


def duration(seconds: float | None) -> str:
    """`850 ms`, `12.5 s`, `3 min 20 s`, `2 h 5 min`."""
    if not is_number(seconds) or seconds < 0:
        return NOTHING
    if seconds < 1:
        return f"{round(1000 * seconds)} ms"
    if seconds < 59.95:
        if seconds < 10:
            return f"{seconds:.1f} s"
        return f"{seconds:.0f} s"
    seconds = round(seconds)
    for index, (size, unit) in enumerate(_TIMES):
        if seconds >= size:
            below, lower = (*_TIMES, (1.0, "s"))[index + 1]
            whole, rest = divmod(seconds, size)
            return f"{int(whole)} {unit} {int(rest // below)} {lower}"
    return f"{seconds} s"


def value(setting: Any) -> str:
    """A value of a settings file, or a text, as a page shows it."""
    match setting:
        case None:
            return NOTHING
        case bool():
            if setting:
                return "yes"
            return "no"
        case int() if abs(setting) >= 10_000:
            return f"{setting:,}"
        case float():
            return f"{setting:g}"
        case list():
            return ", ".join(map(value, setting))
        case _:
            return str(setting)


def label(name: Any) -> str:
    """The name of a class as words: `WALKING_UPSTAIRS` is `Walking upstairs`."""
    spaced = value(name).replace("_", " ").strip()
    if spaced.isupper():
        return spaced.capitalize()
    return spaced


def moment(time: str) -> str:
    """An ISO time as people read it: `2026-11-21 23:35:36 UTC`."""
    try:
        return datetime.fromisoformat(time).strftime("%Y-%m-%d %H:%M:%S UTC")
    except ValueError:
        return time


def code(text: str) -> Markup:
    """A key or a name that people type."""
    return Markup("<code>{}</code>").format(text)


def hint(text: str) -> Markup:
    """Words beside others, smaller."""
    return Markup('<span class="hint">{}</span>').format(text)


def spread(mean: str, deviation: str) -> Markup:
    """A mean and its standard deviation."""
    return Markup("<b>{}</b> ± {}").format(mean, deviation)


@lru_cache(64)
def sign(tone: str) -> Markup:
    """The sign of a tone, which the style draws."""
    return Markup('<span class="sign {}" aria-hidden="true"></span>').format(tone)


@lru_cache(64)
def shown(state: Meaning) -> Markup:
    """The word of a state with its sign."""
    text = Markup('<span class="state {}">{}{}</span>')
    return text.format(state.tone, sign(state.tone), state.word)


def run_sign(state: str) -> Markup:
    """The state of a run with its sign."""
    return shown(run_state(state))


_WRITERS: Mapping[str, Callable[..., str]] = {
    writer.__name__: writer
    for writer in (
        *(count, figure, measure, give_or_take, percent, short, rate, amount, duration),
        *(rough, plain, value, label, moment, code, run_sign),
    )
}


@cache
def writer_of(how: str) -> Callable[[Any], str]:
    """Return what writes a value as a row says it: `percent 2` is with two digits."""
    name, *digits = how.split()
    if digits:
        return partial(_WRITERS[name], digits=int(digits[0]))
    return _WRITERS[name]


def significant(value: float | None, digits: int = 5) -> float | None:
    """Return the number with `digits` digits, which keeps charts small.

    None for what JSON has no word for.
    """
    if not is_number(value):
        return None
    return float(f"{value:.{digits}g}")


def _three(value: float) -> str:
    if abs(value) < 100:
        return f"{value:.3g}"
    return f"{value:.0f}"
