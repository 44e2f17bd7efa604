"""Why a request gets no answer: an HTTP status and one line for the person who sent it."""


class RefusedError(Exception):
    """A request that is refused; the protocol's error object carries `words`."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status, self.words = status, words


def bad(words: str) -> RefusedError:
    """The request is wrong (400)."""
    return RefusedError(400, words)
