"""The answer to a shell that asks what may follow; it asks by a variable of the environment."""

import os

from deploy.commands.ungrouped import completion_variable


def answers_shell(program: str) -> bool:
    """Answer a shell that asks for a completion; False where none asks."""
    instruction = os.environ.get(completion_variable(program))
    if instruction is None:
        return False
    from click.shell_completion import shell_complete

    from deploy.commands.tree import Tree

    shell_complete(Tree(), {}, program, completion_variable(program), instruction)
    return True
