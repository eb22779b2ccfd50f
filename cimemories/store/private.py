"""Files that only the person who runs the project may read: folders 0700, files 0600, whatever the umask.

The workspace and the record are made so on opening. Everything else in it is private by the umask of our processes;
what a person has written to a place of their own has the modes that their umask gives.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

UMASK = 0o077
OTHERS = 0o077  # the mode bits of group and others
USERS_UMASK = "CIMEMORIES_UMASK"  # the user's own, in octal: processes that ours start inherit ours


def adopt_umask() -> None:
    """Make what this process and those that it starts write private; the user's own umask is remembered."""
    users = os.umask(UMASK)
    os.environ.setdefault(USERS_UMASK, f"{users:o}")


def users_umask() -> int:
    """The umask that the user had set; the process's own where `adopt_umask` was not called."""
    try:
        return int(os.environ[USERS_UMASK], 8) & 0o777
    except (KeyError, ValueError):
        current = os.umask(UMASK)
        os.umask(current)
        return current


@contextmanager
def written_for_user(path: Path, workspace: Path) -> Iterator[None]:
    """A block that writes what the user asked for at `path`: with their umask, unless it is in the workspace. For
    processes that write nothing else meanwhile: a umask is for all threads."""
    if path.resolve().is_relative_to(workspace.resolve()):
        yield
        return
    ours = os.umask(users_umask())
    try:
        yield
    finally:
        os.umask(ours)


def make_folder(folder: Path) -> None:
    """Make a private folder, or one that is there private with all that is in it. Raises OSError where there is none
    and none can be made.

    One that is private already is not gone through again. Left as they are: links and what they lead to, what belongs
    to another user, a folder shared by the whole machine (/tmp), the home folder itself, and everything on a file
    system that cannot be written or knows no modes.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = folder.stat().st_mode
    if not mode & OTHERS or mode & stat.S_ISVTX or folder.resolve() in (Path.home(), Path("/")):
        return
    _close(folder)
    for path in _below(folder):
        _close(path)


def make_file(path: Path) -> None:
    """Make an empty private file where there is none. Whoever opens it next says what hinders it."""
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def _close(path: Path) -> None:
    with suppress(OSError):
        mode = path.lstat().st_mode
        if mode & OTHERS and (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            path.chmod(stat.S_IMODE(mode) & ~OTHERS)


def _below(folder: Path) -> Iterator[Path]:
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            yield Path(entry.path)
            if entry.is_dir(follow_symlinks=False):
                yield from _below(Path(entry.path))
