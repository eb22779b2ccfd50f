"""A login ends on the page on which it began, and nowhere else in the world."""

from __future__ import annotations

from urllib.parse import parse_qsl, quote, urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import RedirectResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from cimemories.ui import login, url

HOST = "studio.example.org"


def client(base: str = "", ends: str | None = None) -> TestClient:
    """A server that goes to its provider and comes back to Home as Streamlit's does; ends: where its callback leads."""
    routes = [
        Route(f"{base}{login.LOGIN}", lambda _: RedirectResponse("https://provider.example.org/authorize", 302)),
        Route(f"{base}{login.CALLBACK}", lambda _: RedirectResponse(f"{base}/" if ends is None else ends, 302)),
    ]
    app = Starlette(routes=routes, middleware=[Middleware(login.Returning, base=base)])
    return TestClient(app, base_url=f"http://{HOST}", follow_redirects=False)


def landed(browser: TestClient, referer: str, base: str = "") -> str:
    """Where a login that began at this address ends."""
    began = browser.get(f"{base}{login.LOGIN}", headers={"referer": referer})
    assert began.headers["location"] == "https://provider.example.org/authorize"
    return browser.get(f"{base}{login.CALLBACK}?code=1&state=2").headers["location"]


@pytest.mark.parametrize("base", ["", "/studio"])
def test_a_login_ends_where_it_began_once(base: str) -> None:
    browser = client(base)
    link = f"{base}/judge_audit?run=run-1&slice=4&search=%C3%BC+%26"
    assert landed(browser, f"http://{HOST}{link}", base) == link
    assert browser.get(f"{base}{login.CALLBACK}").headers["location"] == f"{base}/"
    # An unknown parameter stays behind; a page that is too far to be kept is opened without its view.
    assert landed(browser, f"http://{HOST}{base}/leaks?token=x&run=r", base) == f"{base}/leaks?run=r"
    assert landed(browser, f"http://{HOST}{base}/leaks?search={'x' * 3000}", base) == f"{base}/leaks"
    # Somewhere else a login was begun and not ended: the next one goes by its own beginning.
    browser.get(f"{base}{login.LOGIN}", headers={"referer": f"http://{HOST}{base}/leaks"})
    assert landed(browser, "", base) == f"{base}/"


def test_what_does_not_lead_home_is_left_alone() -> None:
    browser = client(ends="https://provider.example.org/again")
    assert landed(browser, f"http://{HOST}/leaks") == "https://provider.example.org/again"


@pytest.mark.parametrize(
    "referer",
    [
        "https://evil.test/leaks",
        f"http://{HOST}@evil.test/leaks",
        f"http://{HOST}//evil.test/leaks",
        f"http://{HOST}/\\evil.test",
        f"http://{HOST}/%2f%2fevil.test",
        f"http://{HOST}/leaks/../../evil.test",
        f"http://{HOST}/auth/logout",
        f"http://{HOST}:8080/leaks",
        "javascript:alert(1)",
        "http://[::1/leaks",
    ],
)
def test_no_address_leads_out_of_the_app(referer: str) -> None:
    assert landed(client(), referer) == "/"


@given(kept=st.text(st.characters(codec="ascii", exclude_characters="\r\n\0"), max_size=60))
@example("//evil.test/leaks")
@example("https://evil.test/leaks?run=1")
@example("/\\evil.test")
@example("/leaks?run=%0d%0aset-cookie:x")
@example("/leaks#//evil.test")
@example("http://[")
def test_no_cookie_leads_out_of_the_app(kept: str) -> None:
    browser = client()
    browser.cookies.set(login.RETURN, quote(kept, safe=""))
    location = browser.get(f"{login.CALLBACK}?code=1").headers["location"]
    parts = urlsplit(location)
    assert not parts.scheme and not parts.netloc and location.startswith("/") and not location.startswith("//")
    assert parts.path.removeprefix("/") in {"", *url.PAGES}
    assert {name for name, _ in parse_qsl(parts.query)} <= url.PARAMETERS
