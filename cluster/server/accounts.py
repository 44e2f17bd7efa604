"""Accounts of this machine, as a person knows them."""

import contextlib
import pwd


def account_name(uid: int) -> str:
    """Name and uid, or the uid alone where the account has no name."""
    with contextlib.suppress(KeyError):
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    return f"uid {uid}"
