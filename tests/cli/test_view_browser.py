"""The report in a real browser, from `file://` with the network off: pointer, keys, filters."""

import io

import pytest
from browser import Browser, needs_chromium
from PIL import Image, ImageDraw

from vlmcli.outputs.html import HtmlReport, PagePicture
from vlmcli.results import ErrorInfo, Line, PageRecord, Reuse, ReuseOrigin

pytestmark = needs_chromium

NUM_PAGES = 500
WIDTH, HEIGHT = 600, 800
LINES_A_PAGE = 20
ATTACK = "</script><img src=x onerror=document.title='hurt'><script>document.title='hurt'</script>"


def box(line: int) -> tuple[int, int, int, int]:
    return 60, 40 + 36 * line, 540, 64 + 36 * line


def record(number: int) -> PageRecord:
    """Every fifth page is suspect, every seventh reused, every fiftieth failed."""
    base = {"document": "big.pdf", "page": number, "pages": NUM_PAGES}
    base |= {"width": WIDTH, "height": HEIGHT}
    if number % 50 == 0:
        return PageRecord(status="error", error=ErrorInfo(code="render", message=ATTACK), **base)
    texts = [f"page {number} line {n} of words" for n in range(LINES_A_PAGE)]
    texts[3] += " needle (sharp)" if number in (7, 401) else ""
    texts[4] = ATTACK if number == 2 else texts[4]
    is_reused = number % 7 == 0
    origin = ReuseOrigin(document="big.pdf", page=1)
    return PageRecord(
        status="ok",
        text="\n".join(texts),
        source="reuse" if is_reused else "model",
        reuse=Reuse(kind="exact", origin=origin, verified_by="sha256") if is_reused else Reuse(),
        suspect=("low-contrast",) if number % 5 == 0 else (),
        lines=tuple(Line(bbox=box(n), text=text, confidence=0.9) for n, text in enumerate(texts)),
        **base,
    )


def picture() -> bytes:
    image = Image.new("L", (WIDTH, HEIGHT), 255)
    for n in range(LINES_A_PAGE):
        ImageDraw.Draw(image).rectangle(box(n), fill=120)
    file = io.BytesIO()
    image.save(file, "WEBP", quality=50)
    return file.getvalue()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    folder = tmp_path_factory.mktemp("view")
    report, image = HtmlReport("big.jsonl"), PagePicture(data=picture())
    pages = (report.page(record(number), image) for number in range(1, NUM_PAGES + 1))
    path = folder / "report.html"
    path.write_bytes(b"".join([report.head(), *pages, report.tail()]))
    with Browser(folder / "profile") as browser:
        browser.folder, browser.url = folder, path.as_uri()
        yield browser


@pytest.fixture
def opened(browser):
    """The report, freshly opened, at its top."""
    browser.prefer("light")
    browser.open("about:blank")
    browser.open(browser.url)
    browser.eval("localStorage.clear()")
    browser.eval("delete document.documentElement.dataset.theme")
    browser.wait_for("document.querySelector('#p1 img')?.complete")
    yield browser
    assert browser.complaints == []
    assert browser.eval("document.title") == "big.jsonl"


def shown(browser) -> str:
    return browser.eval("document.querySelector('#shown').textContent")


def choose(browser, key: str, value: str) -> None:
    browser.eval(
        f"(() => {{ const s = document.querySelector('select[data-key={key}]');"
        f" s.value = {value!r}; s.dispatchEvent(new Event('change', {{bubbles: true}})) }})()"
    )


def visible_top(browser) -> str:
    """The page that the window begins with."""
    return browser.eval(
        "[...document.querySelectorAll('article:not([hidden])')].find(p =>"
        " p.getBoundingClientRect().bottom > document.querySelector('header').offsetHeight + 20).id"
    )


