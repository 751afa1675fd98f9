"""Servers of strangers: real sockets on loopback, each with its own way to answer."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Receiver:
    """What a server got: each request as its head and its body."""

    port: int = 0
    heads: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    def url(self, host: str = "hooks.test", path: str = "/in", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    def header(self, name: str) -> str:
        """Of the last request."""
        lines = (line.split(": ", 1) for line in self.heads[-1].split("\r\n")[1:])
        return {found.lower(): value for found, value in lines}[name]


def say(text: bytes) -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(text)
        await writer.drain()

    return answer


say_ok = say(OK)


def say_for_ever(start: bytes, text: bytes, *, every_seconds: float = 0.0) -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(start)
        while True:
            writer.write(text)
            await writer.drain()
            await asyncio.sleep(every_seconds)

    return answer


async def say_nothing(writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def reset(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


@contextlib.asynccontextmanager
async def receive(answer: Answer = say_ok, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
    receiver = Receiver()
    open_tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        open_tasks.add(task)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").removesuffix("\r\n\r\n")
            sizes = [line[15:] for line in head.lower().split("\r\n") if line.startswith("content-length:")]
            receiver.heads.append(head)
            receiver.bodies.append(await reader.readexactly(int(sizes[0]) if sizes else 0))
            await answer(writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            open_tasks.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        tasks = list(open_tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass
class Names:
    """A name server that answers each question with the next of its answers, and the last one again and again."""

    answers: Sequence[Sequence[str] | OSError]
    asked: list[tuple[str, int]] = field(default_factory=list)

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        answer = self.answers[min(len(self.asked), len(self.answers) - 1)]
        self.asked.append((host, port))
        if isinstance(answer, OSError):
            raise answer
        return answer
