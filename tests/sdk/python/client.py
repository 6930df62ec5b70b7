"""A client written with the official Python SDK: client.py jsonrpc|rest URL [CHECK …]

Talks to an agent of these tests at URL, directly or through a gateway, and prints one line of JSON for each promise that it checks:
{"check": NAME, "ok": true} or {"check": NAME, "ok": false, "why": …}. Without names it checks everything that is in EVERY, side by side.
"""

import asyncio
import json
import sys
import traceback
import uuid

import httpx
from a2a.client import A2ACardResolver, ClientCallContext, ClientConfig, ClientFactory
from a2a.client.service_parameters import ServiceParametersFactory, with_a2a_extensions
from a2a.helpers import (
    get_artifact_text,
    get_data_parts,
    get_message_text,
    new_data_part,
    new_message,
    new_raw_part,
    new_text_message,
    new_text_part,
    new_url_part,
)
from a2a.types import (
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    Message,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils.errors import (
    A2AError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)

from parts import EXTENSION, OFFER

BINDINGS = {"jsonrpc": "JSONRPC", "rest": "HTTP+JSON"}
COMPLETED = TaskState.TASK_STATE_COMPLETED
INPUT_REQUIRED = TaskState.TASK_STATE_INPUT_REQUIRED
ENDED = {COMPLETED, TaskState.TASK_STATE_FAILED, TaskState.TASK_STATE_CANCELED, TaskState.TASK_STATE_REJECTED}
NOBODY = "no-such-task"


class Checks:
    """Each method named `check_…` is one promise."""

    def __init__(self, binding: str, url: str, http: httpx.AsyncClient) -> None:
        self.binding = BINDINGS[binding]
        self.url = url
        self.http = http

    async def start(self) -> None:
        self.found = await A2ACardResolver(self.http, self.url).get_agent_card()
        self.blocking = self.client(httpx_client=self.http, streaming=False)
        self.streaming = self.client(httpx_client=self.http, streaming=True)

    def client(self, **settings):
        config = ClientConfig(supported_protocol_bindings=[self.binding], **settings)
        return ClientFactory(config).create(self.found)

    async def check_card(self) -> None:
        assert self.found.name == "clerk", self.found.name
        assert self.found.capabilities.streaming
        assert [skill.id for skill in self.found.skills] == ["do"], self.found.skills
        served = [i.protocol_binding for i in self.found.supported_interfaces]
        assert self.binding in served, served
        origin = str(httpx.URL(self.url).copy_with(path="/"))
        for interface in self.found.supported_interfaces:
            assert interface.url.startswith(origin), f"{interface.url} does not lead back to {origin}"

    async def check_send(self) -> None:
        task = await self.task("hello")
        assert task.status.state == COMPLETED, task
        assert text_of(task) == "echo: hello", task
        assert task.id and task.context_id, task

    async def check_message(self) -> None:
        (answer,) = await self.events(self.blocking, "say good morning")
        assert get_message_text(answer.message) == "good morning", answer
        events = await self.events(self.streaming, "say good morning")
        if len(events) == 1:
            assert get_message_text(events[0].message) == "good morning", events
        else:
            # Who is in between may have introduced the task before the agent spoke. Then the message is its last word.
            assert events[0].HasField("task") and state_of(events[-1]) == COMPLETED, events
            assert get_message_text(events[-1].status_update.status.message) == "good morning", events

    async def check_stream(self) -> None:
        events = await self.events(self.streaming, "count 20")
        assert events[0].HasField("task"), events[0]
        pieces = [get_artifact_text(e.artifact_update.artifact) for e in events if e.HasField("artifact_update")]
        assert pieces == [f"{n} " for n in range(20)], pieces
        assert [state_of(e) for e in events if state_of(e) in ENDED] == [COMPLETED], events
        assert state_of(events[-1]) == COMPLETED, events[-1]
        ids = {task_id(e) for e in events}
        assert len(ids) == 1, ids
        again = await self.get(ids.pop())
        assert text_of(again) == "\n".join(pieces), again

    async def check_return_immediately(self) -> None:
        task = await self.task("slow 0.5", at_once=True)
        assert task.status.state not in ENDED, task
        ended = await self.ended(task)
        assert ended.status.state == COMPLETED, ended
        assert text_of(ended) == "slow but done", ended

    async def check_get(self) -> None:
        task = await self.task("remember me")
        again = await self.get(task.id)
        assert again.id == task.id and again.context_id == task.context_id, again
        assert again.status.state == COMPLETED, again
        assert text_of(again) == "echo: remember me", again
        assert "remember me" in [get_message_text(m) for m in again.history], again
        short = await self.blocking.get_task(GetTaskRequest(id=task.id, history_length=0))
        assert not short.history, short

    async def check_list(self) -> None:
        context_id = str(uuid.uuid4())
        made = [await self.task(text, context_id=context_id) for text in ["a", "b", "book", "c", "d"]]
        asked = ListTasksRequest(context_id=context_id, page_size=2)
        listed: list[Task] = []
        for _ in range(9):
            page = await self.blocking.list_tasks(asked)
            assert len(page.tasks) <= 2 and page.total_size == len(made), page
            listed += page.tasks
            if not page.next_page_token:
                break
            asked.page_token = page.next_page_token
        assert [t.id for t in listed] == [t.id for t in reversed(made)], f"not the newest first: {listed}"
        times = [t.status.timestamp.ToNanoseconds() for t in listed]
        assert all(times) and times == sorted(times, reverse=True), times
        assert not any(t.artifacts for t in listed), listed

        for minutes, newer in ((-10, len(made)), (10, 0)):
            since = ListTasksRequest(context_id=context_id)
            since.status_timestamp_after.FromNanoseconds(times[0] + minutes * 60 * 10**9)
            page = await self.blocking.list_tasks(since)
            assert page.total_size == len(page.tasks) == newer, page
        waiting = await self.blocking.list_tasks(ListTasksRequest(context_id=context_id, status=INPUT_REQUIRED))
        assert [t.id for t in waiting.tasks] == [made[2].id] and waiting.total_size == 1, waiting
        whole = await self.blocking.list_tasks(
            ListTasksRequest(context_id=context_id, status=COMPLETED, include_artifacts=True)
        )
        assert len(whole.tasks) == 4 and all(t.artifacts for t in whole.tasks), whole
        assert not whole.next_page_token, whole
        nobody = await self.blocking.list_tasks(ListTasksRequest(context_id=str(uuid.uuid4())))
        assert not nobody.tasks and nobody.total_size == 0, nobody

    async def check_subscribe(self) -> None:
        task = await self.task("slow 30", at_once=True)
        events: list[StreamResponse] = []
        async for event in self.streaming.subscribe(SubscribeToTaskRequest(id=task.id)):
            events.append(event)
            if len(events) == 1:
                assert event.HasField("task") and event.task.id == task.id, event
                await self.blocking.cancel_task(CancelTaskRequest(id=task.id))
        assert state_of(events[-1]) == TaskState.TASK_STATE_CANCELED, events

    async def check_subscribe_input_required(self) -> None:
        task = await self.task("book")
        events: list[StreamResponse] = []
        async for event in self.streaming.subscribe(SubscribeToTaskRequest(id=task.id)):
            events.append(event)
            if len(events) == 1:
                assert event.HasField("task") and event.task.id == task.id, event
                assert event.task.status.state == INPUT_REQUIRED, event
                await self.task("Monday", task_id=task.id)
        assert state_of(events[-1]) == COMPLETED, events

    async def check_cancel(self) -> None:
        task = await self.task("slow 30", at_once=True)
        await self.until(task, lambda t: t.status.state == TaskState.TASK_STATE_WORKING)
        canceled = await self.blocking.cancel_task(CancelTaskRequest(id=task.id))
        assert canceled.id == task.id, canceled
        ended = await self.ended(task)
        assert ended.status.state == TaskState.TASK_STATE_CANCELED, ended
        done = await self.task("hello")
        await raises(TaskNotCancelableError, self.blocking.cancel_task(CancelTaskRequest(id=done.id)))

    async def check_input_required(self) -> None:
        asked = await self.task("book")
        assert asked.status.state == INPUT_REQUIRED, asked
        assert get_message_text(asked.status.message) == "which day?", asked
        done = await self.task("Monday", task_id=asked.id)
        assert done.id == asked.id and done.context_id == asked.context_id, done
        assert done.status.state == COMPLETED, done
        assert text_of(done) == "booked for Monday", done

    async def check_input_required_stream(self) -> None:
        asked = await self.events(self.streaming, "book")
        assert asked[0].HasField("task") and state_of(asked[-1]) == INPUT_REQUIRED, asked
        done = await self.events(self.streaming, "Monday", task_id=asked[0].task.id)
        assert state_of(done[-1]) == COMPLETED, done
        assert {task_id(e) for e in done} == {asked[0].task.id}, done

    async def check_follow_up_in_context(self) -> None:
        first = await self.task("hello")
        second = await self.task("hello again", context_id=first.context_id)
        assert second.context_id == first.context_id and second.id != first.id, second
        own = f"context-{uuid.uuid4()}"
        third = await self.task("hello", context_id=own)
        assert third.context_id == own, third

    async def check_failed(self) -> None:
        task = await self.task("fail")
        assert task.status.state == TaskState.TASK_STATE_FAILED, task
        assert get_message_text(task.status.message) == "it broke", task

    async def check_data_part(self) -> None:
        task = await self.task("data")
        assert data_of(task) == [OFFER], data_of(task)
        back = await self.task([new_text_part("mirror"), new_data_part(OFFER), new_data_part([1, None, {"a": 2}])])
        assert data_of(back) == [OFFER, [1, None, {"a": 2}]], data_of(back)

    async def check_file_part(self) -> None:
        raw, url = (await self.task("file")).artifacts[0].parts
        assert raw.raw == bytes(range(256)) and raw.filename == "room.png" and raw.media_type == "image/png", raw
        assert url.url == "https://example.com/menu.pdf" and url.filename == "menu.pdf", url
        assert url.media_type == "application/pdf", url
        sent = [
            new_raw_part(b"\x00\xff" * 500, media_type="application/octet-stream", filename="a.bin"),
            new_url_part("https://example.com/?a=b&c=%20", media_type="text/html", filename="b.html"),
        ]
        back = list((await self.task([new_text_part("mirror"), *sent])).artifacts[0].parts)
        assert back == sent, back

    async def check_big_artifact(self) -> None:
        task = await self.task("big 1024")
        assert len(text_of(task)) == 1 << 20, len(text_of(task))
        events = await self.events(self.streaming, "big 1024")
        sizes = [len(get_artifact_text(e.artifact_update.artifact)) for e in events if e.HasField("artifact_update")]
        assert sizes == [1 << 20], sizes

    async def check_ids(self) -> None:
        message = new_text_message("hello", role=Role.ROLE_USER)
        task = await self.task(message)
        other = await self.task("hello")
        assert task.id != other.id and task.context_id != other.context_id, (task, other)
        again = await self.get(task.id)
        assert message.message_id in [m.message_id for m in again.history], again

    async def check_extensions(self) -> None:
        parameters = ServiceParametersFactory.create([with_a2a_extensions([EXTENSION])])
        task = await self.task("extensions", context=ClientCallContext(service_parameters=parameters))
        assert text_of(task) == EXTENSION, task
        assert text_of(await self.task("extensions")) == "", task

    async def check_push_config(self) -> None:
        task = await self.task("hello")
        config = TaskPushNotificationConfig(task_id=task.id, url="https://example.com/hook", id="mine")
        names = {"task_id": task.id, "id": "mine"}
        for call in (
            self.blocking.create_task_push_notification_config(config),
            self.blocking.get_task_push_notification_config(GetTaskPushNotificationConfigRequest(**names)),
            self.blocking.list_task_push_notification_configs(ListTaskPushNotificationConfigsRequest(task_id=task.id)),
            self.blocking.delete_task_push_notification_config(DeleteTaskPushNotificationConfigRequest(**names)),
        ):
            await raises(PushNotificationNotSupportedError, call)

    async def check_unknown_task(self) -> None:
        await raises(TaskNotFoundError, self.get(NOBODY))
        await raises(TaskNotFoundError, self.task("hello", task_id=NOBODY))
        await raises(TaskNotFoundError, self.blocking.cancel_task(CancelTaskRequest(id=NOBODY)))
        await raises(TaskNotFoundError, self.events(self.streaming, "hello", task_id=NOBODY))
        await raises(TaskNotFoundError, self.subscribe(NOBODY))

    async def check_terminal_task(self) -> None:
        task = await self.task("hello")
        await raises(UnsupportedOperationError, self.task("hello again", task_id=task.id))
        await raises(UnsupportedOperationError, self.events(self.streaming, "hello again", task_id=task.id))
        await raises(UnsupportedOperationError, self.subscribe(task.id))

    async def check_patience(self) -> None:
        """The SDK's own HTTP client gives up after five seconds without a byte."""
        async with self.client() as impatient:
            events = await self.events(impatient, "quiet 7")
            assert text_of(await self.get(task_id(events[0]))) == "quiet but done", events

    async def check_gone(self) -> None:
        """An agent that dies in the middle. Without a gateway this ends in an error of the network, and nobody knows the task."""
        events = await self.events(self.streaming, "die")
        assert events[0].HasField("task"), events
        assert state_of(events[-1]) == TaskState.TASK_STATE_FAILED, events
        why = get_message_text(events[-1].status_update.status.message)
        assert "clerk" in why, why
        again = await self.get(events[0].task.id)
        assert again.status.state == TaskState.TASK_STATE_FAILED, again
        assert get_message_text(again.status.message) == why, again
        try:
            await self.task("hello")
        except A2AError as error:
            # Over HTTP+JSON the SDK keeps the answer's text to itself, unless the protocol has a name for the error.
            hidden = error.__cause__.response.text if isinstance(error.__cause__, httpx.HTTPStatusError) else ""
            assert "Nothing listens at the agent's address" in str(error) + hidden, repr(error)
        else:
            raise AssertionError("nobody was there, and somebody answered")

    async def check_tenant(self) -> None:
        """The tenant on the agent's card is to be echoed, by a client or by who is in between."""
        assert text_of(await self.task("tenant")) == "acme"
        assert text_of(await self.get(task_id((await self.events(self.streaming, "tenant"))[0]))) == "acme"

    async def events(
        self, client, what: str | list | Message, *, at_once: bool = False, context=None, **ids: str
    ) -> list[StreamResponse]:
        if isinstance(what, str):
            what = new_text_message(what, role=Role.ROLE_USER, **ids)
        elif isinstance(what, list):
            what = new_message(what, role=Role.ROLE_USER, **ids)
        request = SendMessageRequest(message=what, configuration=SendMessageConfiguration(return_immediately=at_once))
        return [event async for event in client.send_message(request, context=context)]

    async def task(self, what: str | list | Message, **more) -> Task:
        event = (await self.events(self.blocking, what, **more))[-1]
        assert event.HasField("task"), event
        return event.task

    async def get(self, id: str) -> Task:
        return await self.blocking.get_task(GetTaskRequest(id=id))

    async def subscribe(self, id: str) -> list[StreamResponse]:
        return [event async for event in self.streaming.subscribe(SubscribeToTaskRequest(id=id))]

    async def ended(self, task: Task) -> Task:
        return await self.until(task, lambda t: t.status.state in ENDED)

    async def until(self, task: Task, there) -> Task:
        for _ in range(400):
            task = await self.get(task.id)
            if there(task):
                return task
            await asyncio.sleep(0.05)
        raise AssertionError(f"not within 20 s: {task}")


def text_of(task: Task) -> str:
    return "".join(get_artifact_text(a) for a in task.artifacts)


def data_of(task: Task) -> list:
    return [d for a in task.artifacts for d in get_data_parts(a.parts)]


def task_id(event: StreamResponse) -> str:
    if event.HasField("task"):
        return event.task.id
    return event.status_update.task_id or event.artifact_update.task_id


def state_of(event: StreamResponse) -> int | None:
    if event.HasField("task"):
        return event.task.status.state
    return event.status_update.status.state if event.HasField("status_update") else None


async def raises(kind: type[Exception], call) -> None:
    try:
        result = await call
    except kind:
        return
    raise AssertionError(f"no {kind.__name__}, but {result!r}")


SEPARATE = ["patience", "gone", "tenant"]
EVERY = [n for n in (name.removeprefix("check_") for name in vars(Checks) if name.startswith("check_")) if n not in SEPARATE]


async def judge(checks: Checks, name: str) -> None:
    verdict: dict[str, object] = {"check": name, "ok": True}
    try:
        await asyncio.wait_for(getattr(checks, f"check_{name}")(), timeout=40)
    except Exception as e:  # noqa: BLE001 -- whatever it is, it is the verdict
        here = [f.lineno for f in traceback.extract_tb(e.__traceback__) if f.filename == __file__]
        verdict |= {"ok": False, "why": f"{type(e).__name__}: {e}"[:700], "lines": here}
    print(json.dumps(verdict), flush=True)


async def main(binding: str, url: str, *names: str) -> None:
    async with httpx.AsyncClient(timeout=40) as http:
        checks = Checks(binding, url, http)
        await checks.start()
        await asyncio.gather(*(judge(checks, name) for name in names or EVERY))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
