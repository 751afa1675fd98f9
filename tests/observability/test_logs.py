"""One format for everything, and no content in it."""

import asyncio
import io
import json
import logging
import sqlite3

import pytest
import structlog
from sqlalchemy.exc import IntegrityError

from app.errors import ConfigurationError
from app.observability import configure_logs, get_logger
from app.observability.logs import StepLog, describe_exception
from tests.observability.support import ReadLines


def test_our_line_has_time_level_logger_and_its_fields(stream: io.StringIO, read_lines: ReadLines) -> None:
    get_logger("runwright.run").info("run_step", run_id="run_1", seq=3)
    (line,) = read_lines()
    assert json.loads(stream.getvalue())["timestamp"].endswith("Z")
    assert line == {"event": "run_step", "level": "info", "logger": "runwright.run", "run_id": "run_1", "seq": 3}


def test_a_librarys_line_has_the_same_form(read_lines: ReadLines) -> None:
    logging.getLogger("uvicorn.error").info("Started server process [%d]", 7)
    (line,) = read_lines()
    assert line == {"event": "Started server process [7]", "level": "info", "logger": "uvicorn.error"}


def test_a_logger_of_structlog_goes_the_same_way(read_lines: ReadLines) -> None:
    structlog.get_logger("runwright.cli").warning("slow", seconds=2)
    (line,) = read_lines()
    assert (line["event"], line["level"], line["seconds"]) == ("slow", "warning", 2)


def test_a_line_stays_one_line_whatever_is_in_it(stream: io.StringIO, read_lines: ReadLines) -> None:
    logging.getLogger("any").warning("two\nlines \ud83d \x00")
    assert len(stream.getvalue().splitlines()) == 1
    assert read_lines()[0]["event"] == "two\nlines \ud83d \x00"


def test_statements_and_their_parameters_are_not_logged(stream: io.StringIO) -> None:
    logging.getLogger("sqlalchemy.engine.Engine").info("INSERT INTO runs VALUES ('hunter2')")
    logging.getLogger("httpx").info("HTTP Request: GET https://example.com/?key=hunter2")
    assert stream.getvalue() == ""


def test_debug_lines_need_a_lower_level(stream: io.StringIO, read_lines: ReadLines) -> None:
    get_logger("runwright.run").debug("detail")
    logging.getLogger("any").debug("detail")
    assert stream.getvalue() == ""
    configure_logs(level="debug", stream=stream)
    get_logger("runwright.run").debug("detail")
    assert [line["level"] for line in read_lines()] == ["debug"]


def test_an_exception_is_shown_by_type_and_place_and_not_by_its_text(
    stream: io.StringIO, read_lines: ReadLines
) -> None:
    try:
        try:
            raise sqlite3.IntegrityError("UNIQUE failed: hunter2")
        except sqlite3.IntegrityError as error:
            raise IntegrityError("INSERT", {"text": "hunter2"}, error) from error
    except IntegrityError:
        logging.getLogger("any").exception("the append failed")
    (line,) = read_lines()
    assert line["event"] == "the append failed"
    assert [one["type"] for one in line["exception"]] == ["sqlalchemy.exc.IntegrityError", "sqlite3.IntegrityError"]
    assert "test_logs.py" in line["exception"][0]["frames"][-1]
    assert "hunter2" not in stream.getvalue()


def test_the_text_of_our_own_configuration_errors_and_the_systems_is_shown() -> None:
    error = ConfigurationError("no such model")
    error.__cause__ = ConnectionRefusedError(111, "refused")
    assert [one["text"] for one in describe_exception(error)] == ["no such model", "[Errno 111] refused"]


def test_an_endless_chain_of_causes_ends() -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert len(describe_exception(first)) == 5


def test_a_suppressed_context_is_not_shown() -> None:
    error = ValueError("a")
    error.__context__ = KeyError("b")
    error.__suppress_context__ = True
    assert [one["type"] for one in describe_exception(error)] == ["builtins.ValueError"]


def test_an_access_line_loses_its_query(read_lines: ReadLines) -> None:
    path = "/runs/run_1/events?ticket=hunter2"
    arguments = ("127.0.0.1:5000", "GET", path, "1.1", 200)
    logging.getLogger("uvicorn.access").info('%s - "%s %s HTTP/%s" %d', *arguments)
    assert read_lines()[0]["event"] == '127.0.0.1:5000 - "GET /runs/run_1/events HTTP/1.1" 200'


async def _fail() -> None:
    raise ValueError("hunter2")


async def test_a_task_that_nobody_asked_about_does_not_tell_its_error(
    stream: io.StringIO, read_lines: ReadLines
) -> None:
    task = asyncio.create_task(_fail())
    await asyncio.wait([task])
    context = {"message": "Task exception was never retrieved", "task": task, "exception": task.exception()}
    asyncio.get_running_loop().default_exception_handler(context)
    (line,) = read_lines()
    assert line["event"] == "Task exception was never retrieved"
    assert line["exception"][0]["type"] == "builtins.ValueError"
    assert "hunter2" not in stream.getvalue()


def test_a_record_that_cant_be_formatted_leaves_a_trace_and_no_arguments(
    stream: io.StringIO, read_lines: ReadLines
) -> None:
    record = logging.LogRecord("any", logging.WARNING, __file__, 7, "%d items", ("hunter2",), None)
    logging.getLogger().handlers[0].handle(record)  # Directly: pytest's own handler would raise.
    (line,) = read_lines()
    assert (line["event"], line["level"]) == ("log_record_lost", "error")
    assert "hunter2" not in stream.getvalue()


def test_a_value_that_is_no_json_is_shown_by_its_type_only(read_lines: ReadLines) -> None:
    class Secret:
        def __repr__(self) -> str:
            return "hunter2"

    get_logger("any").info("odd", value=Secret())
    assert read_lines()[0]["value"] == "Secret"


def test_configuring_twice_writes_each_line_once(stream: io.StringIO, read_lines: ReadLines) -> None:
    configure_logs(stream=stream)
    get_logger("any").info("once")
    assert len(read_lines()) == 1


def test_a_level_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="there is no log level 'loud'"):
        configure_logs(level="loud")


def test_what_is_inside_a_group_of_exceptions_is_shown() -> None:
    [group] = describe_exception(ExceptionGroup("several", [ValueError("secret"), KeyError("secret")]))
    assert [inner[0]["type"] for inner in group["exceptions"]] == ["builtins.ValueError", "builtins.KeyError"]


def test_a_steps_line_is_the_one_that_a_logger_writes(stream: io.StringIO, read_lines: ReadLines) -> None:
    fields = {"run_id": "run_1", "seq": 3, "odd": {1, 2}}
    get_logger("runwright.run").info("run_step", **fields)
    StepLog("runwright.run").info("run_step", [fields, fields])
    timestamps = [json.loads(line)["timestamp"] for line in stream.getvalue().splitlines()]
    assert {len(timestamp) for timestamp in timestamps} == {len("2026-01-31T12:00:00.000000Z")}
    ours, first, second = read_lines()
    assert ours == first == second


def test_steps_are_left_out_where_the_level_is_higher(stream: io.StringIO) -> None:
    configure_logs(level="warning", stream=stream)
    StepLog("runwright.run").info("run_step", [{"seq": 3}])
    assert stream.getvalue() == ""
