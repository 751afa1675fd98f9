"""The API's description as one page of plain HTML: no script, nothing loaded from anywhere."""

import base64
import hashlib
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Final

_STYLE: Final = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a; }
section { border-top: 1px solid #ccc; padding: .5rem 0; }
h2 { font: 600 1rem/1.5 ui-monospace, monospace; margin: .5rem 0; }
dt { font-family: ui-monospace, monospace; float: left; clear: left; min-width: 10rem; padding-right: 1rem; }
dd { margin: 0 0 .25rem 11rem; }
pre { background: #f4f4f4; padding: .75rem; overflow-x: auto; }
@media (prefers-color-scheme: dark) { body { background: #161616; color: #e6e6e6; } pre { background: #242424; } }
"""
_STYLE_DIGEST: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
CONTENT_SECURITY_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_DIGEST}'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_METHODS: Final = ("get", "put", "post", "patch", "delete")


def render_page(document: Mapping[str, Any]) -> str:
    """One section an operation. Everything that comes from the document is escaped."""
    info = document["info"]
    return "".join(
        (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width">',
            f"<title>{escape(info['title'])}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{escape(info['title'])} {escape(info['version'])}</h1><p>{escape(info['description'])}</p>",
            '<p>The same in full: <a href="/openapi.json">openapi.json</a></p>',
            *_sections(document),
            "</body></html>",
        )
    )


def _sections(document: Mapping[str, Any]) -> Iterator[str]:
    shared = document["components"]["responses"]
    for path, operations in document["paths"].items():
        for method in _METHODS:
            if method in operations:
                yield from _section(f"{method.upper()} {path}", operations[method], shared)


def _section(title: str, operation: Mapping[str, Any], shared: Mapping[str, Any]) -> Iterator[str]:
    yield f"<section><h2>{escape(title)}</h2><p>{escape(operation['summary'])}"
    yield f". {escape(operation.get('description', ''))}</p><dl>"
    for parameter in operation.get("parameters", []):
        yield f"<dt>{escape(parameter['name'])}</dt><dd>{escape(parameter.get('description', parameter['in']))}</dd>"
    for status, answer in operation["responses"].items():
        # What one route says beside a reference holds in place of what all routes share (OpenAPI 3.1).
        described = answer if "description" in answer else shared[answer["$ref"].rpartition("/")[2]]
        yield f"<dt>{escape(str(status))}</dt><dd>{escape(described['description'])}</dd>"
    yield "</dl></section>"
