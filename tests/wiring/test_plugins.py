"""A plugin adds what it says by name, and whatever is wrong with one is said at start, with its line."""

import sys
from pathlib import Path
from textwrap import dedent

import pytest

from app.errors import ConfigurationError
from app.hooks import HookRegistry
from app.tools import ToolRegistry, tool
from app.wiring.plugins import PluginRegistry, load_plugins


class Registries:
    """A process's registries, empty."""

    def __init__(self) -> None:
        self.tools = ToolRegistry()
        self.hooks = HookRegistry()
        self.plugins = PluginRegistry(tools=self.tools, hooks=self.hooks, taken_provider_names=["llama"])


@pytest.fixture
def registries() -> Registries:
    return Registries()


def write(path: Path, text: str) -> str:
    path.write_text(dedent(text))
    return str(path)


ADDS_ECHO = """
    from app.tools import tool

    @tool
    def echo(text: str) -> str:
        return text

    def register(registry):
        registry.add_tool(echo)
    """

ADDS_THE_REST = """
    from app.hooks import LengthGuard
    from app.ports.hooks import HookDecision, HookPoint
    from app.providers import ScriptedProvider

    class Hook:
        points = frozenset({HookPoint.ON_TERMINAL})

        def __init__(self, name):
            self.name = name

        async def decide(self, subject):
            return HookDecision.proceed()

    def register(registry):
        registry.add_hook(Hook("audit"))
        registry.add_deployment_hook(Hook("always"))
        registry.add_guardrail(LengthGuard(9))
        registry.add_model_provider(ScriptedProvider({}, name="mine"))
    """


def test_plugins_add_all_kinds_of_things_by_name(registries: Registries, tmp_path: Path) -> None:
    first, second = write(tmp_path / "a.py", ADDS_ECHO), write(tmp_path / "b.py", ADDS_THE_REST)
    assert load_plugins(f" {first} ,, {second},", registries.plugins) == (first, second)
    assert [found.name for found in registries.tools.all()] == ["echo"]
    assert registries.hooks.hook("audit") is not None
    assert [hook.name for hook in registries.hooks.deployment_hooks()] == ["always"]
    assert registries.hooks.guardrail("length_guard") is not None
    assert list(registries.plugins.providers) == ["mine"]


@pytest.mark.parametrize("spec", ["", " ", " , ,"])
def test_no_plugins_are_no_error(registries: Registries, spec: str) -> None:
    assert load_plugins(spec, registries.plugins) == ()


def test_a_module_is_imported_by_its_name(
    registries: Registries, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "runwright_test_plugin.py", ADDS_ECHO)
    monkeypatch.syspath_prepend(tmp_path)
    load_plugins("runwright_test_plugin", registries.plugins)
    assert registries.tools.find("echo") is not None


def test_a_path_is_relative_to_the_working_directory(
    registries: Registries, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a.py", ADDS_ECHO)
    monkeypatch.chdir(tmp_path)
    load_plugins("a.py", registries.plugins)
    assert registries.tools.find("echo") is not None


def test_a_file_hides_no_installed_module_and_no_other_file_of_its_name(registries: Registries, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    json_before = sys.modules["json"]
    first = write(tmp_path / "one" / "json.py", ADDS_ECHO)
    second = write(tmp_path / "two" / "json.py", ADDS_THE_REST)
    load_plugins(f"{first},{second}", registries.plugins)
    assert sys.modules["json"] is json_before
    loaded = {getattr(module, "__file__", None) for module in sys.modules.values()}
    assert {first, second} <= loaded


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("register = 3", "has no function register"),
        ("def setup(registry): ...", "has no function register"),
        ("async def register(registry): ...", "register is asynchronous"),
        ("x = 1\nraise ValueError('why')", "line 2: ValueError: why"),
        ("\n\nimport no_such_module_here", "line 3: ModuleNotFoundError: No module named 'no_such_module_here'"),
        ("x = 1\ndef register(registry:\n    ...", "line 2: SyntaxError"),
        ("def register(registry):\n    registry.add_everything()", "line 2: AttributeError"),
        ("def register(registry):\n\n    import json\n    json.loads('{')", "line 4: JSONDecodeError"),
        ("def register(registry):\n    fail()\n\ndef fail():\n    raise ValueError('why')", "line 5: ValueError: why"),
        ("def register():\n    ...", "TypeError"),
        ("raise SystemExit(0)", "line 1: SystemExit: 0"),
        ("def register(registry):\n    registry.add_tool(print)", "line 2: .*is no tool"),
    ],
)
def test_what_is_wrong_with_a_plugin_is_told_with_its_name_and_line(
    registries: Registries, tmp_path: Path, text: str, problem: str
) -> None:
    path = write(tmp_path / "broken.py", text)
    with pytest.raises(ConfigurationError, match=rf"^plugin '{path}'.*{problem}"):
        load_plugins(path, registries.plugins)
    assert registries.tools.all() == ()