def marked(browser) -> list:
    """The marked line's text, and its box as shares of the sheet, in thousandths."""
    return browser.eval(
        "(() => { const line = document.querySelector('.line.on');"
        " const box = document.querySelector('.box'); if (!line || !box) return null;"
        " const b = box.getBoundingClientRect();"
        " const s = box.parentElement.getBoundingClientRect();"
        " return [line.textContent, ...[(b.left - s.left) / s.width, (b.top - s.top) / s.height,"
        " (b.right - s.left) / s.width, (b.bottom - s.top) / s.height]"
        ".map(n => Math.round(1000 * n))] })()"
    )


def expected(page: int, line: int) -> list:
    x0, y0, x1, y1 = box(line)
    shares = [x0 / WIDTH, y0 / HEIGHT, x1 / WIDTH, y1 / HEIGHT]
    text = record(page).lines[line].text
    return [text, *(pytest.approx(1000 * share, abs=4) for share in shares)]


def test_pictures_are_decoded_only_where_the_reader_is(opened):
    assert shown(opened) == f"{NUM_PAGES} pages"
    for place in ("p500", "p250", "p1"):
        opened.eval(f"document.getElementById('{place}').scrollIntoView()")
        opened.wait_for(f"document.querySelector('#{place} img')?.complete")
        opened.wait_for("document.querySelectorAll('img').length < 15")
        assert opened.eval(f"document.querySelector('#{place} img').naturalWidth") == WIDTH
    alt = opened.eval("document.querySelector('#p1 img').alt")
    assert alt == "Picture of big.pdf, page 1 of 500"


def test_a_line_shows_its_box_and_a_box_its_line(opened):
    opened.move(*opened.middle("#p1 .line:nth-child(6)"))
    opened.wait_for("document.querySelector('.box')")
    assert marked(opened) == expected(1, 5)
    left, top = opened.eval(
        "(() => { const s = document.querySelector('#p1 .sheet').getBoundingClientRect();"
        f" return [s.left + s.width / 2, s.top + s.height * {(box(8)[1] + 12) / HEIGHT}] }})()"
    )
    opened.move(left, top)
    opened.wait_for("document.querySelector('.line.on')?.textContent.includes('line 8')")
    assert marked(opened) == expected(1, 8)
    assert "line 9 of 20, confidence 0.90" in opened.eval(
        "document.querySelector('#p1 figcaption').textContent"
    )
    opened.move(2, 790)
    opened.wait_for("!document.querySelector('.box')")


def test_a_click_keeps_the_box(opened):
    opened.click("#p1 .line:nth-child(3)")
    opened.move(2, 790)
    assert marked(opened) == expected(1, 2)
    opened.press("Escape")
    assert marked(opened) is None


def test_filters(opened):
    choose(opened, "suspect", "low-contrast")
    assert shown(opened) == "90 of 500 pages"
    choose(opened, "reuse", "exact")
    assert shown(opened) == f"{len(range(35, 500, 35)) - 1} of 500 pages"  # 350 failed
    opened.click("#clear")
    choose(opened, "status", "error")
    assert shown(opened) == "10 of 500 pages"
    opened.eval("document.getElementById('p50').scrollIntoView()")
    opened.wait_for("document.querySelector('#p50 img')?.complete")
    choose(opened, "source", "reuse")
    assert shown(opened) == "0 of 500 pages"
    assert opened.eval("document.querySelector('#nothing').checkVisibility()")
    opened.press("c")
    assert shown(opened) == "500 pages"
    labels = opened.eval(
        "[...document.querySelector('select[data-key=status]').options].map(o => o.text)"
    )
    assert labels == ["all", "ok (490)", "error (10)"]


def test_search(opened):
    opened.press("/")
    assert opened.eval("document.activeElement.id") == "query"
    opened.type("NEEDLE (sh")
    opened.wait_for("document.querySelector('#shown').textContent === '2 of 500 pages'")
    assert opened.eval("CSS.highlights.get('found').size") == 2
    for _ in range(2):
        opened.press("Enter")
    assert marked(opened)[0] == record(401).lines[3].text
    assert opened.eval("document.querySelector('#matches').textContent") == "2 of 2"
    opened.press("Escape")
    assert opened.eval("document.activeElement.id") != "query"


