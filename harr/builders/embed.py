"""Section ``encoder`` becomes what embeds a corpus in place of a model here: a server of the model."""

from harr.embed.encoder import Encoder
from harr.embed.served import ServedEncoder
from harr.params.embed import EncoderParams


def build_served_encoder(section: EncoderParams, encoder: Encoder) -> ServedEncoder | None:
    """Return the server that embeds passages in place of ``encoder``, where params.yaml names one."""
    return ServedEncoder(encoder, section.server) if section.server else None
