"""Files named or uploaded by users, and private files."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Literal

_KINDS = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISLNK, "a symbolic link"),
)


class NotAFileError(OSError):
    """The path is not that of a regular file; `strerror` says its type: 'a named pipe'."""


def open_regular(path: Path, mode: Literal["rb", "ab"] = "rb", *, follow: bool = True) -> BinaryIO:
    """Open a regular file for reading its bytes or appending to it. follow: whether a symbolic link is followed; one in
    a workspace of another person could lead to any file. Raises NotAFileError for anything else before it is opened,
    since a named pipe or a device would be read without end, and OSError if the system refuses."""
    with suppress(FileNotFoundError):  # opening it raises this again, or creates the file
        _refuse_other(os.stat(path, follow_symlinks=follow).st_mode, path)
    # The path may have changed since the first look: O_NONBLOCK avoids waiting for a pipe.
    flags = os.O_RDONLY if mode == "rb" else os.O_WRONLY | os.O_APPEND | os.O_CREAT
    flags |= getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    descriptor = os.open(path, flags if follow else flags | getattr(os, "O_NOFOLLOW", 0), 0o666)
    try:
        _refuse_other(os.fstat(descriptor).st_mode, path)
        return os.fdopen(descriptor, mode)
    except BaseException:
        os.close(descriptor)
        raise


def tail(path: Path, size: int) -> str:
    """Return the last bytes of a file as text; '' if it cannot be read, and for a symbolic link."""
    try:
        with open_regular(path, follow=False) as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - size))
            return stream.read(size).decode("utf-8", "replace")
    except OSError:
        return ""


def _refuse_other(mode: int, path: Path) -> None:
    if not stat.S_ISREG(mode):
        kind = next((description for is_kind, description in _KINDS if is_kind(mode)), "no regular file")
        raise NotAFileError(errno.EINVAL, kind, str(path))


@contextmanager
def uploaded(data: bytes | memoryview, file_name: str) -> Iterator[Path]:
    """Yield the path of an uploaded file, under its name in a folder that lasts as long as the block. The name is
    without folders and at most 200 bytes long; 'upload' if nothing is left."""
    # A browser may send a whole path, of either system: only its last part is a name, and no name may hold NUL.
    name = Path(file_name.replace("\\", "/")).name.replace("\0", "")
    # Bytes, of which file systems take 255 in a name; a character that is cut in two is left out.
    name = name.encode("utf-8", "replace")[:200].decode("utf-8", "ignore") or "upload"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        yield path


# ---- private files
#
# Files that only the person who runs the project may read: folders 0700, files 0600, whatever the umask.
#
# The workspace and the record are made so on opening. Everything else in it is private by the umask of our processes;
# files that a user has written elsewhere have the modes of the user's umask.


UMASK = 0o077
OTHERS = 0o077  # the mode bits of group and others
USERS_UMASK = "CIMEMORIES_UMASK"  # the user's own, in octal: processes that ours start inherit ours


def adopt_umask() -> None:
    """Make files of this process and those that it starts private; the user's own umask is remembered."""
    users = os.umask(UMASK)
    os.environ.setdefault(USERS_UMASK, f"{users:o}")


def users_umask() -> int:
    """Return the user's umask; that of the process if `adopt_umask` was not called."""
    try:
        return int(os.environ[USERS_UMASK], 8) & 0o777
    except (KeyError, ValueError):
        # The umask can only be read by setting another one.
        current = os.umask(UMASK)
        os.umask(current)
        return current


@contextmanager
def with_users_umask(path: Path, workspace: Path) -> Iterator[None]:
    """Write at `path` with the user's umask inside the block, unless it is in the workspace. For processes that write
    nothing else meanwhile: a umask is for all threads."""
    if path.resolve().is_relative_to(workspace.resolve()):
        yield
        return
    ours = os.umask(users_umask())
    try:
        yield
    finally:
        os.umask(ours)


def make_folder(folder: Path) -> None:
    """Make a private folder, or make an existing one private with all that is in it. Raises OSError if none can be
    made.

    A folder that is private already is not searched again. Left as they are: links and their targets, items of another
    user, a folder shared by the whole machine (/tmp), the home folder itself, and everything on a file system that
    cannot be written or has no modes."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = folder.stat().st_mode
    if not mode & OTHERS or mode & stat.S_ISVTX or folder.resolve() in (Path.home(), Path("/")):
        return
    _close(folder)
    for path in _below(folder):
        _close(path)


def make_file(path: Path) -> None:
    """Make an empty private file if there is none; errors show when it is opened."""
    with suppress(OSError):
        # O_EXCL leaves existing files alone, and makes nothing at the end of a dangling link.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def _close(path: Path) -> None:
    with suppress(OSError):
        # lstat: chmod follows a link, which may lead out of the workspace.
        mode = path.lstat().st_mode
        if mode & OTHERS and (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            path.chmod(stat.S_IMODE(mode) & ~OTHERS)


def _below(folder: Path) -> Iterator[Path]:
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            # A folder is closed before its content: no other user can put anything there meanwhile.
            yield Path(entry.path)
            if entry.is_dir(follow_symlinks=False):
                yield from _below(Path(entry.path))
