"""What the name of a file says about its format."""

from pathlib import Path

import pytest

from vlmcli.outputs.suffixes import belongs_to_another, format_of
from vlmcli.outputs.targets import EXTENSIONS


@pytest.mark.parametrize(("format_", "extension"), EXTENSIONS.items())
def test_a_format_is_told_from_the_extension_that_its_files_get(format_, extension):
    for name in (f"a{extension}", f"a.b{extension.upper()}", f"dir.pdf/a{extension}"):
        assert format_of(Path(name)) == format_
        assert belongs_to_another(Path(name), format_) is None


@pytest.mark.parametrize(
    ("name", "format_"),
    [("a.html", "hocr"), ("a.htm", "hocr"), ("a.alto", "alto"), ("a.markdown", "markdown")],
)
def test_other_usual_suffixes_are_known(name, format_):
    assert format_of(Path(name)) == format_


@pytest.mark.parametrize("name", ["a", "a.out", "pdf", "a.pdf.bak", "a.pdfx", "a.json", "a.tar"])
def test_any_other_name_asks_for_nothing_and_contradicts_nothing(name):
    assert format_of(Path(name)) is None
    assert all(belongs_to_another(Path(name), format_) is None for format_ in EXTENSIONS)


def test_a_name_contradicts_every_other_format_but_kinds_of_its_own():
    others = [format_ for format_ in EXTENSIONS if belongs_to_another(Path("a.jsonl"), format_)]
    assert others == ["text", "markdown", "hocr", "alto", "pdf"]
