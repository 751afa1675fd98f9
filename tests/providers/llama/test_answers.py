from app.conversation import ToolCall
from app.ids import CallId, TenantId
from app.providers.llama.answers import AnswerMemory
from tests.providers.support import assistant

ME, YOU = TenantId("me"), TenantId("you")
CALL = ToolCall(call_id=CallId("call_0"), name="add", arguments={"a": 1, "b": 2})


def test_an_answer_is_recalled_by_its_content() -> None:
    memory = AnswerMemory()
    memory.remember(ME, "hi", (), (1, 2))

    assert memory.recall(ME, assistant("hi")) == (1, 2)
    assert memory.recall(ME, assistant("ho")) is None


def test_nothing_is_recalled_for_another_tenant() -> None:
    memory = AnswerMemory()
    memory.remember(ME, "hi", (), (1, 2))

    assert memory.recall(YOU, assistant("hi")) is None


def test_calls_are_told_apart_by_what_they_say_and_not_by_their_ids() -> None:
    memory = AnswerMemory()
    memory.remember(ME, "", (CALL,), (1, 2))
    minted = CALL.model_copy(update={"call_id": CallId("run:1:0"), "provider_call_id": "call_0"})
    other = CALL.model_copy(update={"arguments": {"a": 1, "b": 3}})

    assert memory.recall(ME, assistant(tool_calls=(minted,))) == (1, 2)
    assert memory.recall(ME, assistant(tool_calls=(other,))) is None


def test_what_was_not_used_for_longest_is_forgotten() -> None:
    memory = AnswerMemory(most_tokens=5)
    memory.remember(ME, "a", (), (1, 2))
    memory.remember(ME, "b", (), (3, 4))
    memory.recall(ME, assistant("a"))
    memory.remember(ME, "c", (), (5, 6))

    assert [memory.recall(ME, assistant(text)) for text in "abc"] == [(1, 2), None, (5, 6)]


def test_an_answer_that_is_given_again_is_counted_once() -> None:
    memory = AnswerMemory(most_tokens=4)
    memory.remember(ME, "a", (), (1, 2))
    memory.remember(ME, "b", (), (3, 4))
    memory.remember(ME, "b", (), (5, 6))

    assert [memory.recall(ME, assistant(text)) for text in "ab"] == [(1, 2), (5, 6)]


def test_a_tenants_answers_can_be_erased() -> None:
    memory = AnswerMemory(most_tokens=3)
    memory.remember(ME, "a", (), (1, 2))
    memory.remember(YOU, "a", (), (3,))
    memory.erase(ME)
    memory.remember(YOU, "b", (), (4, 5))

    assert memory.recall(ME, assistant("a")) is None
    assert [memory.recall(YOU, assistant(text)) for text in "ab"] == [(3,), (4, 5)]
