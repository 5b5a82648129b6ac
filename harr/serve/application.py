"""The routes of `harr serve`."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, Response
from starlette.exceptions import HTTPException

from harr import __version__
from harr.errors import CorpusError, HarrError, ParamsError, ServiceUnavailable, one_line
from harr.serve.bodies import EmbedBody, RetrieveBody, SearchBody, read_body
from harr.serve.mcp_tools import mcp_server
from harr.serve.microbatch import Overloaded
from harr.serve.middleware import Door
from harr.serve.searcher import Answer, Ask
from harr.serve.service import RetrieverService
from harr.types import Passage, Question, Search

PAGE = Path(__file__).with_name("page.html")
SAFE = "default-src 'none'; connect-src 'self'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def application(service: RetrieverService, *, token: str = "", loopback: bool = True) -> FastAPI:
    """Return the server; ``token``: what requests must send; ``loopback``: whether only this machine can reach it."""
    mcp = mcp_server(service)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with mcp.session_manager.run():
            yield
        service.close()

    app = FastAPI(title="harr serve", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    _add_searches(app, service)
    _add_pages(app, service)
    app.router.routes += mcp.streamable_http_app().routes
    for observer in service.observers.values():
        app.router.routes += observer.routes()
    app.add_exception_handler(HarrError, _answer_error)
    app.add_exception_handler(Overloaded, _answer_overload)
    app.add_exception_handler(HTTPException, _answer_unknown)
    app.add_middleware(Door, token=token, loopback=loopback, counted=service.monitor.answered)
    return app


def _add_searches(app: FastAPI, service: RetrieverService) -> None:
    @app.post("/search", openapi_extra=_describe_body(SearchBody))
    async def search(request: Request) -> Response:
        """Find passages for a question, its hops or a chat, and a query."""
        return _json(await service.search(read_body(SearchBody, await request.body())))

    @app.post("/retrieve", openapi_extra=_describe_body(RetrieveBody))
    async def retrieve(request: Request) -> Response:
        """Find passages as Search-R1's retrieval server does: plain queries, without a history."""
        body = read_body(RetrieveBody, await request.body())
        queries = body.queries if body.queries is not None else [body.query or ""]
        answers = await service.ask([Ask("champion", Search(Question("", q), q, k=body.topk or 0)) for q in queries])
        return _json({"result": [_hits(answer, body.return_scores) for answer in answers]})

    @app.post("/embed", openapi_extra=_describe_body(EmbedBody))
    async def embed(request: Request) -> Response:
        """Return unit vectors of states or passages."""
        body = read_body(EmbedBody, await request.body())
        inputs = [body.inputs] if isinstance(body.inputs, str) else body.inputs
        answers = await service.ask([Ask("champion" if body.tower == "query" else "frozen", text) for text in inputs])
        return _json({"vectors": [a.vector for a in answers], "versions": sorted({a.version for a in answers})})


def _add_pages(app: FastAPI, service: RetrieverService) -> None:
    @app.get("/health")
    async def health() -> Response:
        """Say what runs here."""
        return _json(service.health())

    @app.get("/metrics")
    async def metrics() -> Response:
        """Return the figures for Prometheus."""
        facts = service.health()
        service.monitor.version(facts["version"])
        service.monitor.waiting.set(facts["waiting"])
        service.monitor.changes.set(facts["changes"])
        service.monitor.problem.set(bool(facts["problem"]))
        service.monitor.passages.set(facts["passages"])
        return Response(service.monitor.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        headers = {"Content-Security-Policy": SAFE, "X-Content-Type-Options": "nosniff"}
        return HTMLResponse(_page(), headers=headers)


@cache
def _page() -> str:
    return PAGE.read_text(encoding="utf-8")


def _describe_body(kind: Any) -> dict[str, Any]:
    schema = kind.model_json_schema(ref_template="#/components/schemas/{model}")
    schema.pop("$defs", None)
    return {"requestBody": {"content": {"application/json": {"schema": schema}}, "required": True}}


def _hits(answer: Answer, scored: bool) -> list[dict[str, Any]]:
    assert answer.found is not None
    hits = [(_document(passage), score) for passage, score in answer.found.scored]
    return [{"document": document, "score": score} if scored else document for document, score in hits]


def _document(passage: Passage) -> dict[str, str]:
    """Return a passage as a Search-R1 document: ``contents`` is its title in quotes, a line break, and its text.

    >>> _document(Passage("7", "Born in Bath.", "Ada Brown"))["contents"]
    '"Ada Brown"\\nBorn in Bath.'
    """
    return {
        "id": passage.id,
        "title": passage.title,
        "text": passage.text,
        "contents": f'"{passage.title}"\n{passage.text}',
    }


def _json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    return Response(body, status_code=status, media_type="application/json", headers=headers)


async def _answer_error(_: Request, error: Exception) -> Response:
    """Answer with an error of the request (422), of a server behind this one (503), or of this server (500)."""
    status = 422 if isinstance(error, ParamsError | CorpusError) else 503
    return _json(
        {"error": one_line(error, 300)}, status if status == 422 or isinstance(error, ServiceUnavailable) else 500
    )


async def _answer_unknown(request: Request, error: Exception) -> Response:
    """Answer that there is no such route, or that it lacks this method."""
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path[:100]}: {error.detail}; the routes are in docs/serve.md"
    return _json({"error": message}, error.status_code, dict(error.headers or {}))


async def _answer_overload(_: Request, error: Exception) -> Response:
    assert isinstance(error, Overloaded)
    return _json({"error": str(error)}, 503, {"Retry-After": str(round(error.seconds))})
