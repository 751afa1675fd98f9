"""Ids that are the same in every run of a test."""

from itertools import count

from app.ids import encode_id


class SequentialIds:
    """Satisfies ``ports.clock.IdSource``: the first id holds the number 1, the next 2, whatever their prefixes."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def new(self, prefix: str) -> str:
        return encode_id(prefix, next(self._numbers).to_bytes(16, "big"))
