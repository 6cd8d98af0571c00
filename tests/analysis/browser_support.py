"""Headless Chromium through its debugging pipe (the DevTools protocol), without a driver."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import time
from typing import Any

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
_FLAGS = "--headless --no-sandbox --disable-gpu --no-first-run --remote-debugging-pipe"
_CODES = {"Tab": 9, "End": 35, "Home": 36}
_CODES |= {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}


class Browser:
    """A page of a browser, a context manager.

    Attributes:
        errors: uncaught exceptions, and errors on the console.
    """

    def __init__(self, profile, width: int = 1440, height: int = 1000):
        self.errors: list[str] = []
        self._numbers, self._session, self._events = itertools.count(1), {}, []
        commands, self._to = os.pipe()  # Chromium reads 3 and writes 4
        self._from, answers = os.pipe()
        line = f"exec {CHROMIUM} {_FLAGS} --user-data-dir={profile} 3<&{commands} 4>&{answers}"
        self._process = subprocess.Popen(
            ["bash", "-c", line], pass_fds=(commands, answers), stderr=subprocess.DEVNULL
        )
        os.close(commands)
        os.close(answers)
        self._stream = os.fdopen(self._from, "rb")
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = {"sessionId": session["sessionId"]}
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self.call("Browser.close")
        self._process.wait()
        self._stream.close()
        os.close(self._to)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Calls a method of the protocol and returns its result."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters, **self._session}
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != number:
            pass
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def open(self, url: str) -> float:
        """Opens a page and returns the seconds until it is loaded and painted."""
        self.navigate("about:blank")  # or another fragment of an open page would not load it
        start = time.monotonic()
        self.navigate(url)
        self.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
        return time.monotonic() - start

    def navigate(self, url: str) -> None:
        """Loads a page."""
        self._events.clear()
        self.call("Page.navigate", url=url)
        while "Page.loadEventFired" not in self._events:
            self._read()

    def evaluate(self, expression: str) -> Any:
        """Returns the value of a JavaScript expression, awaited."""
        options = {"returnByValue": True, "awaitPromise": True}
        answer = self.call("Runtime.evaluate", expression=expression, **options)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """Presses and releases a key."""
        for kind in ("rawKeyDown", "keyUp"):
            codes = {"key": key, "code": key, "windowsVirtualKeyCode": _CODES[key]}
            self.call("Input.dispatchKeyEvent", type=kind, **codes)

    def _read(self) -> dict[str, Any]:
        message = bytearray()
        while (byte := self._stream.read(1)) != b"\0":
            if not byte:
                raise OSError("the browser ended")
            message += byte
        found = json.loads(message)
        method, about = found.get("method", ""), found.get("params", {})
        self._events.append(method)
        is_error = about.get("type") == "error" or about.get("entry", {}).get("level") == "error"
        if method == "Runtime.exceptionThrown" or is_error:
            self.errors.append(json.dumps(about))
        return found
