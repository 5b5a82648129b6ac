"""Games in which a map of the query's vector learns on top of a frozen encoder."""

from dataclasses import replace

from harr.rag.policies.query_adapter import QueryAdapter
from harr.rag.setup import Setup


def with_query_adapter(setup: Setup) -> Setup:
    """Return a game whose encoder stays as it is."""
    adapter = QueryAdapter(setup.policy.encoder.width)
    return replace(setup, retriever=replace(setup.policy, frozen=True, query_adapter=adapter))
