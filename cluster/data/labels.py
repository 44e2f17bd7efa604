"""`activity_labels.txt` of the UCI sets: what each activity's number means."""

from cluster.data.archive import Tree
from cluster.errors import DataError

ACTIVITIES = "activity_labels.txt"


def activity_labels(tree: Tree) -> tuple[str, ...]:
    """Names of the activities, from lines such as `1 WALKING`, numbered from 1 without a gap.

    Raises DataError naming the line that is none.
    """
    labels: list[str] = []
    where = f"{tree.where}: {ACTIVITIES}"
    for number, line in enumerate(tree.read(ACTIVITIES).decode("latin-1").splitlines(), start=1):
        words = line.split()
        if not words:
            continue
        if len(words) != 2 or words[0] != str(len(labels) + 1) or words[1] in labels:
            raise DataError(
                f"{where}:{number}: expected '{len(labels) + 1} NAME', got {line.strip()[:40]!r}; correct the line"
            )
        labels.append(words[1])
    if not labels:
        raise DataError(f"{where}: expected lines such as '1 WALKING', got none; restore it from the original")
    return tuple(labels)
