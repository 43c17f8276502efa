"""What the result store keeps, and the bytes it keeps it as. Pure: opens no file.

A record is JSON, compressed, behind a checksum that covers its key too, so that neither a flipped
bit nor a mixed-up row ever becomes a page's text.
"""

import hashlib
import json
import zlib
from dataclasses import dataclass, fields

from vlmcli.results import PageRecord
from vlmcli.reuse.fingerprint import Sketch
from vlmcli.version import SCHEMA_VERSION, __version__

_CHECK_BYTES = 16
_LEVEL = 1
"""zlib's fastest: text shrinks to a third either way, and a page must not cost a millisecond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Everything besides its pixels that could change a page's text. A change never hits.

    Drafts are absent on purpose: they cannot change the text.
    """

    model: str
    """Name and revision: digests of weights, tokenizer and processor."""
    task: str
    """Prompt, or what stands for it, with the sampling and the token limit."""
    resolution: str
    """How pixels become the model's input: bounds, resampling, retries at other sizes."""
    dtype: str
    device: str
    """Kind of device and kernels, where these may change the last bits of a logit."""
    reader: str
    """Which reader (built-in, rapidocr, server) it is."""
    code: str = ""
    """What it does: how lines are found and cut, how models compute, when a loop is cut."""
    libraries: str = ""
    """Versions of what computes."""

    def digest(self) -> bytes:
        """SHA-256 over all parts, each length-framed, and vlmcli's own versions; 32 bytes."""
        parts = [(field.name, str(getattr(self, field.name))) for field in fields(self)]
        parts += [("schema", str(SCHEMA_VERSION)), ("vlmcli", __version__)]
        hasher = hashlib.sha256()
        for text in (text for part in parts for text in part):
            data = text.encode()
            hasher.update(b"%d:" % len(data) + data)
        return hasher.digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a page was: the document's absolute path, and the page's number from 1."""

    document: str
    page: int

    @property
    def key(self) -> tuple[bytes, int]:
        """The place as the store's columns: file names need not be valid text."""
        return self.document.encode("utf-8", "surrogatepass"), self.page


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPage:
    """A result of an earlier run. `recipe` is the digest of the recipe that made it."""

    digest: bytes
    recipe: bytes
    record: PageRecord
    dhash256: bytes | None = None
    sketch: Sketch | None = None


def pack_record(digest: bytes, recipe: bytes, record: PageRecord) -> bytes:
    """A record as the store keeps it under that key."""
    # ASCII, since a text or a file name may hold lone surrogates, which UTF-8 refuses.
    data = zlib.compress(json.dumps(record.to_dict()).encode(), _LEVEL)
    return _check(digest, recipe, data) + data


def unpack_record(digest: bytes, recipe: bytes, blob: bytes) -> PageRecord | None:
    """Inverse of `pack_record`; None where the bytes are damaged or belong to another key."""
    check, data = blob[:_CHECK_BYTES], blob[_CHECK_BYTES:]
    if _check(digest, recipe, data) != check:
        return None
    try:
        return PageRecord.from_dict(json.loads(zlib.decompress(data)))
    except (zlib.error, ValueError, KeyError, TypeError):
        # The checksum holds, so a vlmcli with other ideas of a record wrote this.
        return None


def pack_sketch(sketch: Sketch) -> bytes:
    """A sketch as the store keeps it: checksum, then JPEG."""
    return _check(sketch.jpeg) + sketch.jpeg


def unpack_sketch(blob: bytes, *, is_colour: bool) -> Sketch | None:
    """Inverse of `pack_sketch`; None where the bytes are damaged."""
    check, jpeg = blob[:_CHECK_BYTES], blob[_CHECK_BYTES:]
    if _check(jpeg) != check:
        return None
    try:
        return Sketch.from_jpeg(jpeg, is_colour=is_colour)
    except ValueError:
        return None


def _check(*parts: bytes) -> bytes:
    hasher = hashlib.blake2b(digest_size=_CHECK_BYTES)
    for part in parts:
        hasher.update(b"%d:" % len(part))
        hasher.update(part)
    return hasher.digest()
