"""A client that a well-kept generator makes of openapi.yaml, and a driver that calls its functions by operation."""

import importlib
import pkgutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.api.contract import DESCRIPTION

PACKAGE = "runwright_client"
# Formatting what nobody reads would need another program.
_CONFIG = "post_hooks: []\n"


def generate(generator: str, folder: Path) -> str:
    """Makes the package below a folder. What the generator has said; AssertionError where it has warned."""
    config = folder / "config.yaml"
    config.write_text(_CONFIG)
    command = [generator, "generate", "--path", str(DESCRIPTION), "--config", str(config), "--fail-on-warning"]
    command += ["--meta", "none", "--output-path", str(folder / PACKAGE)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@contextmanager
def imported(folder: Path) -> Iterator[ModuleType]:
    """The package, for as long as the block lasts."""
    sys.path.insert(0, str(folder))
    try:
        yield importlib.import_module(PACKAGE)
    finally:
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
            del sys.modules[name]


@dataclass(frozen=True)
class GeneratedClient:
    """The generated package, by operations and models."""

    package: ModuleType

    def operations(self) -> dict[str, Callable[..., Any]]:
        """Each operation's function, by the module's name: ``submit_run``."""
        found = pkgutil.walk_packages(importlib.import_module(f"{PACKAGE}.api").__path__, f"{PACKAGE}.api.")
        modules = [importlib.import_module(one.name) for one in found if not one.ispkg]
        return {module.__name__.rpartition(".")[2]: module.sync_detailed for module in modules}

    def model(self, name: str, /, **fields: Any) -> Any:
        """A request's body, from what JSON has."""
        return getattr(importlib.import_module(f"{PACKAGE}.models"), name).from_dict(fields)

    @contextmanager
    def open(self, address: str, key: str) -> "Iterator[Driver]":
        """Somebody with a key."""
        opened = self.package.AuthenticatedClient(base_url=address, token=key, raise_on_unexpected_status=True)
        with opened as client:
            yield Driver(self, client)


@dataclass(frozen=True)
class Driver:
    """Calls operations with one key."""

    generated: GeneratedClient
    client: Any

    def __call__(self, operation: str, *path: str, expect: int | tuple[int, ...] = 200, **arguments: Any) -> Any:
        """What the operation's function makes of the answer, whose status has to be as expected."""
        response = self.generated.operations()[operation](*path, client=self.client, **arguments)
        assert response.status_code in (expect if isinstance(expect, tuple) else (expect,)), response.content
        return response.parsed
