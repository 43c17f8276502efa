"""Dirt far above a letter does not make its line taller; accents, quotes and dots do."""

import numpy as np
import pytest
from lines_kit import Sheet, words

from vlmcli.documents.lines import find_lines


def sheet_of(text: str, size: int) -> Sheet:
    sheet = Sheet()
    for row in range(6):
        sheet.text(60, 60 + 3 * size * row, text if row == 3 else words(6, row), size, "serif")
    return sheet


@pytest.mark.parametrize("size", [24, 40])
def test_dirt_over_a_small_letter_changes_no_line(size: int) -> None:
    sheet = sheet_of("an unheard carrot came back", size)
    clean = find_lines(np.asarray(sheet.image))[3]
    x0, top, _, bottom = sheet.lines[3].box
    dirt = max(2, size // 12)
    # Over the first letter, an a, just above where a letter with a stem would end.
    y = top - round(0.16 * size)
    sheet.draw.rectangle((x0 + size // 8, y, x0 + size // 8 + dirt, y + dirt), fill=0)
    line = find_lines(np.asarray(sheet.image))[3]
    assert line.ascent == pytest.approx(clean.ascent, abs=0.6)
    assert line.bbox[1] >= clean.bbox[1] - 1 and line.bbox[3] == clean.bbox[3]
    assert bottom - top <= line.bbox[3] - line.bbox[1] + 3


@pytest.mark.parametrize(
    "text", ["Ècole Èté sans eau", "œuvre ä ö ü", "“see our sea”", "in sum'n i", "“Äh!” as in Ü"]
)
def test_what_belongs_above_letters_is_in_the_line(text: str) -> None:
    sheet = sheet_of(text, 30)
    line = find_lines(np.asarray(sheet.image))[3]
    printed = sheet.lines[3].box
    assert line.bbox[1] <= printed[1] + 1 and line.bbox[3] >= printed[3] - 1
