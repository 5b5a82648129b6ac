"""The pages of the Data Docs that are there."""

from tasks.paths import CHECKS


def data_docs() -> dict[str, str]:
    """Return the latest page of every suite that ran."""
    return {
        folder.name: str(max(folder.rglob("*.html")))
        for folder in sorted(CHECKS.glob("*"))
        if any(folder.rglob("*.html"))
    }
