"""The right to drive a run, as this process knows it."""

from collections.abc import Iterator

from app.ids import RunId, TenantId
from app.ports.cancellation import CancellationToken
from app.ports.clock import Clock
from app.ports.records import CancelWish, Claim


class Lease:
    """A claim and how long it surely holds, on this process's monotonic clock.

    No fence can see a worker that was paused between ``tool_call`` and the call itself, so ``is_safe`` is asked right
    before each dispatch. ``cancellation`` is the run's token: the heartbeat trips it when somebody asked for the end.
    ``lost`` is tripped when another claim holds the run: work under way stops, and nothing is written of it.
    ``handed_back`` is tripped when the run is to go back to the queue: the process goes away, or it is paused. The
    lease of a run below another one is that one's: it holds as long, is lost with it, and is cancelled with it.
    """

    def __init__(self, claim: Claim, *, margin_seconds: float) -> None:
        self.claim = claim
        self.until = claim.lease_until
        self.cancellation = CancellationToken()
        self.lost = CancellationToken()
        self.handed_back = CancellationToken()
        self._margin_seconds = margin_seconds
        self._below: list[Lease] = []

    def below(self, claim: Claim) -> "Lease":
        """The lease of a run below this one."""
        lease = Lease(claim, margin_seconds=self._margin_seconds)
        lease.until = self.until
        self.lost.link(lease.lost)
        self.cancellation.link(lease.cancellation)
        self._below.append(lease)
        return lease

    def let_go(self, lease: "Lease") -> None:
        """A run below this one is not driven any more."""
        self._below.remove(lease)

    def tree(self) -> Iterator["Lease"]:
        """This lease, and those of all runs below."""
        yield self
        for lease in tuple(self._below):
            yield from lease.tree()

    @property
    def run_id(self) -> RunId:
        return self.claim.run_id

    @property
    def tenant_id(self) -> TenantId:
        return self.claim.tenant_id

    def is_safe(self, clock: Clock) -> bool:
        """Whether the lease surely holds for the margin's time from now."""
        return clock.monotonic() + self._margin_seconds < self.until

    def extend(self, until: float) -> None:
        for lease in self.tree():
            lease.until = max(lease.until, until)

    def take_wish(self, wish: CancelWish | None) -> None:
        """Trips the token when there is a wish."""
        if wish is not None:
            self.cancellation.cancel(wish.reason, requested_by=wish.requested_by)
