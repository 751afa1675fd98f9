"""A browser's own EventSource: a page that reads a stream, and the headless Chromium that opens it."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from tests.api.harness import serve
from tests.clients.readers import NAMES, Received

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Also keeps it open for as long as nobody ends it.
    "--remote-debugging-port=0",
)
_PAGE = """<!doctype html><meta charset="utf-8"><title>reads a stream</title><script>
const {url, names, enough} = PARAMETERS;
const seen = {frames: [], errors: 0, state: null};
const report = () => fetch("/seen", {method: "POST", body: JSON.stringify(seen)});
const source = new EventSource(url);
const keep = event => {
  seen.frames.push({id: event.lastEventId, event: event.type, data: event.data});
  if (seen.frames.length !== enough) return;
  source.close();
  report();
};
for (const name of ["message", ...names]) source.addEventListener(name, keep);
source.addEventListener("error", () => {
  seen.errors += 1;
  if (source.readyState !== EventSource.CLOSED) return;
  seen.state = source.readyState;
  // Long enough for a client that comes back although it was told not to.
  setTimeout(report, 500);
});
</script>"""
_PATIENCE_SECONDS = 90


@dataclass
class Page:
    """Serves the page from an origin of its own, and takes what the page has seen."""

    origin: str = ""
    content: str = ""
    seen: asyncio.Queue[dict[str, Any]] = field(default_factory=asyncio.Queue)

    def show(self, url: str, enough: int) -> None:
        """The page is to read the stream at this address, to its end or until it has so many events."""
        self.content = _PAGE.replace("PARAMETERS", json.dumps({"url": url, "names": NAMES, "enough": enough}))

    def make_app(self) -> FastAPI:
        app = FastAPI(openapi_url=None)

        @app.get("/")
        async def show() -> Response:
            return HTMLResponse(self.content)

        @app.post("/seen")
        async def take(request: Request) -> Response:
            await self.seen.put(await request.json())
            return Response(status_code=204)

        return app


@asynccontextmanager
async def serve_page() -> AsyncIterator[Page]:
    page = Page()
    async with serve(page.make_app()) as (page.origin, _):
        yield page


@dataclass(frozen=True)
class Browser:
    """Reads a stream to its end: what ``address`` is with a ticket in it. ``profile`` is an empty folder."""

    chromium: str
    page: Page
    profile: Path

    async def read(self, url: str, enough: int = 0) -> list[Received]:
        self.page.show(url, enough)
        process = await asyncio.create_subprocess_exec(
            self.chromium,
            *_FLAGS,
            f"--user-data-dir={self.profile}",
            self.page.origin,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            env={"HOME": str(self.profile), "PATH": os.environ["PATH"]},
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                seen = await self.page.seen.get()
        finally:
            # It is several processes, and the session is theirs alone.
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        return [Received(**frame) for frame in seen["frames"]]
