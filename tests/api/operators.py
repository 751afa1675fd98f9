"""What tests of the operator's routes share."""

from collections.abc import AsyncIterator
from typing import Any

import httpx

from tests.api.harness import Service, with_key


class Operator:
    """Asks with an operator's key."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.headers = with_key(service.keys.operator)

    async def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        return await self.service.client.request(method, path, headers=self.headers, **more)

    async def get(self, path: str, **params: Any) -> dict[str, Any]:
        response = await self.ask("GET", path, params=params)
        assert response.status_code == 200, response.text
        return dict(response.json())

    async def post(self, path: str, body: dict[str, Any], *, status: int = 201) -> dict[str, Any]:
        response = await self.ask("POST", path, json=body)
        assert response.status_code == status, response.text
        return dict(response.json())

    async def refusal(self, method: str, path: str, body: Any = None) -> tuple[int, str, list[str]]:
        """Status, code and the places that are wrong."""
        response = await self.ask(method, path, **({} if body is None else {"json": body}))
        problem = response.json()
        return response.status_code, problem["code"], [error["pointer"] for error in problem.get("errors", [])]

    async def create_tenant(self) -> dict[str, Any]:
        """One with a name that nobody has."""
        return await self.post("/tenants", {"name": self.service.deps.ids.new("tenant")})

    async def change(self, tenant_id: str, **changes: Any) -> dict[str, Any]:
        response = await self.ask("PATCH", f"/tenants/{tenant_id}", json=changes)
        assert response.status_code == 200, response.text
        return dict(response.json())

    async def create_key(self, tenant_id: str, **changes: Any) -> dict[str, Any]:
        body = {"subject": "checkout", "scopes": ["runs:read", "runs:write"], **changes}
        return await self.post(f"/tenants/{tenant_id}/keys", body)

    async def last_change(self, action: str, target: str) -> dict[str, Any]:
        """The newest entry of the audit trail about a thing."""
        entries = (await self.get("/audit", action=action, limit=200))["items"]
        return next(entry for entry in entries if entry["target"] == target)


async def pages(operator: Operator, path: str, **params: Any) -> AsyncIterator[list[dict[str, Any]]]:
    """A list, page by page."""
    cursor: dict[str, str] = {}
    while True:
        page = await operator.get(path, **params, **cursor)
        yield page["items"]
        if page["next_cursor"] is None:
            return
        cursor = {"cursor": page["next_cursor"]}
