"""A headless Chromium, driven over the pipe of its DevTools protocol: Python alone, no other package."""
import json
import os
import shutil
import subprocess
import tempfile
import time


class Chromium:
    def __init__(self, *flags):
        program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
        self.profile = tempfile.TemporaryDirectory()
        theirs_in, self.write_end = os.pipe()
        self.read_end, theirs_out = os.pipe()

        def places():  # Chromium reads commands from 3 and answers on 4
            keep_in, keep_out = os.dup(theirs_in), os.dup(theirs_out)
            os.dup2(keep_in, 3)
            os.dup2(keep_out, 4)

        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
             "--disable-dev-shm-usage", "--remote-debugging-pipe", f"--user-data-dir={self.profile.name}", *flags,
             "about:blank"], preexec_fn=places, close_fds=False, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        os.close(theirs_in)
        os.close(theirs_out)
        self.count, self.buffer, self.session, self.errors, self.loads = 0, b"", None, [], 0
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")
        self.call("Runtime.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        os.close(self.write_end)
        os.close(self.read_end)
        self.profile.cleanup()

    def receive(self):
        while b"\0" not in self.buffer:
            part = os.read(self.read_end, 1 << 16)
            if not part:
                raise RuntimeError("Chromium ended")
            self.buffer += part
        line, self.buffer = self.buffer.split(b"\0", 1)
        got = json.loads(line)
        self.loads += got.get("method") == "Page.loadEventFired"
        if got.get("method") == "Runtime.exceptionThrown":
            self.errors.append(got["params"]["exceptionDetails"])
        return got

    def call(self, method, **params):
        self.count += 1
        message = {"id": self.count, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write_end, json.dumps(message).encode() + b"\0")
        while True:
            got = self.receive()
            if got.get("id") == self.count:
                if "error" in got:
                    raise RuntimeError(f"{method}: {got['error']}")
                return got["result"]

    def load(self, method, **params):
        """Page.navigate or Page.reload, until the page's scripts have run: before that its names are unknown."""
        before = self.loads
        self.call(method, **params)
        while self.loads == before:
            self.receive()

    def js(self, expression):
        got = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in got:
            raise RuntimeError(f"{expression}: {got['exceptionDetails']}")
        return got["result"].get("value")

    def wait(self, expression, seconds=60):
        """Until the expression is true; then its value."""
        end = time.monotonic() + seconds
        while True:
            value = self.js(expression)
            if value:
                return value
            if time.monotonic() > end:
                raise RuntimeError(f"not within {seconds} s: {expression}")
            time.sleep(0.05)

    def picture(self, path, width, height=900, dark=False):
        import base64
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        time.sleep(0.3)
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        with open(path, "wb") as file:
            file.write(base64.b64decode(shot["data"]))
