"""Chromium without a window, driven over its DevTools protocol through a pair of pipes.

Messages are JSON with a null byte behind each (`--remote-debugging-pipe`); no port, no library.
"""

import base64
import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
_FLAGS = (
    *("--headless", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-extensions"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe"),
)
_PATIENCE = 20.0


@functools.cache
def chromium() -> str | None:
    """The browser's path; None where there is none."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


needs_chromium = pytest.mark.skipif(
    chromium() is None, reason="no chromium here: apt-get install chromium"
)


class Browser:
    """One browser with one page. A context manager; leaves no process behind."""

    def __init__(self, profile: Path, *, width: int = 1280, height: int = 800) -> None:
        to_browser, commands = os.pipe()
        answers, from_browser = os.pipe()
        command = chromium()
        assert command is not None
        root = ["--no-sandbox"] if os.geteuid() == 0 else []
        args = [command, *_FLAGS, *root, f"--user-data-dir={profile}"]
        # The browser wants its pipes at descriptors 3 and 4, whatever ours are.
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{to_browser} 4>&{from_browser}', "browser", *args],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._commands = os.fdopen(commands, "wb", buffering=0)
        self._answers = os.fdopen(answers, "rb", buffering=0)
        self._rest = b""
        self._number = 0
        self._session = ""
        self.complaints: list[str] = []
        """Errors and warnings that pages put on the console."""
        self._attach(width, height)

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *error) -> None:
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._commands.close()
        self._answers.close()

    def open(self, url: str) -> None:
        """Go there and wait until the page is loaded."""
        self._call("Page.navigate", url=url)
        self.wait_for(f"document.readyState === 'complete' && location.href === {json.dumps(url)}")

    def eval(self, expression: str):
        """The value of a JavaScript expression."""
        found = self._call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait_for(self, expression: str) -> None:
        """Wait until the expression is true."""
        end = time.monotonic() + _PATIENCE
        while not self.eval(f"Boolean({expression})"):
            assert time.monotonic() < end, f"never true: {expression}"
            time.sleep(0.02)

    def press(self, key: str, text: str | None = None) -> None:
        """A key of the keyboard, by its name in events."""
        text = key if text is None and len(key) == 1 else text
        if key == "Enter":
            text = "\r"
        more = {"text": text} if text else {}
        self._call("Input.dispatchKeyEvent", type="keyDown", key=key, **more)
        self._call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def type(self, text: str) -> None:
        """Text into whatever has the focus."""
        self._call("Input.insertText", text=text)

    def move(self, x: float, y: float) -> None:
        """The pointer to a place in the window."""
        self._call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector: str) -> None:
        """The middle of an element, with the pointer."""
        x, y = self.middle(selector)
        self.move(x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def middle(self, selector: str) -> tuple[float, float]:
        """The middle of an element's box in the window."""
        found = self.eval(
            f"(() => {{ const r = document.querySelector({json.dumps(selector)})"
            ".getBoundingClientRect(); return [r.left + r.width / 2, r.top + r.height / 2] })()"
        )
        return found[0], found[1]

    def prefer(self, scheme: str) -> None:
        """The system's wish for `dark` or `light`."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._call("Emulation.setEmulatedMedia", features=features)

    def resize(self, width: int, height: int) -> None:
        """The window, in CSS pixels."""
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def screenshot(self, path: Path) -> None:
        """The window as a PNG."""
        path.write_bytes(base64.b64decode(self._call("Page.captureScreenshot")["data"]))

    def _attach(self, width: int, height: int) -> None:
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        found = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = found["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")
        self._call(
            "Network.emulateNetworkConditions",
            offline=True,
            latency=0,
            downloadThroughput=0,
            uploadThroughput=0,
        )
        self.resize(width, height)

    def _call(self, method: str, **params):
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        self._commands.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self._note(answer)

    def _note(self, event: dict) -> None:
        params = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"]))
        if event.get("method") == "Log.entryAdded":
            self.complaints.append(params["entry"]["text"])

    def _receive(self) -> dict:
        while b"\0" not in self._rest:
            data = self._answers.read(1 << 20)
            assert data, "the browser is gone"
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\0")
        return json.loads(line)
