"""A client written with the official Python SDK: client.py URL

Talks to the agent of agent.py, directly or through a gateway, and prints one line of JSON for each promise that it checks:
{"check": NAME, "ok": true} or {"check": NAME, "ok": false, "why": …}. The exit code is 0 where every check ran.
"""

import asyncio
import json
import sys
import traceback

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.helpers import get_artifact_text, get_data_parts, get_message_text, new_text_message
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)
from a2a.utils.errors import TaskNotCancelableError, TaskNotFoundError, UnsupportedOperationError

ENDED = {
    TaskState.TASK_STATE_COMPLETED,
    TaskState.TASK_STATE_FAILED,
    TaskState.TASK_STATE_CANCELED,
    TaskState.TASK_STATE_REJECTED,
}


class Checks:
    """Each method named `check_…` is one promise."""

    def __init__(self, url: str, http: httpx.AsyncClient) -> None:
        self.url = url
        self.http = http

    async def start(self) -> None:
        self.found = await A2ACardResolver(self.http, self.url).get_agent_card()
        self.blocking = ClientFactory(ClientConfig(httpx_client=self.http, streaming=False)).create(self.found)
        self.streaming = ClientFactory(ClientConfig(httpx_client=self.http, streaming=True)).create(self.found)

    async def check_card(self) -> None:
        assert self.found.name == "clerk", self.found.name
        assert self.found.capabilities.streaming
        interfaces = [i for i in self.found.supported_interfaces if i.protocol_binding == "JSONRPC"]
        assert interfaces, self.found
        origin = str(httpx.URL(self.url).copy_with(path="/"))
        for interface in self.found.supported_interfaces:
            assert interface.url.startswith(origin), f"{interface.url} does not lead back to {origin}"

    async def check_send(self) -> None:
        task = await self.task("hello")
        assert task.status.state == TaskState.TASK_STATE_COMPLETED, task
        assert text_of(task) == "echo: hello", task
        assert task.id and task.context_id, task

    async def check_message(self) -> None:
        event = (await self.events(self.blocking, "say good morning"))[-1]
        if event.HasField("message"):
            text = get_message_text(event.message)
        else:
            text = text_of(event.task) or get_message_text(event.task.status.message)
        assert text == "good morning", event

    async def check_stream(self) -> None:
        events = await self.events(self.streaming, "count 20")
        assert events[0].HasField("task"), events[0]
        pieces = [get_artifact_text(e.artifact_update.artifact) for e in events if e.HasField("artifact_update")]
        assert pieces == [f"{n} " for n in range(20)], pieces
        states = [e.status_update.status.state for e in events if e.HasField("status_update")]
        states += [e.task.status.state for e in events[1:] if e.HasField("task")]
        ends = [state for state in states if state in ENDED]
        assert ends and set(ends) == {TaskState.TASK_STATE_COMPLETED}, states
        ids = {task_id(e) for e in events}
        assert len(ids) == 1, ids

    async def check_get(self) -> None:
        task = await self.task("remember me")
        again = await self.blocking.get_task(GetTaskRequest(id=task.id))
        assert again.id == task.id and again.context_id == task.context_id, again
        assert again.status.state == TaskState.TASK_STATE_COMPLETED, again
        assert text_of(again) == "echo: remember me", again

    async def check_list(self) -> None:
        task = await self.task("one of many")
        page = await self.blocking.list_tasks(ListTasksRequest(page_size=100))
        assert task.id in [t.id for t in page.tasks], page
        assert page.total_size >= len(page.tasks) > 0, page

    async def check_return_immediately(self) -> None:
        loop = asyncio.get_running_loop()
        start = loop.time()
        task = await self.task("slow 1", at_once=True)
        assert loop.time() - start < 0.9, "held until the end"
        assert task.status.state not in ENDED, task
        ended = await self.ended(task)
        assert ended.status.state == TaskState.TASK_STATE_COMPLETED, ended
        assert text_of(ended) == "slow but done", ended

    async def check_cancel(self) -> None:
        task = await self.task("slow 30", at_once=True)
        await self.working(task)
        canceled = await self.blocking.cancel_task(CancelTaskRequest(id=task.id))
        assert canceled.id == task.id, canceled
        ended = await self.ended(task)
        assert ended.status.state == TaskState.TASK_STATE_CANCELED, ended
        await raises(TaskNotFoundError, self.blocking.cancel_task(CancelTaskRequest(id="no-such-task")))
        done = await self.task("hello")
        await raises(TaskNotCancelableError, self.blocking.cancel_task(CancelTaskRequest(id=done.id)))

    async def check_subscribe(self) -> None:
        task = await self.task("slow 1", at_once=True)
        events = [e async for e in self.streaming.subscribe(SubscribeToTaskRequest(id=task.id))]
        assert events[0].HasField("task") and events[0].task.id == task.id, events[0]
        last = events[-1]
        state = last.task.status.state if last.HasField("task") else last.status_update.status.state
        assert state == TaskState.TASK_STATE_COMPLETED, last

    async def check_input_required(self) -> None:
        asked = await self.task("book")
        assert asked.status.state == TaskState.TASK_STATE_INPUT_REQUIRED, asked
        assert get_message_text(asked.status.message) == "which day?", asked
        done = await self.task("Monday", task_id=asked.id, context_id=asked.context_id)
        assert done.id == asked.id and done.context_id == asked.context_id, done
        assert done.status.state == TaskState.TASK_STATE_COMPLETED, done
        assert text_of(done) == "booked for Monday", done

    async def check_failed(self) -> None:
        task = await self.task("fail")
        assert task.status.state == TaskState.TASK_STATE_FAILED, task
        assert get_message_text(task.status.message) == "it broke", task

    async def check_data_part(self) -> None:
        task = await self.task("data")
        data = [d for a in task.artifacts for d in get_data_parts(a.parts)]
        assert data == [{"rooms": [101, 102], "price": 12.5, "note": None}], data

    async def check_unknown_task(self) -> None:
        await raises(TaskNotFoundError, self.blocking.get_task(GetTaskRequest(id="no-such-task")))
        await raises(TaskNotFoundError, self.task("hello", task_id="no-such-task"))

    async def check_terminal_task(self) -> None:
        task = await self.task("hello")
        await raises(UnsupportedOperationError, self.task("hello again", task_id=task.id, context_id=task.context_id))

        async def subscribe() -> None:
            async for _ in self.streaming.subscribe(SubscribeToTaskRequest(id=task.id)):
                pass

        await raises(UnsupportedOperationError, subscribe())

    async def events(self, client, text: str, *, at_once: bool = False, **ids: str) -> list[StreamResponse]:
        request = SendMessageRequest(
            message=new_text_message(text, role=Role.ROLE_USER, **ids),
            configuration=SendMessageConfiguration(return_immediately=at_once),
        )
        return [event async for event in client.send_message(request)]

    async def task(self, text: str, *, at_once: bool = False, **ids: str) -> Task:
        event = (await self.events(self.blocking, text, at_once=at_once, **ids))[-1]
        assert event.HasField("task"), event
        return event.task

    async def ended(self, task: Task) -> Task:
        return await self.until(task, lambda t: t.status.state in ENDED)

    async def working(self, task: Task) -> Task:
        return await self.until(task, lambda t: t.status.state == TaskState.TASK_STATE_WORKING)

    async def until(self, task: Task, there) -> Task:
        for _ in range(200):
            task = await self.blocking.get_task(GetTaskRequest(id=task.id))
            if there(task):
                return task
            await asyncio.sleep(0.05)
        raise AssertionError(f"not within 10 s: {task}")