def test_a_match_may_go_on_on_the_next_line(opened):
    opened.press("/")
    opened.type("line 3 of words page 9 line 4")
    opened.wait_for("document.querySelector('#shown').textContent === '1 of 500 pages'")
    assert opened.eval("[...CSS.highlights.get('found')][0].toString()") == (
        "line 3 of words\npage 9 line 4"
    )


def test_keys_go_from_page_to_page_and_line_to_line(opened):
    for key in ("j", "j", "ArrowRight", "k"):
        opened.press(key)
    opened.wait_for("document.activeElement.id === 'p3'")
    assert visible_top(opened) == "p3"
    opened.press("ArrowLeft")
    assert visible_top(opened) == "p2"
    for key in ("n", "n", "n", "p"):
        opened.press(key)
    assert marked(opened) == expected(2, 1)
    assert opened.eval("document.activeElement.textContent") == record(2).lines[1].text
    opened.eval("document.getElementById('p500').scrollIntoView()")
    opened.press("k")
    opened.wait_for("document.activeElement.id === 'p499'")
    assert visible_top(opened) == "p499"


def test_help_is_a_dialog_that_keys_open_and_close(opened):
    opened.press("?")
    assert opened.eval("document.querySelector('dialog').open")
    opened.press("j")
    assert visible_top(opened) == "p1"
    opened.click("dialog button")
    assert not opened.eval("document.querySelector('dialog').open")
    opened.click("#help")
    assert opened.eval("document.querySelector('dialog').open")


LUMINANCE = """((element, name) => {
  const colour = getComputedStyle(document.querySelector(element))[name];
  const parts = colour.match(/[0-9.]+/g).slice(0, 3).map(n => n / 255)
    .map(n => n <= 0.04045 ? n / 12.92 : ((n + 0.055) / 1.055) ** 2.4);
  return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2] })"""


def contrast(browser, element: str, behind: str) -> float:
    """WCAG 2.2's contrast ratio of an element's text on another's background."""
    ink = browser.eval(f"{LUMINANCE}({element!r}, 'color')")
    paper = browser.eval(f"{LUMINANCE}({behind!r}, 'backgroundColor')")
    light, dark = max(ink, paper), min(ink, paper)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("system", ["light", "dark"])
def test_darkness_follows_the_system_until_it_is_chosen(opened, system):
    opened.prefer(system)
    back = f"{LUMINANCE}('article', 'backgroundColor')"
    is_dark = system == "dark"
    assert (opened.eval(back) < 0.2) == is_dark
    for element in (".words", ".facts", "#p50 .error", "h2 a", "#p5 .suspect", "#shown"):
        behind = "header" if element == "#shown" else "article"
        assert contrast(opened, element, behind) >= 4.5, element
    opened.click("#theme")
    assert (opened.eval(back) < 0.2) != is_dark
    assert opened.eval("document.querySelector('#theme').ariaPressed") == str(not is_dark).lower()
    opened.press("t")
    assert (opened.eval(back) < 0.2) == is_dark
    opened.screenshot(opened.folder / f"{system}.png")
    with Image.open(opened.folder / f"{system}.png") as image:
        assert image.size == (1280, 800)
        grey = image.convert("L")
        assert (grey.getpixel((1270, 790)) < 60) == is_dark


def test_text_from_documents_runs_nothing(opened):
    """The page's title would say so (see the fixture); the attack is there to be read."""
    opened.eval("document.getElementById('p2').scrollIntoView()")
    opened.wait_for("document.querySelector('#p2 img')?.complete")
    assert opened.eval("document.querySelectorAll('#p2 .line')[4].textContent") == ATTACK
    assert opened.eval("document.querySelector('#p50 .error').textContent") == f"render: {ATTACK}"
    assert opened.eval("[...document.images].every(i => i.src.startsWith('data:image/webp'))")


def test_a_narrow_window_has_text_below_pictures(opened):
    opened.resize(400, 800)
    sheet, words = opened.middle("#p1 .sheet"), opened.middle("#p1 .words")
    assert words[1] > sheet[1]
    assert opened.eval("document.documentElement.scrollWidth") <= 400
    opened.resize(1280, 800)
