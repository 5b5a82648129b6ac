"""Uploads to the hub: a description of what would be sent, and one commit with all of it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256 as hash_of
from pathlib import Path
from typing import Literal

from huggingface_hub import CommitOperationAdd, HfApi, constants
from huggingface_hub.errors import HfHubHTTPError, HTTPError  # type: ignore[attr-defined]

from harr.errors import HarrError, ParamsError, ServiceUnavailable, one_line
from harr.io.files import sha256

NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
CARD = "README.md"


@dataclass(frozen=True)
class Upload:
    """A repository, its files (or their content) by path, and its card, which becomes README.md."""

    kind: Literal["dataset", "model"]
    name: str
    private: bool
    files: Mapping[str, Path | bytes]
    card: str


def check_name(name: str) -> None:
    """Check that a name is owner and name.

    Raises:
        ParamsError: it is not; the message says what is expected.
    """
    if not NAME.fullmatch(name) or ".." in name or "--" in name:
        raise ParamsError(f"repository {name!r}: expected OWNER/NAME of letters, digits, '-', '_' and '.'")


def describe(upload: Upload) -> str:
    """Return what :func:`send` sends: the repository, every file with its size and sha256, and the card's text."""
    rows = [(name, *_measured(file)) for name, file in ((CARD, upload.card.encode()), *upload.files.items())]
    width = max(len(name) for name, _, _ in rows)
    lines = [f"  {name:<{width}}  {size:>13,} bytes  sha256 {digest}" for name, size, digest in rows]
    visibility = "private" if upload.private else "public"
    head = f"{upload.kind} {upload.name} at {constants.ENDPOINT}, {visibility} if it is new, {len(rows)} files:"
    return "\n".join([head, *lines, "", f"{CARD}:", upload.card])


def list_hashes(files: Mapping[str, Path | bytes]) -> bytes:
    """Return the content of sha256sums.txt for files, or their content, by path."""
    return "".join(f"{_measured(file)[1]}  {name}\n" for name, file in sorted(files.items())).encode()


def check_online() -> None:
    """Check that the hub's client may use the network.

    Raises:
        ParamsError: it may not; the message names the variable.
    """
    if constants.is_offline_mode():
        raise ParamsError("HF_HUB_OFFLINE (or TRANSFORMERS_OFFLINE) forbids uploads; unset it, or use --dry-run")


def send(upload: Upload, token: str) -> str:
    """Create the repository if it is missing and commit everything at once; return the commit's address.

    Files in the repository that are not sent stay. The token appears in no message.

    Raises:
        ParamsError: the hub refuses the token, the name or the card, or the repository is public and should not be.
        ServiceUnavailable: no answer.
    """
    api = HfApi(token=token)
    additions = [CommitOperationAdd(CARD, upload.card.encode())]
    additions += [CommitOperationAdd(name, file) for name, file in upload.files.items()]
    try:
        api.create_repo(upload.name, repo_type=upload.kind, private=upload.private, exist_ok=True)
        if upload.private and not api.repo_info(upload.name, repo_type=upload.kind).private:
            raise ParamsError(
                f"{upload.kind} {upload.name} exists and is public; nothing was sent; "
                "drop --private, or make it private on the hub"
            )
        commit = api.create_commit(upload.name, additions, repo_type=upload.kind, commit_message="Upload by harr")
    except HarrError:
        raise
    except HfHubHTTPError as error:
        raise _refusal(upload, error, token) from None
    except (HTTPError, OSError, RuntimeError) as error:
        raise ServiceUnavailable(
            f"{upload.kind} {upload.name}: no answer from {constants.ENDPOINT} ({one_line(error, 300, secret=token)}); "
            "check the connection or HF_ENDPOINT and push again"
        ) from None
    except ValueError as error:  # the card's header, or an invalid answer
        raise ParamsError(
            f"{upload.kind} {upload.name}: {constants.ENDPOINT} says: {one_line(error, 300, secret=token)}"
        ) from None
    return commit.commit_url


def _measured(file: Path | bytes) -> tuple[int, str]:
    """Return the size and sha256."""
    return (len(file), hash_of(file).hexdigest()) if isinstance(file, bytes) else (file.stat().st_size, sha256(file))


def _refusal(upload: Upload, error: HfHubHTTPError, token: str) -> HarrError:
    """Return an HTTP error in the user's terms."""
    status = error.response.status_code
    where = f"{upload.kind} {upload.name}: HTTP {status} from {constants.ENDPOINT}"
    advice = {
        401: "the token in HF_TOKEN is not accepted; make one with write access",
        403: f"the token in HF_TOKEN may not write there; give it write access to {upload.name.split('/')[0]}",
        404: "not found; check owner and name, and that the token in HF_TOKEN may see them",
    }
    if status in advice:
        return ParamsError(f"{where}: {advice[status]}")
    said = f"{where} ({one_line(error, 300, secret=token)})"
    return ServiceUnavailable(f"{said}; push again later") if status == 429 or status >= 500 else ParamsError(said)
