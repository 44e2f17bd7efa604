"""Strategies of absurd and damaged content, for all that reads the bytes of strangers."""

from typing import Any

from hypothesis import strategies as st

Strategy = st.SearchStrategy[Any]
PIECES = (
    b"\r\n",
    b"\r\n\r\n",
    b"\x00",
    b"-1",
    b"9" * 30,
    b"9" * 400,
    b"[" * 400,
    b"[[",
    b"}",
    b",",
    b"NaN",
    b"-Infinity",
    b"1e999",
    b"1e-999",
    b"\xff",
    b"\\ud800",
    b'"',
    b": ",
    b"null",
    b"true",
)


def leaf(*special: Any) -> Strategy:
    """A value of JSON that holds no other; `special` ones are frequent."""
    plain = (st.none(), st.booleans(), st.floats(), st.integers(-(2**70), 2**70))
    return st.one_of(*plain, st.text(max_size=20), st.sampled_from(special))


def anything(*special: Any, leaves: int = 6) -> Strategy:
    """A value of JSON of these leaves."""

    def around(inner: Strategy) -> Strategy:
        pairs = st.dictionaries(st.text(max_size=8), inner, max_size=5)
        return st.one_of(st.lists(inner, max_size=5), pairs)

    return st.recursive(leaf(*special), around, max_leaves=leaves)


def fields(names: tuple[str, ...], *values: Strategy) -> Strategy:
    """An object with some of these names."""
    return st.dictionaries(st.sampled_from(names), st.one_of(*values), max_size=len(names))


@st.composite
def damaged(draw: st.DrawFn, contents: st.SearchStrategy[bytes]) -> bytes:
    """The content with one to four places changed."""
    made = bytearray(draw(contents))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(made)))
        repeated = bytes(made[at : at + 60])
        piece = st.one_of(st.sampled_from(PIECES), st.binary(max_size=8), st.just(repeated))
        made[at : at + draw(st.integers(0, 40))] = draw(piece)
    return bytes(made)
