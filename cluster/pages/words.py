"""What the words on page and report mean, and in which tone a state is shown."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Meaning:
    """A state as people read it. `tone` is well, waiting, warning, bad or off: its colour and sign."""

    word: str
    tone: str
    meaning: str


RUN_STATES = {
    "preparing": Meaning("preparing", "waiting", "reads the recordings and connects the roles"),
    "running": Meaning("running", "well", "the job runs"),
    "done": Meaning("done", "well", "complete"),
    "cancelled": Meaning("cancelled", "off", "ended by a person before it was complete"),
    "failed": Meaning("failed", "bad", "ended by an error"),
}

ROLE_STATES = {
    "absent": Meaning("away", "bad", "does not answer; it is asked again and again"),
    "joining": Meaning("joining", "waiting", "answers, and is being taken in"),
    "idle": Meaning("idle", "waiting", "in the cluster, without work at the moment"),
    "busy": Meaning("working", "well", "in the cluster, computing"),
    "suspect": Meaning("suspected", "warning", "silent for longer than its work should take"),
    "slow": Meaning("slow", "warning", "alive, and late with its work"),
    "fenced": Meaning("shut out", "bad", "too late: nothing it still sends counts"),
    "drained": Meaning("drained", "off", "taken out by a person"),
    "up": Meaning("up", "well", "answers"),
    "lost": Meaning("lost", "bad", "does not answer"),
    "unknown": Meaning("not known", "off", "nothing was heard of it yet"),
}

SPAN_STATES = {"working": 2, "suspected": 1, "away": 5}
"""States of the timeline, and the colour of each."""

STAGES = {
    "train": "training",
    "refit": "training again on all people",
    "validation": "looking at held-out people",
    "test": "the final test",
    "pi": "drawing random points",
}

STEP_PARTS = {
    "pull": "fetching parameters",
    "compute": "computing the gradient",
    "push": "sending the gradient",
    "wait": "in queues and between",
}

EVENT_TONES = {
    "run": "waiting",
    "stage": "waiting",
    "joined": "well",
    "suspected": "warning",
    "answers": "well",
    "left": "bad",
    "drained": "off",
    "checkpoint": "off",
    "resumed": "warning",
    "fault": "bad",
    "warning": "warning",
    "done": "well",
    "cancelled": "off",
    "failed": "bad",
}

GLOSSARY = {
    "coordinator": "the process that runs the job: it hands out work and serves this page while it does",
    "worker": "a process that computes: gradients in a training, random points in the pi job",
    "parameter server (ps)": "a process that keeps the network's parameters and applies every update to them",
    "window": "a short piece of a recording, by default 128 moments (2.56 s), which the network names an activity for",
    "batch": "the windows that one update is computed from",
    "epoch": "one pass over all training windows",
    "update": "one change of the parameters, from the gradient of one batch",
    "step": "what a worker does for an update: pull, compute, push",
    "pull": "a worker fetches the present parameters from the parameter servers",
    "push": "a worker sends its gradient to the parameter servers",
    "gradient": "in which direction, and how strongly, the parameters should change",
    "staleness": "how many updates of others were applied between a worker's pull and its push; 0 is perfectly fresh",
    "loss": "how wrong the network is, as the cross-entropy of its answers: 0 is perfect, guessing among six is 1.79",
    "accuracy": "share of windows that were named correctly",
    "precision": "of the windows that were given this name, the share that deserve it",
    "recall": "of the windows that deserve this name, the share that were given it",
    "F1": "precision and recall in one number, their harmonic mean; macro: the mean over classes",
    "validation": "people of the training set who are held out, to choose the best epoch; never the test set",
    "learning rate": "how big a change each update makes",
    "checkpoint": "the state of the training on disk, from which it resumes after a failure",
    "standard error": "how far off the estimate typically is by chance: two in three times it is closer than that",
    "suspected": "a worker that is silent for longer than its work should take",
    "shut out (fenced)": "a worker that was too late: nothing it still sends counts, and it has to join again",
    "drained": "a worker that a person took out of the cluster",
}


def run_state(state: str) -> Meaning:
    """The state of a run; one that is not known is shown as it is."""
    return RUN_STATES.get(state, Meaning(state, "off", ""))


def role_state(state: str) -> Meaning:
    """The state of a role; one that is not known is shown as it is."""
    return ROLE_STATES.get(state, Meaning(state, "off", ""))


def stage(name: str) -> str:
    """A stage in words."""
    return STAGES.get(name, name)
