"""``runwright settings``: what can be set."""

from pydantic_core import PydanticUndefined

from app.settings import Settings


def settings_command() -> None:
    """Print every setting with its default, as the table of docs/settings.md."""
    print(render_settings())


def render_settings() -> str:
    """The table in Markdown."""
    lines = ["| variable | default | what it sets |", "| --- | --- | --- |"]
    for name, field in Settings.model_fields.items():
        lines.append(f"| `{Settings.variable(name)}` | {_default(field.default)} | {field.description} |")
    return "\n".join(lines)


def _default(value: object) -> str:
    if value is None or value == () or value is PydanticUndefined:
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"
