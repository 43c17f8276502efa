// A report's behaviour: pictures when they come near, boxes of lines, filters, search, keys.
// Reads the page as it was written; asks nobody for anything.
"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const pages = [...document.querySelectorAll("article")];
  const shownPages = () => pages.filter((page) => !page.hidden);

  // --- pictures -------------------------------------------------------------------------------
  // Only what is near the window is decoded; what has gone is dropped, so that memory stays flat.

  function showPicture(page) {
    const sheet = page.querySelector(".sheet");
    if (!sheet || sheet.querySelector("img")) return;
    const data = sheet.querySelector("script");
    const image = new Image();
    image.alt = sheet.dataset.alt;
    image.decoding = "async";
    image.draggable = false;
    image.src = `data:${data.dataset.type};base64,${data.textContent}`;
    sheet.prepend(image);
  }

  function dropPicture(page) {
    page.querySelector(".sheet img")?.remove();
  }

  const nearness = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        (entry.isIntersecting ? showPicture : dropPicture)(entry.target);
      }
    },
    { rootMargin: "150% 0px" },
  );
  for (const page of pages) nearness.observe(page);

  // --- lines and their boxes ------------------------------------------------------------------

  let marked = null;
  let isPinned = false;

  const linesOf = (page) => [...page.querySelectorAll(".line")];
  const boxOf = (line) => line.dataset.box.split(" ").map(Number);

  function unmark() {
    if (!marked) return;
    marked.classList.remove("on");
    const page = marked.closest("article");
    page.querySelector(".box")?.remove();
    const caption = page.querySelector("figcaption");
    if (caption) caption.textContent = "";
    marked = null;
    isPinned = false;
  }

  function mark(line) {
    if (line === marked) return;
    unmark();
    marked = line;
    line.classList.add("on");
    const page = line.closest("article");
    const sheet = page.querySelector(".sheet");
    if (!sheet) return;
    const [x0, y0, x1, y1] = boxOf(line);
    const share = (length, whole) => `${(100 * length) / whole}%`;
    const box = document.createElement("div");
    box.className = "box";
    box.style.left = share(x0, sheet.dataset.w);
    box.style.top = share(y0, sheet.dataset.h);
    box.style.width = share(x1 - x0, sheet.dataset.w);
    box.style.height = share(y1 - y0, sheet.dataset.h);
    sheet.append(box);
    const lines = linesOf(page);
    const sure = line.dataset.sure ? `, confidence ${line.dataset.sure}` : "";
    page.querySelector("figcaption").textContent =
      `line ${lines.indexOf(line) + 1} of ${lines.length}${sure}`;
  }

  // Keep the line marked, wherever the pointer goes.
  function pin(line) {
    mark(line);
    isPinned = true;
  }

  // The smallest box under the pointer: boxes may lie inside each other.
  function lineAt(sheet, event) {
    const frame = sheet.getBoundingClientRect();
    const x = ((event.clientX - frame.left) / frame.width) * sheet.dataset.w;
    const y = ((event.clientY - frame.top) / frame.height) * sheet.dataset.h;
    let found = null;
    let smallest = Infinity;
    for (const line of linesOf(sheet.closest("article"))) {
      const [x0, y0, x1, y1] = boxOf(line);
      const area = (x1 - x0) * (y1 - y0);
      if (x0 <= x && x < x1 && y0 <= y && y < y1 && area < smallest) {
        found = line;
        smallest = area;
      }
    }
    return found;
  }

  function pointedAt(event) {
    const line = event.target.closest(".line");
    if (line) return line;
    const sheet = event.target.closest(".sheet");
    return sheet && lineAt(sheet, event);
  }

  $("pages").addEventListener("pointermove", (event) => {
    if (isPinned) return;
    const line = pointedAt(event);
    if (line) mark(line);
    else unmark();
  });
  $("pages").addEventListener("pointerleave", () => {
    if (!isPinned) unmark();
  });
  $("pages").addEventListener("click", (event) => {
    if (event.target.closest("a") || !getSelection().isCollapsed) return;
    const line = pointedAt(event);
    const isSame = line === marked && isPinned;
    unmark();
    if (!line || isSame) return;
    pin(line);
    line.scrollIntoView({ block: "nearest" });
  });
  // --- going from page to page and line to line -----------------------------------------------

  const header = document.querySelector("header");
  const measureHeader = () =>
    document.documentElement.style.setProperty("--header", `${header.offsetHeight}px`);
  new ResizeObserver(measureHeader).observe(header);
  measureHeader();

  function isInView(element) {
    const { top, bottom } = element.getBoundingClientRect();
    return bottom > header.offsetHeight && top < innerHeight;
  }

  // The page that has the focus, if it can be seen; else the one at the top of the window.
  function currentPage() {
    const focused = document.activeElement?.closest("article");
    if (focused && !focused.hidden && isInView(focused)) return focused;
    const top = header.offsetHeight + 24;
    return shownPages().findLast((page) => page.getBoundingClientRect().top <= top) ?? null;
  }

  function goTo(page) {
    page.focus({ preventScroll: true });
    page.scrollIntoView({ block: "start" });
    // Pages on the way get their true height only now.
    requestAnimationFrame(() => page.scrollIntoView({ block: "start" }));
  }

  function goBy(step) {
    const shown = shownPages();
    const page = shown[shown.indexOf(currentPage()) + step];
    if (page) goTo(page);
  }

  function goByLine(step) {
    const page = marked?.closest("article") ?? currentPage() ?? shownPages()[0];
    const lines = page ? linesOf(page) : [];
    const at = marked ? lines.indexOf(marked) + step : step > 0 ? 0 : lines.length - 1;
    const line = lines[at];
    if (!line) return;
    pin(line);
    line.focus({ preventScroll: true });
    line.scrollIntoView({ block: "nearest" });
  }

  // --- filters and search ---------------------------------------------------------------------

  const selects = [...document.querySelectorAll("#filters select")];
  const wordsOf = (page, key) =>
    page.dataset[key].split("\n").filter((word) => word || key !== "suspect");
  const SUSPECT_ANY = "\n";

  for (const select of selects) {
    const counts = new Map();
    for (const page of pages) {
      for (const word of wordsOf(page, select.dataset.key)) {
        counts.set(word, (counts.get(word) ?? 0) + 1);
      }
    }
    if (select.dataset.key === "suspect") {
      const number = pages.filter((page) => page.dataset.suspect).length;
      select.append(new Option(`any reason (${number})`, SUSPECT_ANY));
    }
    for (const [word, count] of counts) select.append(new Option(`${word} (${count})`, word));
    if (select.dataset.key === "document") select.parentElement.hidden = counts.size < 2;
    select.addEventListener("change", update);
  }

  const passes = (page, select) => {
    if (!select.value) return true;
    const words = wordsOf(page, select.dataset.key);
    return select.value === SUSPECT_ANY ? words.length > 0 : words.includes(select.value);
  };

  const texts = new Map();
  function textOf(page) {
    if (!texts.has(page)) texts.set(page, page.querySelector(".words").textContent);
    return texts.get(page);
  }

  // Blanks in the query stand for any blanks, so that what is sought may go on on the next line.
  function patternOf(query) {
    const words = query.trim().split(/\s+/).filter(Boolean);
    const escaped = words.map((word) => word.replace(/[\\^$.*+?()[\]{}|\/-]/g, "\\$&"));
    return words.length ? new RegExp(escaped.join("\\s+"), "giu") : null;
  }

  const MAX_SHOWN_MATCHES = 5000;
  let matches = [];
  let matchNumber = -1;

  function update() {
    const pattern = patternOf($("query").value);
    matches = [];
    matchNumber = -1;
    let number = 0;
    for (const page of pages) {
      const isWanted = selects.every((select) => passes(page, select));
      const found = isWanted && pattern ? [...textOf(page).matchAll(pattern)] : [];
      page.hidden = !isWanted || (pattern !== null && found.length === 0);
      number += !page.hidden;
      for (const one of found) matches.push({ page, start: one.index, length: one[0].length });
    }
    if (marked?.closest("article").hidden) unmark();
    const plural = pages.length === 1 ? "page" : "pages";
    $("shown").textContent =
      number === pages.length ? `${number} ${plural}` : `${number} of ${pages.length} ${plural}`;
    $("matches").textContent = pattern ? `${matches.length} found` : "";
    $("nothing").hidden = number > 0;
    highlight();
  }

  // A match as a range, from offsets in the text of its page.
  function rangeOf({ page, start, length }) {
    const range = new Range();
    const walker = document.createTreeWalker(page.querySelector(".words"), NodeFilter.SHOW_TEXT);
    let done = 0;
    let hasBegun = false;
    while (walker.nextNode()) {
      const node = walker.currentNode;
      const end = done + node.length;
      if (!hasBegun && start < end) {
        range.setStart(node, start - done);
        hasBegun = true;
      }
      if (hasBegun && start + length <= end) {
        range.setEnd(node, start + length - done);
        return range;
      }
      done = end;
    }
    return range;
  }

  function highlight() {
    if (!CSS.highlights) return;
    const ranges = matches.slice(0, MAX_SHOWN_MATCHES).map(rangeOf);
    CSS.highlights.set("found", new Highlight(...ranges));
    CSS.highlights.delete("found-now");
  }

  function goToMatch(step) {
    if (!matches.length) return;
    matchNumber = (matchNumber + step + matches.length) % matches.length;
    const match = matches[matchNumber];
    const range = rangeOf(match);
    if (CSS.highlights) CSS.highlights.set("found-now", new Highlight(range));
    match.page.scrollIntoView({ block: "start" });
    const line = range.startContainer.parentElement.closest(".line");
    if (line) {
      pin(line);
      line.scrollIntoView({ block: "center" });
    }
    $("matches").textContent = `${matchNumber + 1} of ${matches.length}`;
  }

  let timer = 0;
  $("query").addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(update, 120);
  });
  $("find").addEventListener("submit", (event) => event.preventDefault());
  $("query").addEventListener("keydown", (event) => {
    if (event.key === "Enter") {
      goToMatch(event.shiftKey ? -1 : 1);
    } else if (event.key === "Escape") {
      $("query").blur();
    } else return;
    event.preventDefault();
  });

  function clear() {
    $("query").value = "";
    for (const select of selects) select.value = "";
    update();
  }
  $("clear").addEventListener("click", clear);

  // --- look -----------------------------------------------------------------------------------

  const root = document.documentElement;
  const darkness = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : darkness.matches);
  const tellTheme = () => $("theme").setAttribute("aria-pressed", String(isDark()));

  // Files may have no storage of their own; then the choice lasts as long as the page.
  function remembered(value) {
    try {
      if (value) localStorage.setItem("vlmcli-theme", value);
      return localStorage.getItem("vlmcli-theme");
    } catch {
      return null;
    }
  }

  function toggleTheme() {
    root.dataset.theme = isDark() ? "light" : "dark";
    remembered(root.dataset.theme);
    tellTheme();
  }
  const earlier = remembered();
  if (earlier === "dark" || earlier === "light") root.dataset.theme = earlier;
  darkness.addEventListener("change", tellTheme);
  $("theme").addEventListener("click", toggleTheme);
  tellTheme();

  function toggleZoom() {
    const page = currentPage();
    const isZoomed = document.body.classList.toggle("zoomed");
    $("zoom").setAttribute("aria-pressed", String(isZoomed));
    page?.scrollIntoView({ block: "start" });
  }
  if (document.querySelector(".sheet")) $("zoom").addEventListener("click", toggleZoom);
  else $("zoom").hidden = true;

  // --- keys -----------------------------------------------------------------------------------

  const showKeys = () => $("keys").showModal();
  $("help").addEventListener("click", showKeys);

  const KEYS = {
    j: () => goBy(1),
    ArrowRight: () => goBy(1),
    k: () => goBy(-1),
    ArrowLeft: () => goBy(-1),
    n: () => goByLine(1),
    p: () => goByLine(-1),
    "/": () => $("query").select(),
    c: clear,
    t: toggleTheme,
    z: () => $("zoom").click(),
    "?": showKeys,
    Escape: unmark,
  };

  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.closest("input, select, textarea, dialog");
    if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    const act = KEYS[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });

  update();
})();
