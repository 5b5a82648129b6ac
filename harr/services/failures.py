"""What to do about a failed connection, judged only by its error and the environment."""

from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from harr.errors import bare

FIRST_SECONDS = 5.0
"""Seconds within which a server that never answered must begin to listen."""


def connection_remedy(cause: str, address: str, setting: str) -> str:
    """Return what to do if the server at an address cannot be reached.

    Args:
        cause: the error's text.
        address: the server's address.
        setting: the parameter or variable that names it.

    >>> connection_remedy("[Errno 111] Connection refused", "http://127.0.0.1:1", "index.uri")
    'start the server, or correct index.uri'
    >>> connection_remedy("certificate verify failed", "http://127.0.0.1:1", "index.uri")
    'check index.uri and the server that it names'
    """
    if proxy := proxy_for(address):
        return f"it was asked through the proxy {bare(proxy)}: check http_proxy, https_proxy, all_proxy, no_proxy and {setting}"
    return (
        f"start the server, or correct {setting}"
        if "refused" in cause
        else f"check {setting} and the server that it names"
    )


def proxy_for(address: str) -> str:
    """Return the proxy that the environment sets for an address; "" for none."""
    proxies = getproxies()
    try:
        parts = urlsplit(address)
    except ValueError:  # not an address
        return ""
    proxy = proxies.get(parts.scheme) or proxies.get("all", "")
    return "" if not parts.hostname or proxy_bypass(parts.hostname) else proxy
