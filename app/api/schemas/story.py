"""The story that every example of the description tells: ids, times and places in it, the same wherever they come up.

Ada wants four nights near Kyoto. The agent ``trip-planner`` looks for places to stay and wants to book one; Bo allows
the booking, and the run is completed. Olga is the operator who has made all of it possible.
"""

from typing import Any, Final

_AT: Final = "01kb3v7qzjfmqs6h2q9e8xw4zt"
_LATER: Final = "01kb3v7r5mfmqs6h2q9e8xw4zt"

TENANT_ID: Final = f"ten_{_AT}"
KEY_ID: Final = f"key_{_AT}"
NEW_KEY_ID: Final = f"key_{_LATER}"
SESSION_ID: Final = f"ses_{_AT}"
RUN_ID: Final = f"run_{_LATER}"
APPROVAL_ID: Final = f"apr_{_LATER}"
WEBHOOK_ID: Final = f"whk_{_AT}"
DELIVERY_ID: Final = f"dlv_{_LATER}"
PAUSE_ID: Final = f"pau_{_AT}"
REQUEST_ID: Final = f"req_{_LATER}"
WORKER_ID: Final = f"host:4711:wrk_{_AT}"

AGENT: Final = "trip-planner"
TOOL: Final = "book_stay"
MODEL: Final = "llama:default"
USER: Final = "ada"
SERVICE: Final = "travel-site"
APPROVER: Final = "bo"
OPERATOR: Final = "olga"
CALL_ID: Final = "call_2_1"
ARTIFACT: Final = "itinerary.md"
ARTIFACT_TEXT: Final = "# Four nights in Uji\n"
ARTIFACT_SHA256: Final = "6ac18cfe35b44caaa6c5d144a2cea4a71313bca5230c6f48be530f1dd7ab628d"
DIGEST: Final = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

CREATED_AT: Final = "2026-01-31T12:00:00.000Z"
STARTED_AT: Final = "2026-01-31T12:00:00.004Z"
ASKED_AT: Final = "2026-01-31T12:00:01.250Z"
DECIDED_AT: Final = "2026-01-31T12:04:10.500Z"
EXPIRES_AT: Final = "2026-01-31T13:00:01.250Z"
ENDED_AT: Final = "2026-01-31T12:04:13.120Z"
DAY_BEFORE: Final = "2026-01-30T12:00:00.000Z"

INPUT: Final = "Four nights near Kyoto."
ANSWER: Final = "Four nights at the Hanare Inn in Uji are booked: HN-2041."
METADATA: Final = {"ticket": "T-1"}

# Places that only the service can make.
CURSOR: Final = "WzE3Njk4NjA4MDAuMCwicnVuXzAxa2IzdjdyNW0iXQ.0m8vC1mWb4q7yq3x"
PLACE: Final = "WzcsNDIsMV0.Jv1f3hV0b9c2kq8d"

BUDGET: Final = {"max_output_tokens": 500, "max_tool_calls": 5}
LIMITS: Final = {
    "max_queued_runs": 1_000,
    "max_running_runs": 8,
    "requests_per_minute": 600,
    "weight": 2,
    "tools": ["book_stay", "find_stays"],
    "models": None,
    "budget": {"max_cost": "0.5", "max_output_tokens": 4_000},
    "ceilings": [{"dimension": "cost", "window_seconds": 86_400, "limit": "25"}],
    "on_ledger_error": "fail",
}
TOOL_TAKES: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"stay": {"type": "string"}, "nights": {"type": "integer", "minimum": 1}},
    "required": ["stay", "nights"],
    "additionalProperties": False,
}
