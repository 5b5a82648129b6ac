"""The MCP tool ``search``, over streamable HTTP."""

from typing import Annotated, Any

from mcp.server.fastmcp import FastMCP as McpServer
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import Field

from harr.serve.bodies import MAX_BYTES, HopBody, SearchBody, Text
from harr.serve.service import RetrieverService

INSTRUCTIONS = (
    "Searches a corpus of passages with a retriever that was trained to read what a question has led to so far. Send "
    "the user's question, the sub-question of now as query, and in hops what was asked and learnt before."
)


def mcp_server(service: RetrieverService) -> McpServer:
    """Return a server of the Model Context Protocol with one tool; requests are independent."""
    server = McpServer(
        "harr",
        instructions=INSTRUCTIONS,
        json_response=True,
        stateless_http=True,
        log_level="WARNING",
        max_request_body_size=MAX_BYTES,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),  # Door checks the host
    )

    @server.tool(description=INSTRUCTIONS)
    async def search(
        query: Text,
        question: Text = "",
        hops: Annotated[list[HopBody], Field(max_length=100)] = [],  # noqa: B006
        k: Annotated[int | None, Field(ge=1, le=100)] = None,
    ) -> dict[str, Any]:
        return await service.search(SearchBody(query=query, question=question, hops=hops, k=k))

    return server
