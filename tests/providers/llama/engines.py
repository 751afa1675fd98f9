"""An engine as tests of it drive it: requests, and what came of them."""

import queue
from collections.abc import Callable, Sequence

from app.ids import TenantId
from app.providers.llama.engine import Engine
from app.providers.llama.generation import Emission, Generation, Outcome

TENANT = TenantId("one")


PATIENCE_SECONDS = 60


MakeEngine = Callable[..., Engine]


class Asked:
    """A request and what came of it."""

    def __init__(self, prompt: Sequence[int], *, limit: int = 4, tenant: TenantId = TENANT) -> None:
        self.arrivals: queue.Queue[Emission] = queue.Queue()
        self.generation = Generation(
            tenant_id=tenant, prompt=tuple(prompt), max_output_tokens=limit, emit=self.arrivals.put
        )

    def next(self) -> Emission:
        return self.arrivals.get(timeout=PATIENCE_SECONDS)

    def take(self, count: int) -> list[Emission]:
        return [self.next() for _ in range(count)]

    def answer(self) -> tuple[str, Outcome]:
        texts: list[str] = []
        while isinstance(emission := self.next(), str):
            texts.append(emission)
        assert isinstance(emission, Outcome)
        return "".join(texts), emission


def submit(engine: Engine, *requests: Asked) -> None:
    for asked in requests:
        engine.submit(asked.generation)


def cancel(engine: Engine, *requests: Asked) -> None:
    for asked in requests:
        engine.cancel(asked.generation)
