"""The workspace's token, which gives access where the system cannot tell whose connection it is."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
import tempfile
from pathlib import Path

FILE = "access-token"
LENGTH = 43  # characters of 32 random bytes in URL-safe base64


class TokenError(Exception):
    """The token's file cannot be used. The message is for people: where, what, what to do next."""


def load(workspace: Path) -> str:
    """Return the token of a workspace, made on the first call and stored, so that bookmarks keep working.

    The file holds the token and its own inode number. In a workspace that was copied from elsewhere the number does not
    match: its sender knows that token, so a new one replaces it. Raises TokenError where the file can be neither read
    nor written.
    """
    path = workspace / FILE
    try:
        workspace.mkdir(mode=0o700, parents=True, exist_ok=True)
        token = _read(path)
        if token is None:
            path.unlink(missing_ok=True)
            token = _create(path)
    except OSError as error:
        raise TokenError(
            f"{path}: the access token cannot be stored there ({error.strerror}). Check the permissions, or choose "
            "another folder with --workspace."
        ) from error
    return token


def matches(token: str, given: str) -> bool:
    return hmac.compare_digest(token.encode(), given.encode("utf-8", "replace"))


def cookie_value(token: str, port: int) -> str:
    """Return the cookie that stands for the token. Browsers send a cookie to every port of a host: another program that
    gets this one can open this app with it, but neither learns the token nor opens an app on another port."""
    return hmac.new(token.encode(), f"cimemories cookie {port}".encode(), hashlib.sha256).hexdigest()


def _read(path: Path) -> str | None:
    """Return the token, or None if there is none, or one that this user did not make in this place."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        return None
    except OSError:
        if path.is_symlink():
            return None
        raise
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        token, _, inode = file.read(200).decode("ascii", "replace").strip().partition(" ")
    ours = stat.S_ISREG(status.st_mode) and (not hasattr(os, "geteuid") or status.st_uid == os.geteuid())
    private = os.name != "posix" or not status.st_mode & 0o077
    return token if ours and private and inode == str(status.st_ino) and len(token) == LENGTH else None


def _create(path: Path) -> str:
    """Create a token, or return the one that another process has put there meanwhile."""
    token = secrets.token_urlsafe(32)
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{FILE}-")  # 0600, whatever the umask
    try:
        with os.fdopen(handle, "w") as file:
            file.write(f"{token} {os.fstat(handle).st_ino}\n")
        try:
            os.link(draft, path)
        except FileExistsError:
            return _read(path) or token
        return token
    finally:
        Path(draft).unlink()
