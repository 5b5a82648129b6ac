"""The parameters of a GRPO run as this package's methods use them: the same loop, warm start and credit."""

from typing import TypeVar

from pydantic import Field, field_validator

from harr.errors import ParamsError
from harr.params.faults import read_section
from harr.params.fields import Plain, Section
from harr.params.train import ArmTrainParams, FunctionTrainParams, GRPOParams, PolicyParams


class SupervisionParams(Section):
    """Settings that both methods share."""

    learning_rate: float | None = Field(None, gt=0)
    """Learning rate of AdamW after the warm-up; null means train.optimizer.learning_rate."""
    temperature: float | None = Field(None, gt=0)
    """Divisor of the scores in the loss; null means retriever.temperature."""
    grpo: Plain = Field({})
    """Parameters of train.method grpo, such as warm_start; an arm takes those of the run unless given."""

    @field_validator("grpo")
    @classmethod
    def _are_of_grpo(cls, values: Plain) -> Plain:
        try:
            read_section(GRPOParams, {"method": "grpo", **values}, "train.method grpo")
        except ParamsError as error:
            raise ValueError(str(error)) from None
        return values


class SupervisedParams(GRPOParams):
    """Section ``train`` of a GRPO run, and the settings of a method of this package."""

    own: SupervisionParams


Policy = TypeVar("Policy", bound=SupervisedParams)


def policy_of(kind: type[Policy], params: FunctionTrainParams) -> Policy:
    """Return the parameters for training by a method of this package.

    An arm has the steps, warm start and credit of the run that it is compared with. The warm start keeps its own
    learning rate.
    """
    run = params.run if isinstance(params, ArmTrainParams) else params
    shared = GRPOParams if isinstance(run, GRPOParams) else PolicyParams
    settings = {name: getattr(run, name) for name in shared.model_fields if hasattr(run, name)}
    settings |= {"method": "grpo", **params.settings.get("grpo", {}), "own": params.settings}
    policy = read_section(kind, settings, "settings of a method of harr_lm_supervision")
    warm = policy.infonce.model_copy(update={"learning_rate": policy.warm_rate})
    rate = policy.own.learning_rate or policy.optimizer.learning_rate
    optimizer = policy.optimizer.model_copy(update={"learning_rate": rate})
    return policy.model_copy(update={"optimizer": optimizer, "infonce": warm})
