"""The service of the tests of the API behind a real server, and the programs that the clients here are made of."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.api import ApiConfig
from tests.api.conftest import admin, api_urls, database, deps, feed, owner, service
from tests.api.harness import Service, serve
from tests.clients.browser import Browser, Page, serve_page
from tests.clients.modules import install_modules
from tests.clients.readers import NodeReader
from tests.deploy.conftest import find_tool

__all__ = ["admin", "api_urls", "database", "deps", "feed", "owner", "service"]


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    async with serve_page() as page:
        yield page


@pytest.fixture
def config(page: Page) -> ApiConfig:
    """Pages of that origin may read what the service answers."""
    return ApiConfig(allowed_origins=(page.origin,))


@pytest.fixture
def browser(page: Page, tmp_path: Path) -> Browser:
    return Browser(find_tool(os.environ.get("RUNWRIGHT_CHROMIUM", "chromium-headless-shell")), page, tmp_path)


@pytest.fixture
async def address(service: Service) -> AsyncIterator[str]:
    async with serve(service.app) as (address, _):
        yield address


@pytest.fixture(scope="session")
def node_reader() -> NodeReader:
    return NodeReader(find_tool("node"), install_modules(find_tool("npm")))
