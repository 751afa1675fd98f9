"""The HTTP server, and its going away."""

import contextlib
import socket
from collections.abc import Callable, Collection, Iterator
from typing import Final

import uvicorn
from fastapi import FastAPI

from app.api import SOCKET_PATH
from app.errors import ConfigurationError
from app.wiring.bounds import bounded_protocol
from app.wiring.signals import StopSignals
from app.wiring.sockets import MAX_MESSAGE_BYTES, bounded_socket

_PING_SECONDS: Final = 15.0


class _Server(uvicorn.Server):
    """uvicorn without its signal handling: it raises the signal again when it is done, and the default for that is
    the end of the process, before runs were handed back and the database was closed."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpServer:
    """Listens at once, so that the port is known; serves in ``serve``. Who connects is the client, but for
    ``trusted_proxies``: what one of these adds to ``X-Forwarded-For`` is."""

    def __init__(
        self,
        app: FastAPI,
        *,
        host: str,
        port: int,
        drain_seconds: float,
        request_seconds: float,
        trusted_proxies: Collection[str] = (),
    ) -> None:
        self._socket = listen(host, port)
        self._server = _Server(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                lifespan="off",
                http=bounded_protocol(request_seconds, SOCKET_PATH),
                ws=bounded_socket(request_seconds),
                ws_max_size=MAX_MESSAGE_BYTES,
                ws_ping_interval=_PING_SECONDS,
                ws_ping_timeout=request_seconds,
                # It would cost memory for each reader, and tell of what is sent by its length.
                ws_per_message_deflate=False,
                server_header=False,
                # By itself the library believes whoever comes from this machine, and a variable of its own.
                proxy_headers=bool(trusted_proxies),
                forwarded_allow_ips=list(trusted_proxies),
                # Open streams are told to end; what does not end by then is cut.
                timeout_graceful_shutdown=max(1, round(drain_seconds)),
            )
        )

    @property
    def address(self) -> str:
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def serve(self, signals: StopSignals, *, on_stop: Callable[[], None]) -> None:
        """Until a signal or ``stop``. ``on_stop`` is called when a signal comes; a second one does not wait."""

        def hear() -> None:
            if self._server.should_exit:
                self._server.force_exit = True
            self._server.should_exit = True
            on_stop()

        with signals.tell(hear):
            await self._server.serve(sockets=[self._socket])

    async def serve_beside(self) -> None:
        """Until ``stop``: signals are for the server that this one stands beside."""
        await self._server.serve(sockets=[self._socket])

    def stop(self) -> None:
        self._server.should_exit = True


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises ConfigurationError ``address_unavailable``."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        # Python adds the address in its own words.
        reason = (error.strerror or str(error)).partition(" (while ")[0]
        raise ConfigurationError(f"can't listen on {host}:{port}: {reason}", code="address_unavailable") from None
    # Connections inherit it. asyncio sets it only where a socket names its protocol, which this one does not; without
    # it an answer's second piece waits 40 ms for the first to be acknowledged.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening
