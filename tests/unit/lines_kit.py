"""Pages with known lines for the tests of line finding, drawn with fonts that packages bring."""

from dataclasses import dataclass, field
from functools import cache
from io import BytesIO

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from vlmcli.documents import mupdf
from vlmcli.documents.lines import TextLine, find_lines

PASSAGE = (
    "it was late in the autumn when the old man took his hat and told the children that he "
    "would walk to the lake before dark and that nobody should wait for him at the table that "
    "night since he had to think about the letter that had come from his brother in the north"
)
WORDS = PASSAGE.split()

PYMUPDF_FONTS = {"serif": "tiro", "mono": "cour", "bold": "hebo", "italic": "tiit"}


@cache
def font(name: str, size: int) -> ImageFont.FreeTypeFont:
    """`sans` is Pillow's own font, the others come with PyMuPDF."""
    if name == "sans":
        return ImageFont.load_default(size)
    buffer = mupdf.load().Font(PYMUPDF_FONTS[name]).buffer
    return ImageFont.truetype(BytesIO(buffer), size)


def words(count: int, start: int = 0) -> str:
    """Some English words; `start` chooses which."""
    return " ".join(WORDS[(start + k) % len(WORDS)] for k in range(count))


@dataclass
class Printed:
    """A line as drawn: its text and the box of its ink."""

    text: str
    box: tuple[int, int, int, int]


@dataclass
class Sheet:
    """A white page that remembers the lines drawn on it."""

    width: int = 1240
    height: int = 900
    paper: int = 255
    lines: list[Printed] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.image = Image.new("L", (self.width, self.height), self.paper)
        self.draw = ImageDraw.Draw(self.image)

    def text(
        self, x: float, y: float, text: str, size: int = 26, name: str = "sans", ink: int = 0
    ) -> Printed:
        """Draw a line with its upper left corner near (x, y)."""
        face = font(name, size)
        layer = Image.new("L", self.image.size, 0)
        ImageDraw.Draw(layer).text((x, y), text, font=face, fill=255)
        self.draw.text((x, y), text, font=face, fill=ink)
        box = layer.point(lambda value: 255 if value > 127 else 0).getbbox()
        assert box is not None
        printed = Printed(text, box)
        self.lines.append(printed)
        return printed

    def paragraph(
        self, x: float, y: float, count: int, size: int = 26, name: str = "sans", num_words: int = 7
    ) -> float:
        """Draw lines below each other; returns the y below them."""
        for row in range(count):
            self.text(x, y, words(num_words, start=5 * row + count), size, name)
            y += round(1.45 * size)
        return y

    @property
    def pixels(self) -> np.ndarray:
        """The page, uint8 (H, W)."""
        return np.asarray(self.image).copy()


def rotated(pixels: np.ndarray, degrees: float, paper: int = 255) -> np.ndarray:
    """The picture turned so that its lines fall to the right by `degrees`, canvas enlarged."""
    height, width = pixels.shape[:2]
    matrix = cv2.getRotationMatrix2D((width / 2, height / 2), -degrees, 1)
    cos, sin = abs(matrix[0, 0]), abs(matrix[0, 1])
    new = (round(width * cos + height * sin), round(height * cos + width * sin))
    matrix[:, 2] += (new[0] - width) / 2, (new[1] - height) / 2
    return cv2.warpAffine(
        pixels, matrix, new, flags=cv2.INTER_CUBIC, borderValue=(paper, paper, paper)
    )


def noisy(pixels: np.ndarray, sigma: float, seed: int = 0) -> np.ndarray:
    """The picture with Gaussian noise."""
    rng = np.random.default_rng(seed)
    return np.clip(pixels + rng.normal(0, sigma, pixels.shape), 0, 255).astype(np.uint8)


def assert_same_lines(sheet: Sheet, found: tuple[TextLine, ...], slack: int = 3) -> None:
    """Each printed line was found once, in the order of drawing, with all of its ink."""
    boxes = [line.bbox for line in found]
    assert len(boxes) == len(sheet.lines), describe(sheet, found)
    for printed, box in zip(sheet.lines, boxes, strict=True):
        x0, y0, x1, y1 = printed.box
        assert box[0] <= x0 + slack, describe(sheet, found)
        assert box[1] <= y0 + slack, describe(sheet, found)
        assert box[2] >= x1 - slack, describe(sheet, found)
        assert box[3] >= y1 - slack, describe(sheet, found)
        assert box[3] - box[1] <= 1.9 * (y1 - y0) + 2 * slack, describe(sheet, found)
        assert box[2] - box[0] <= (x1 - x0) + 2 * (y1 - y0) + 2 * slack, describe(sheet, found)


def describe(sheet: Sheet, found: tuple[TextLine, ...]) -> str:
    """Both lists, for the message of a failed assertion."""
    drawn = "\n".join(f"  {line.box} {line.text[:40]}" for line in sheet.lines)
    boxes = "\n".join(f"  {line.bbox} block {line.block} row {line.row}" for line in found)
    return f"drawn:\n{drawn}\nfound:\n{boxes}"


def find(sheet: Sheet) -> tuple[TextLine, ...]:
    """The lines found on a sheet."""
    return find_lines(sheet.pixels)
