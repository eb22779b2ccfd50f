"""Files that people name or upload. A named pipe or a device would be waited for, or read, without end."""

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
    """The path leads to something else than a regular file; `strerror` says to what: 'a named pipe'."""


def open_regular(path: Path, mode: Literal["rb", "ab"] = "rb", *, follow: bool = True) -> BinaryIO:
    """A regular file for reading its bytes or appending to it. follow: whether a symbolic link is followed; one in a
    workspace that came from somebody else could lead to any file. Raises NotAFileError for anything else, before it is
    opened, and OSError where the system refuses."""
    with suppress(FileNotFoundError):  # which opening it raises again, or mends by creating the file
        _refuse_other(os.stat(path, follow_symlinks=follow).st_mode, path)
    # Between the two looks the path may have come to lead elsewhere: O_NONBLOCK keeps a pipe from being waited for.
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
    """The last bytes of a file as text; '' where it cannot be read, and for a symbolic link."""
    try:
        with open_regular(path, follow=False) as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - size))
            return stream.read(size).decode("utf-8", "replace")
    except OSError:
        return ""


def _refuse_other(mode: int, path: Path) -> None:
    if not stat.S_ISREG(mode):
        kind = next((words for is_kind, words in _KINDS if is_kind(mode)), "no regular file")
        raise NotAFileError(errno.EINVAL, kind, str(path))


@contextmanager
def uploaded(data: bytes | memoryview, file_name: str) -> Iterator[Path]:
    """An uploaded file under its own name in a folder that lasts as long as the block. Its name is
    without folders and at most 200 bytes long; 'upload' where nothing is left."""
    # A browser may send a whole path, of either system: only its last part is a name, and no name may hold NUL.
    own = Path(file_name.replace("\\", "/")).name.replace("\0", "")
    # Bytes, of which file systems take 255 in a name; a character that is cut in two is left out.
    own = own.encode("utf-8", "replace")[:200].decode("utf-8", "ignore") or "upload"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / own
        path.write_bytes(data)
        yield path
