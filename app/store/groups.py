"""Questions of one kind that come at about the same time, asked in one statement.

The way to the database and back, and the commit, are most of what a short statement costs, and a group pays them once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

from app.errors import StoreUnavailable

Question = TypeVar("Question")
Answer = TypeVar("Answer")

_MOST: Final = 32
# While the first of a group go on, the others' turn comes: what those ask next is on its way before these have asked.
_TOGETHER: Final = 8
# A statement that waits for a row must not keep those waiting that come after it.
_PATIENCE_SECONDS: Final = 0.002

_Turn = tuple[Question, asyncio.Future[Answer]]


class Group(Generic[Question, Answer]):
    """Asks together what is asked in the same round of the event loop, or while the group before is on its way.

    ``ask_all`` answers up to 32 questions, in their order, and does all that it does or nothing. Where it raises
    anything but StoreUnavailable, each question is asked again by ``ask_one``, which also has those that come alone: so
    nobody hears of another one's error. ``shares``: equal questions of a group are asked once, and get the same answer;
    then a question is hashable.
    """

    def __init__(
        self,
        ask_one: Callable[[Question], Awaitable[Answer]],
        ask_all: Callable[[Sequence[Question]], Awaitable[Sequence[Answer]]],
        *,
        shares: bool = False,
    ) -> None:
        self._ask_one = ask_one
        self._ask_all = ask_all
        self._shares = shares
        self._waiting: list[_Turn[Question, Answer]] = []
        # Of the group that the next one waits for; None where it may begin.
        self._before: object | None = None
        self._sent: set[asyncio.Task[None]] = set()

    async def ask(self, question: Question) -> Answer:
        """Raises what asking it alone would raise. Who is cancelled does not know whether it was asked."""
        turn: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, turn))
        if self._before is None:
            self._begin_soon()
        return await turn

    def _begin_soon(self) -> None:
        """When those that are ready to run now have run: they may ask too."""
        self._before = self
        asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        self._waiting = [(question, turn) for question, turn in self._waiting if not turn.done()]
        group, self._waiting = self._waiting[:_MOST], self._waiting[_MOST:]
        if not group:
            self._before = None
            return
        task = asyncio.ensure_future(self._send(group))
        self._before = task
        self._sent.add(task)
        late = asyncio.get_running_loop().call_later(_PATIENCE_SECONDS, self._let_next, task)
        task.add_done_callback(lambda ended: self._forget(ended, late))

    def _forget(self, task: "asyncio.Task[None]", late: asyncio.TimerHandle) -> None:
        late.cancel()
        self._sent.discard(task)
        self._let_next(task)

    def _let_next(self, task: object) -> None:
        if self._before is not task:
            return
        self._before = None
        if self._waiting:
            self._begin_soon()

    async def _send(self, group: list[_Turn[Question, Answer]]) -> None:
        try:
            await self._answer(group)
        finally:
            for _, turn in group:
                if not turn.done():
                    turn.cancel()

    async def _answer(self, group: list[_Turn[Question, Answer]]) -> None:
        questions = [question for question, _ in group]
        asked = list(dict.fromkeys(questions)) if self._shares else questions
        if len(asked) == 1:
            return await self._answer_alone(asked[0], [turn for _, turn in group])
        try:
            told = await self._ask_all(asked)
        except StoreUnavailable as error:
            # Nobody knows whether it was done, for none of them.
            for _, turn in group:
                _fail(turn, StoreUnavailable(str(error)))
            return None
        except Exception:  # noqa: BLE001 - whose it is shows when each is asked alone
            await asyncio.gather(*(self._answer_alone(question, [turn]) for question, turn in group))
            return None
        # What they go on to ask need not wait for the others.
        self._let_next(asyncio.current_task())
        answers = dict(zip(asked, told, strict=True)) if self._shares else None
        for place, (question, turn) in enumerate(group):
            if place % _TOGETHER == 0 and place:
                await asyncio.sleep(0)
            _settle(turn, told[place] if answers is None else answers[question])
        return None

    async def _answer_alone(self, question: Question, turns: list[asyncio.Future[Answer]]) -> None:
        try:
            told = await self._ask_one(question)
        except Exception as error:  # noqa: BLE001 - it is told to who asked
            for turn in turns:
                _fail(turn, error)
        else:
            for turn in turns:
                _settle(turn, told)


def _settle(turn: asyncio.Future[Answer], answer: Answer) -> None:
    if not turn.done():
        turn.set_result(answer)


def _fail(turn: asyncio.Future[Answer], error: Exception) -> None:
    if not turn.done():
        turn.set_exception(error)
