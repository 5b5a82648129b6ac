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


WRITER_RULES = (a_chat_template_can_be_read,)
