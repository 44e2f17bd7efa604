"""How far an export may be from TensorFlow: the bounds, and who refuses an export beyond them."""

from pathlib import Path

from core.exported.description import NAME, Description
from core.ground.errors import UsageError

LARGEST_DIFFERENCE = 1e-4
"""The greatest difference of a logit in float32, relative to its window's largest one above 1."""
LARGEST_LOSS = 0.01
"""The greatest loss in the share of right labels with int8, of equal labels in float32."""


def refuse_unverified(description: Description, folder: Path) -> None:
    """Raise UsageError for an export whose `export.json` does not show that it answers right.

    Right is what TensorFlow answers.

    `fab export` writes no such file: it comes from another program, or was changed.
    """
    problem = _problem(description)
    if problem:
        raise UsageError(f"{folder / NAME}: check: {problem}: export the run again")


def _problem(description: Description) -> str:
    check = description.check
    if check.windows < 1:
        return "expected test windows that were compared with TensorFlow, got none"
    if description.quantized is None:
        if check.greatest_difference > LARGEST_DIFFERENCE:
            return (
                f"expected logits within {LARGEST_DIFFERENCE:g} of TensorFlow's, got a difference"
                f" of {check.greatest_difference:.3g}"
            )
        if check.same_labels is not None and check.same_labels < 1 - LARGEST_LOSS:
            return (
                f"expected TensorFlow's label for each window, got it for {check.same_labels:.1%}"
            )
        return ""
    if check.accuracy is None or check.accuracy_tensorflow is None:
        return "expected the accuracies of TensorFlow and of the int8 model, got none"
    lost = check.accuracy_tensorflow - check.accuracy
    if lost > LARGEST_LOSS:
        return (
            f"expected at most {LARGEST_LOSS:.0%} fewer right labels than TensorFlow, got"
            f" {lost:.1%} fewer"
        )
    return ""
