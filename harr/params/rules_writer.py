"""What fits with what, of the model that writes: further rules of :mod:`harr.params.rules`."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harr.params import Params


def a_chat_template_can_be_read(params: "Params") -> None:
    """A growing text stands in a model's own chat template where that is here."""
    pipeline, generator = params.pipeline, params.generator
    if getattr(pipeline, "template", "") != "chat" or pipeline.read_later:
        return
    if not (generator.templated or bool(getattr(generator, "tokenizer", None))):
        remedy = "set generator.tokenizer" if generator.kind == "server" else "use generator.kind local or warmstart"
        raise ValueError(
            f"pipeline.template chat writes in the chat template of the model, and generator {generator.kind} has none "
            f"here; {remedy}, or set plain"
        )


def somebody_selects(params: "Params") -> None:
    """The arms best_of and beam have a model that chooses."""
    judged = any(arm.choose in ("judge", "each_search") for arm in params.evaluate.arm_table.values())
    if judged != (params.evaluate.selector is not None):
        raise ValueError(
            "the arms best_of and beam and evaluate.selector, the model that grades answers, go together; give both or "
            "neither"
        )


WRITER_RULES = (a_chat_template_can_be_read, somebody_selects)
