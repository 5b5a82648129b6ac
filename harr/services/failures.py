"""What to do about a connection that failed: only what its error and the environment tell."""

from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from harr.errors import bare

FIRST_SECONDS = 5.0
"""Number of seconds in which a server that never answered must begin to listen."""


def connection_remedy(cause: str, address: str, setting: str) -> str:
    """Return what to do where a server of an address could not be reached.

    Args:
        cause: text of the error.
        address: what was asked.
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
    """Return the proxy through which the environment has an address asked; "" for none."""
    proxies = getproxies()
    try:
        parts = urlsplit(address)
    except ValueError:  # it is no address
        return ""
    proxy = proxies.get(parts.scheme) or proxies.get("all", "")
    return "" if not parts.hostname or proxy_bypass(parts.hostname) else proxy