def text_of(task: Task) -> str:
    return "".join(get_artifact_text(a) for a in task.artifacts)


def task_id(event: StreamResponse) -> str:
    if event.HasField("task"):
        return event.task.id
    return event.status_update.task_id or event.artifact_update.task_id


async def raises(kind: type[Exception], call) -> None:
    try:
        result = await call
    except kind:
        return
    raise AssertionError(f"no {kind.__name__}, but {result!r}")


CHECKS = [
    "card",
    "send",
    "message",
    "stream",
    "get",
    "list",
    "return_immediately",
    "cancel",
    "subscribe",
    "input_required",
    "failed",
    "data_part",
    "unknown_task",
    "terminal_task",
]


async def main(url: str) -> None:
    async with httpx.AsyncClient(timeout=20) as http:
        checks = Checks(url, http)
        await checks.start()
        for name in CHECKS:
            verdict: dict[str, object] = {"check": name, "ok": True}
            try:
                await asyncio.wait_for(getattr(checks, f"check_{name}")(), timeout=20)
            except Exception as e:  # noqa: BLE001 -- whatever it is, it is the verdict
                where = traceback.extract_tb(e.__traceback__)[-1]
                verdict |= {"ok": False, "why": f"{type(e).__name__}: {e}"[:500], "line": where.line}
            print(json.dumps(verdict), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
