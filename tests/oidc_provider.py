"""An OpenID Connect provider on loopback: the authorization code flow with signed ID tokens, for tests of a login.

It has discovery, a page that asks which account to use, codes that work once, PKCE, keys, and a log-out. Accounts are
claims by name; whoever clicks a name is that account.
"""

from __future__ import annotations

import base64
import hashlib
import html
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

import uvicorn
from joserfc import jwt
from joserfc.jwk import RSAKey
from serving import free_port
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

CLIENT, SECRET = "studio", "secret-of-this-client"
ENDED = "You are logged out of the provider."


class Provider:
    """accounts: the claims of each, by the name that its button has. logged_out: how often somebody has ended their
    session here."""

    def __init__(self, accounts: Mapping[str, Mapping[str, Any]]) -> None:
        self.address = f"http://localhost:{free_port()}"
        self.accounts = dict(accounts)
        self.logged_out = 0
        self._key = RSAKey.generate_key(2048, {"kid": "1", "alg": "RS256", "use": "sig"})
        self._codes: dict[str, tuple[str, dict[str, str]]] = {}

    def app(self) -> Starlette:
        routes = {
            "/.well-known/openid-configuration": self._discovery,
            "/authorize": self._ask,
            "/chosen": self._chosen,
            "/keys": lambda _: JSONResponse({"keys": [self._key.as_dict(private=False)]}),
            "/end": self._end,
        }
        return Starlette(
            routes=[Route(path, act) for path, act in routes.items()] + [Route("/token", self._token, methods=["POST"])]
        )

    def _discovery(self, _: Request) -> Response:
        at = self.address
        return JSONResponse(
            {
                "issuer": at,
                "authorization_endpoint": f"{at}/authorize",
                "token_endpoint": f"{at}/token",
                "jwks_uri": f"{at}/keys",
                "end_session_endpoint": f"{at}/end",
                "response_types_supported": ["code"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["RS256"],
                "code_challenge_methods_supported": ["S256"],
            }
        )

    def _ask(self, request: Request) -> Response:
        assert request.query_params["client_id"] == CLIENT and request.query_params["response_type"] == "code"
        links = (
            f'<a href="/chosen?{html.escape(urlencode([("account", name), *request.query_params.items()]))}">{name}</a>'
            for name in self.accounts
        )
        return HTMLResponse(f"<h1>Which account?</h1>{' '.join(links)}")

    def _chosen(self, request: Request) -> Response:
        given = dict(request.query_params)
        code = secrets.token_urlsafe()
        self._codes[code] = given["account"], given
        return RedirectResponse(f"{given['redirect_uri']}?{urlencode({'code': code, 'state': given['state']})}", 302)

    async def _token(self, request: Request) -> Response:
        form = {name: str(value) for name, value in (await request.form()).items()}
        basic = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        name, given = self._codes.pop(form["code"], ("", {}))  # a code works once
        proof = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        proven = base64.urlsafe_b64encode(proof).rstrip(b"=").decode() == given.get("code_challenge")
        known = request.headers.get("authorization") == f"Basic {basic}" or form.get("client_secret") == SECRET
        if not (name and proven and known and form["redirect_uri"] == given["redirect_uri"]):
            return JSONResponse({"error": "invalid_grant"}, 400)
        now = int(time.time())
        claims = {"iss": self.address, "aud": CLIENT, "iat": now, "exp": now + 300, "nonce": given["nonce"]}
        token = jwt.encode({"alg": "RS256", "kid": "1"}, {**claims, **self.accounts[name]}, self._key)
        return JSONResponse(
            {"access_token": secrets.token_urlsafe(), "token_type": "Bearer", "expires_in": 300, "id_token": token}
        )

    def _end(self, request: Request) -> Response:
        assert request.query_params["client_id"] == CLIENT
        self.logged_out += 1
        return HTMLResponse(f"<p>{ENDED}</p>")


@contextmanager
def provider(accounts: Mapping[str, Mapping[str, Any]]) -> Iterator[Provider]:
    """A provider that serves until the block ends."""
    own = Provider(accounts)
    port = int(own.address.rpartition(":")[2])
    server = uvicorn.Server(uvicorn.Config(own.app(), port=port, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        deadline = time.monotonic() + 30
        while not server.started:
            assert time.monotonic() < deadline, "the provider does not start"
            time.sleep(0.01)
        yield own
    finally:
        server.should_exit = True
        thread.join(20)
