"""Pictures in the boxes of a video file, AVIF and HEIC: which files are some, and who decodes them.

AVIF comes with most builds of Pillow; HEIC, in which phones photograph, needs the extra `heif`.
Knows first bytes and what is installed; opens nothing.
"""

from importlib.util import find_spec
from typing import Literal

HeifKind = Literal["AVIF", "HEIC"]

_AVIF_BRANDS = {b"avif", b"avis"}
_HEIC_BRANDS = {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs"}
_ANY_BRANDS = {b"mif1", b"msf1", b"miaf"}
"""Of ISO/IEC 23008-12: pictures; the compatible brands say which."""

_DECODERS = {"AVIF": "PIL._avif", "HEIC": "pillow_heif"}
_SUFFIXES: dict[HeifKind, set[str]] = {
    "AVIF": {".avif", ".avifs"},
    "HEIC": {".heic", ".heics", ".heif", ".heifs", ".hif"},
}
_REMEDIES = {
    "AVIF": "install a Pillow that is built with AVIF",
    "HEIC": "pip install 'vlmcli[heif]'",
}


def kind_of_head(head: bytes) -> HeifKind | None:
    """What a file is that begins like this; None where it is neither."""
    if head[4:8] != b"ftyp":
        return None
    size = min(len(head), int.from_bytes(head[:4], "big"))
    major = head[8:12]
    brands = {head[at : at + 4] for at in range(16, size - 3, 4)} if major in _ANY_BRANDS else set()
    if {major, *brands} & _AVIF_BRANDS:
        return "AVIF"
    return "HEIC" if major in _HEIC_BRANDS | _ANY_BRANDS else None


def is_readable(kind: HeifKind) -> bool:
    """Whether something is installed that decodes it."""
    return find_spec(_DECODERS[kind]) is not None


def remedy(kind: HeifKind) -> str:
    """What makes it readable."""
    return _REMEDIES[kind]


def suffixes() -> set[str]:
    """How the names of readable files end."""
    kinds: tuple[HeifKind, ...] = ("AVIF", "HEIC")
    return set().union(*(_SUFFIXES[kind] for kind in kinds if is_readable(kind)))


def register() -> tuple[str, ...]:
    """Have Pillow decode what can be, with one thread each; its names of these formats."""
    formats: tuple[str, ...] = ()
    if is_readable("AVIF"):
        import PIL.AvifImagePlugin

        # The workers are the threads, and each more holds pictures of its own.
        PIL.AvifImagePlugin.DEFAULT_MAX_THREADS = 1
        formats += ("AVIF",)
    if is_readable("HEIC"):
        import pillow_heif

        pillow_heif.register_heif_opener(
            decode_threads=1, thumbnails=False, depth_images=False, aux_images=False
        )
        formats += ("HEIF",)
    return formats
