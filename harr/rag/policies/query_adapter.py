"""A linear map of the query's vector: the smallest part that can learn over fixed passage vectors.

The query's vector v becomes W v / |W v|, where W, (D, D), starts as the identity. No layer of the encoder learns, so
every state is encoded once. Applications can apply it to vectors from any source (docs/usage.md).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from sentence_transformers.sentence_transformer.modules import Dense, Normalize
from torch import Tensor
from torch.nn.functional import normalize

from harr.embed.encoder import Encoder
from harr.errors import ModelError

QUERY_ADAPTER = "query_adapter.safetensors"
"""File of W, tensor ``weight``, in the folder of an adapter."""


class QueryAdapter(torch.nn.Linear):
    """The map W while it learns."""

    def __init__(self, width: int) -> None:
        """Start with the identity."""
        super().__init__(width, width, bias=False)
        torch.nn.init.eye_(self.weight)
        self._on = True

    def forward(self, vectors_BD: Tensor) -> Tensor:
        """Return mapped unit vectors, (B, D).

        >>> QueryAdapter(2)(torch.tensor([[0.6, 0.8]])).tolist()[0]
        [0.6000000238418579, 0.800000011920929]
        """
        return normalize(super().forward(vectors_BD), dim=-1) if self._on else vectors_BD

    @contextmanager
    def disable_adapter(self) -> Iterator[None]:
        """Leave vectors unchanged within the context, as PEFT's adapters do."""
        self._on = False
        try:
            yield
        finally:
            self._on = True

    def save(self, folder: Path) -> None:
        """Write W into the folder of an adapter."""
        save_file({"weight": self.weight.detach().cpu().contiguous()}, folder / QUERY_ADAPTER)


def put_on(encoder: Encoder, folder: Path) -> None:
    """Add the map in ``folder`` to an encoder as a separate module, before it normalises.

    Raises:
        ModelError: the map has another width.
    """
    weight_DD = load_file(folder / QUERY_ADAPTER)["weight"]
    if tuple(weight_DD.shape) != (encoder.width, encoder.width):
        raise ModelError(f"{folder / QUERY_ADAPTER} is of width {len(weight_DD)}, {encoder.name} of {encoder.width}")
    dense = Dense(encoder.width, encoder.width, False, torch.nn.Identity(), init_weight=weight_DD)
    last = len(encoder.model) - isinstance(encoder.model[-1], Normalize)
    encoder.model.insert(last, dense.to(encoder.model.device))
