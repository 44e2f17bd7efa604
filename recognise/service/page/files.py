"""The page's files as routes: read once, served to everybody who reaches the port.

They hold no secret.

The token is in the fragment of the page's address, which a browser never sends; the page sends it
in the first message of its stream.
"""

import re
from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from core.web import STATIC as SHARED

STATIC = Path(__file__).parent / "static"
INDEX = "/"
BELOW = "/page/"
AUTHORITY = "/authority.crt"
_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_HOST = re.compile(r"[A-Za-z0-9.:\[\]-]{1,255}")


def is_page(path: str) -> bool:
    """Return whether this path is a file of the page, which needs no token and may be linked to."""
    return path in (INDEX, AUTHORITY) or path.startswith(BELOW)


def routes(authority: Path | None) -> list[Route]:
    """Return the routes. Phones may install the certificate `authority`."""
    files = {
        path.name: path for path in (SHARED / "style.css", SHARED / "icon.svg", *STATIC.iterdir())
    }
    contents = {name: (path.read_bytes(), _KINDS[path.suffix]) for name, path in files.items()}

    async def index(request: Request) -> Response:
        content, kind = contents["index.html"]
        return Response(content, headers={"content-type": kind, **_policy(request.headers["host"])})

    async def file(request: Request) -> Response:
        entry = contents.get(request.path_params["name"])
        if entry is None:
            return JSONResponse({"error": "expected a file of the page"}, 404)
        return Response(entry[0], headers={"content-type": entry[1]})

    async def certificate(_request: Request) -> Response:
        if authority is None:
            return JSONResponse(
                {"error": "this service has no certificate authority of its own"}, 404
            )
        return Response(
            authority.read_bytes(), headers={"content-type": "application/x-x509-ca-cert"}
        )

    return [Route(INDEX, index), Route(BELOW + "{name}", file), Route(AUTHORITY, certificate)]


def _policy(host: str) -> dict[str, str]:
    """Return headers that allow requests to this service alone.

    Some versions of Safari do not count the own WebSocket among 'self'.
    """
    if _HOST.fullmatch(host):
        sockets = f" ws://{host} wss://{host}"
    else:
        sockets = ""
    return {
        "content-security-policy": (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src"
            f" 'self'{sockets}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        ),
        "referrer-policy": "no-referrer",
        "permissions-policy": (
            "accelerometer=(self), gyroscope=(self), camera=(), microphone=(), geolocation=()"
        ),
    }
