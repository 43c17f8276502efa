"""Where the pictures of a request come from: data URLs, and files below the allowed root.

Copies each into a private folder, from where a page worker opens it: nothing is decoded here. A
path is resolved first and then opened step by step without following links, so that nobody can
lead it out of the root in between. Refuses to fetch anything from a network.
"""

import base64
import binascii
import os
import re
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

from vlmcli.serve.faults import ApiError, bad_request

_DATA = re.compile(r"data:(?P<kind>[\w.+-]+/[\w.+-]+)?(?P<parameters>(;[^,;]*)*),", re.ASCII)
_PARAM = "messages"


def store_pictures(
    urls: Sequence[str], folder: Path, *, root: Path | None, max_bytes: int
) -> tuple[Path, ...]:
    """Copy the pictures into `folder`.

    Args:
        urls: of the pictures.
        folder: private to the request.
        root: folder of the files that may be named; None for none.
        max_bytes: of a file.

    Raises:
        ApiError: a URL is no data URL and no file below the root.
    """
    paths = []
    for number, url in enumerate(urls):
        path = folder / f"picture-{number}"
        if url[:5].lower() == "data:":
            path.write_bytes(decode_data_url(url))
        elif url[:7].lower() == "file://":
            _copy_file(url, path, root, max_bytes)
        else:
            raise bad_request(
                "a picture must be a data: URL"
                + (" or a file:// URL" if root is not None else "")
                + "; nothing is fetched from a network",
                param=_PARAM,
                code="unsupported_url",
            )
        paths.append(path)
    return tuple(paths)


def decode_data_url(url: str) -> bytes:
    """The bytes of a base64 data URL of a picture.

    Raises:
        ApiError: it is none.
    """
    match = _DATA.match(url)
    is_picture = match is not None and (match["kind"] or "").lower().startswith("image/")
    if match is None or not is_picture or not match["parameters"].lower().endswith(";base64"):
        raise bad_request(
            "not a data URL of a picture, as in data:image/png;base64,...",
            param=_PARAM,
            code="invalid_image_url",
        )
    try:
        return base64.b64decode(memoryview(url.encode("ascii"))[match.end() :], validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise bad_request(
            f"the picture's base64 is broken: {error}", param=_PARAM, code="invalid_base64"
        ) from error


def _copy_file(url: str, target: Path, root: Path | None, max_bytes: int) -> None:
    if root is None:
        raise _forbidden("files cannot be named: the server was started without --allowed-root")
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
        raise bad_request("not a file URL, as in file:///folder/page.png", param=_PARAM)
    try:
        below = Path(unquote(parts.path)).resolve(strict=True).relative_to(root.resolve())
        with open_below(root.resolve(), below) as stream, target.open("wb") as copy:
            if os.fstat(stream.fileno()).st_size > max_bytes:
                raise ApiError(413, "the file is too large", code="too_large", param=_PARAM)
            shutil.copyfileobj(stream, copy)
    except (OSError, ValueError, RuntimeError) as error:
        # One answer for all causes: whether a file outside the root exists is nobody's business.
        raise _forbidden("no such picture below the allowed folder") from error


def open_below(root: Path, below: Path) -> BinaryIO:
    """Open a regular file below a folder, following no link on the way.

    Args:
        root: the folder, resolved.
        below: the path from there, resolved.

    Raises:
        OSError: there is no such file, a link is in the way, or it is no regular file.
    """
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for name in below.parts[:-1]:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
            inner = os.open(name, flags, dir_fd=folder)
            os.close(folder)
            folder = inner
        # Without waiting, since opening a pipe would last until somebody writes into it.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        file = os.open(below.name or ".", flags, dir_fd=folder)
    finally:
        os.close(folder)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError("not a regular file")
    return os.fdopen(file, "rb")


def _forbidden(message: str) -> ApiError:
    return ApiError(403, message, code="file_not_allowed", param=_PARAM)
