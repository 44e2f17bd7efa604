"""Knowledge distillation: whose answers a network learns from, beside the labels."""

from pydantic import Field

from core.inventory.fields import Section, Text


class DistillSettings(Section):
    """Learns from a finished run's answers too, its teacher's.

    Source: Hinton et al. 2015, https://arxiv.org/abs/1503.02531.
    """

    run: Text = Field(
        description=(
            "the teacher: the folder of a finished training, or its name in `runs`; for `fab job"
            " cv` that of a cross-validation with `jobs.cv.keep_models`"
        )
    )
    weight: float = Field(
        0.5,
        ge=0.0,
        le=1.0,
        description="share of the teacher in the loss; the labels have the rest",
    )
    temperature: float = Field(
        2.0,
        ge=0.1,
        le=100.0,
        description="divides the logits of both, so that the teacher's smaller answers count",
    )
