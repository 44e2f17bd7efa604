"""Why `sudo` gives an account no root, and the line that mends it.

A cause that is not known is quoted.
"""

import re

_FILE = re.compile(
    r"(/etc/sudoers(?:\.d/[^\s:]+)?)(?:: | is )(?:world writable|group writable|owned by|bad"
    r" permissions)"
)
_NOT_ALLOWED = ("a password is required", "not in the sudoers", "not allowed", "may not run sudo")


def no_root(user: str, node: str, message: str) -> str:
    """Return what a message says of a refusal: sudo's `message` and the remedy. Pure."""
    name = user.replace(".", "_")  # sudo ignores files with a dot in their names
    match = _FILE.search(message)
    if match:
        file = match[1]
        return (
            f"sudo ignores {file} because others may write it ({message}): "
            f"`sudo install -m 0440 {file} {file}.new && sudo mv {file}.new {file}` there"
        )
    if "must have a tty" in message:
        line = f"Defaults:{user} !requiretty"
        return (
            f"sudo wants a terminal ({message}): `echo '{line}' | sudo tee"
            f" /etc/sudoers.d/011_{name}-no-tty` there"
        )
    if any(phrase in message for phrase in _NOT_ALLOWED):
        line = f"{user} ALL=(ALL) NOPASSWD: ALL"
        return (
            f"{user} may not use sudo without a password ({message}): "
            f"`echo '{line}' | sudo tee /etc/sudoers.d/010_{name}-nopasswd` there"
        )
    return f"{user} gets no root: {message}; `fab deploy ssh --node {node}` looks at it by hand"