def test_a_file_that_broke_leaves_no_module_behind(registries: Registries, tmp_path: Path) -> None:
    path = write(tmp_path / "broken_halfway.py", "raise ValueError")
    with pytest.raises(ConfigurationError):
        load_plugins(path, registries.plugins)
    assert not any("broken_halfway" in name for name in sys.modules)


def test_a_plugin_that_adds_what_is_there_already_is_refused_with_its_line(
    registries: Registries, tmp_path: Path
) -> None:
    @tool
    def echo() -> None: ...

    registries.tools.register(echo)
    path = write(tmp_path / "a.py", ADDS_ECHO)
    with pytest.raises(ConfigurationError, match=r"a\.py', line 9: tool 'echo' is registered already"):
        load_plugins(path, registries.plugins)


@pytest.mark.parametrize("name", ["llama", "with space", "", "a:b"])
def test_a_provider_whose_name_is_taken_or_none_is_refused(registries: Registries, tmp_path: Path, name: str) -> None:
    text = f"""
        from app.providers import ScriptedProvider

        def register(registry):
            registry.add_model_provider(ScriptedProvider({{}}, name={name!r}))
        """
    with pytest.raises(ConfigurationError, match=r"line 5: .*(can't be a model provider's name|registered already)"):
        load_plugins(write(tmp_path / "a.py", text), registries.plugins)
    assert registries.plugins.providers == {}


def test_two_providers_of_one_name_are_refused(registries: Registries, tmp_path: Path) -> None:
    text = """
        from app.providers import ScriptedProvider

        def register(registry):
            registry.add_model_provider(ScriptedProvider({}, name="mine"))
        """
    first, second = write(tmp_path / "a.py", text), write(tmp_path / "b.py", text)
    with pytest.raises(ConfigurationError, match=r"b\.py', line 5: model provider 'mine' is registered already"):
        load_plugins(f"{first},{second}", registries.plugins)


@pytest.mark.parametrize("plugin", ["missing.py", "./missing/plugin.py", "./"])
def test_a_file_that_is_missing_is_named(registries: Registries, plugin: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^plugin '{plugin}': there is no such file"):
        load_plugins(plugin, registries.plugins)


@pytest.mark.parametrize("plugin", ["no_such_module_here", "no_such_package.plugin", "..relative"])
def test_a_module_that_is_missing_is_named(registries: Registries, plugin: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^plugin '{plugin}'"):
        load_plugins(plugin, registries.plugins)


def test_a_plugin_that_is_listed_twice_is_refused(
    registries: Registries, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.py", ADDS_ECHO)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=r"'\./a\.py' is listed twice"):
        load_plugins(f"{path},./a.py", registries.plugins)


def test_a_sealed_registry_refuses_a_plugins_hook(registries: Registries, tmp_path: Path) -> None:
    registries.hooks.seal()
    with pytest.raises(ConfigurationError, match="comes too late"):
        load_plugins(write(tmp_path / "a.py", ADDS_THE_REST), registries.plugins)
