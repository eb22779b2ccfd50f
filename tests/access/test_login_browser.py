"""A login by a real provider in a real browser: the authorization code flow through st.login, roles, and log-out."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import serving
from oidc_provider import CLIENT, ENDED, SECRET, provider
from playwright.sync_api import Browser, Page, expect
from worlds import add_dataset

from cimemories.access.roles import Role
from cimemories.store.engine import open_store
from cimemories.store.team import log, people
from cimemories.ui import login

pytestmark = pytest.mark.browser
ACCOUNTS = {
    "Ada": {"sub": "1", "name": "Ada", "email": "ada@example.org", "email_verified": True},
    "Mallory": {"sub": "2", "name": "Ada", "email": "ada@example.org", "email_verified": False},
}


def log_in(page: Page, name: str) -> None:
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("link", name=name, exact=True).click()
    page.wait_for_selector(".st-key-who")


def test_people_log_in_by_a_provider_are_held_to_their_roles_and_log_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, browser: Browser
) -> None:
    workspace, port = tmp_path / "workspace", serving.usual_port()
    store = open_store(workspace)
    add_dataset(store, profiles=1, attributes=3, contexts=3)
    people.give(store, "ada@example.org", Role.ADMIN)  # as `cimemories team role` does
    with provider(ACCOUNTS) as own:
        secrets = tmp_path / "secrets.toml"
        values = {
            "redirect_uri": f"http://localhost:{port}/oauth2callback",
            "cookie_secret": "a secret of this test alone, long enough",
            "client_id": CLIENT,
            "client_secret": SECRET,
            "server_metadata_url": f"{own.address}/.well-known/openid-configuration",
        }
        lines = [f"{name} = {json.dumps(value)}" for name, value in values.items()]
        secrets.write_text("\n".join(["[auth]", *lines, "[people]", 'default_role = "viewer"', ""]))
        monkeypatch.setenv("STREAMLIT_SECRETS_FILES", str(secrets))
        with serving.running_app(workspace, "--no-demo", port=port) as (address, _):
            page = serving.open_page(browser, address)
            log_in(page, "Ada")
            expect(page.locator(".st-key-who")).to_contain_text("Ada")

            # An account of the same name and address, which nobody has verified, is somebody else, and looks. After
            # the login they are where the link led.
            other = serving.new_context(browser).new_page()
            other.goto(f"{address}/team?tab=people&next=https%3A%2F%2Fevil.test")
            log_in(other, "Mallory")
            expect(other.locator(".st-key-who")).to_contain_text("Ada (2)")
            assert other.url == f"{address}/team?tab=people"
            assert login.RETURN not in {cookie["name"] for cookie in other.context.cookies()}
            expect(other.get_by_text(re.compile("takes the role admin, and you are a viewer. Ask Ada"))).to_be_visible()

            # What an admin changes holds at once, in a tab that is open.
            page.goto(f"{address}/team?tab=people&person=Ada+(2)")
            role = page.get_by_role("combobox", name=re.compile("Role")).first
            role.click()
            page.get_by_role("option", name="annotator").click()
            page.get_by_role("button", name="Change the role").click()
            expect(page.get_by_text("Ada (2) is now annotator.")).to_be_visible()
            with store.read() as connection:
                logged = [(entry.person, entry.action, entry.subject) for entry in log.entries(connection)][::-1]
                assert logged[1:] == [
                    ("Ada", "person.joined", "Ada"),
                    ("Ada (2)", "person.joined", "Ada (2)"),
                    ("Ada", "role.changed", "Ada (2)"),
                ]
                assert {row.name: row.role for row in people.everybody(connection)} == {
                    "Ada": Role.ADMIN,
                    "Ada (2)": Role.ANNOTATOR,
                }
            page.reload()
            serving.settled(page)
            expect(page).to_have_url(re.compile("person=Ada"))

            # Logging out ends the session here and at the provider, in every tab of the browser, also one that is open.
            third = other.context.new_page()
            third.goto(f"{address}/review")
            third.wait_for_selector(".st-key-who")
            other.get_by_role("button", name="Log out").click()
            expect(other.get_by_text(ENDED)).to_be_visible()
            assert own.logged_out == 1
            expect(third.get_by_role("button", name="Log in")).to_be_visible()
            serving.leave(page)
    store.close()
