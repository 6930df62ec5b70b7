"""An agent written with the official Python SDK: agent.py [BINDING …]

Serves A2A 1.0 over the bindings named, in this order on its card (jsonrpc at /, rest below /rest; both without names). It prints
`listening on URL`, and ends when its standard input does. The first word of a message says what it does; the other agents of these tests do the same:

  say TEXT        one message, no task
  fail            a task that fails
  slow SECONDS    a task that works that long, and can be cancelled
  quiet SECONDS   says nothing at all for that long, then a task
  book            a task that asks for a day; the answer continues it
  data            a task whose artifact is data
  file            a task whose artifact is a file, and the address of one
  mirror          a task whose artifact is the other parts of the message
  extensions      a task whose artifact names the extensions that were asked for
  count N         a task that sends its artifact in N pieces
  big KB          a task with an artifact of so many kilobytes
  die             a task in the middle of which the process ends
  tenant          a task whose artifact is the tenant that was asked for (only the JavaScript agent has some)
  anything else   a task with the artifact "echo: TEXT"
"""

import asyncio
import os
import socket
import sys
import threading

import uvicorn
from a2a.helpers import (
    new_data_part,
    new_raw_part,
    new_task_from_user_message,
    new_text_message,
    new_text_part,
    new_url_part,
)
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentExtension, AgentInterface, AgentSkill
from starlette.applications import Starlette

from parts import EXTENSION, OFFER


class Clerk(AgentExecutor):
    """Does what the message says."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        text = context.message.parts[0].text
        word, _, rest = text.partition(" ")
        if word == "say":
            await event_queue.enqueue_event(new_text_message(rest, context_id=context.context_id))
            return
        if word == "quiet":
            await asyncio.sleep(float(rest))
        if context.current_task is None:
            await event_queue.enqueue_event(new_task_from_user_message(context.message))
        task = TaskUpdater(event_queue, context.task_id, context.context_id)
        await task.start_work()
        if context.current_task is not None:
            await task.add_artifact([new_text_part(f"booked for {text}")], name="booking")
        elif word == "fail":
            await task.failed(task.new_agent_message([new_text_part("it broke")]))
            return
        elif word == "slow":
            await asyncio.sleep(float(rest))
            await task.add_artifact([new_text_part("slow but done")])
        elif word == "die":
            await asyncio.sleep(0.2)
            os._exit(1)
        elif word == "quiet":
            await task.add_artifact([new_text_part("quiet but done")])
        elif word == "book":
            await task.requires_input(task.new_agent_message([new_text_part("which day?")]))
            return
        elif word == "data":
            await task.add_artifact([new_data_part(OFFER)], name="offer")
        elif word == "file":
            url = "https://example.com/menu.pdf"
            await task.add_artifact(
                [
                    new_raw_part(bytes(range(256)), media_type="image/png", filename="room.png"),
                    new_url_part(url, media_type="application/pdf", filename="menu.pdf"),
                ]
            )
        elif word == "mirror":
            await task.add_artifact(list(context.message.parts)[1:], name="mirror")
        elif word == "extensions":
            await task.add_artifact([new_text_part(",".join(sorted(context.requested_extensions)))])
        elif word == "count":
            pieces = int(rest)
            for n in range(pieces):
                last = n == pieces - 1
                await task.add_artifact([new_text_part(f"{n} ")], artifact_id="count", append=n > 0, last_chunk=last)
        elif word == "big":
            await task.add_artifact([new_text_part("0123456789abcdef" * 64 * int(rest))], name="big")
        else:
            await task.add_artifact([new_text_part(f"echo: {text}")], name="echo")
        await task.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def card(url: str, bindings: list[str]) -> AgentCard:
    served = {
        "jsonrpc": AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version="1.0"),
        "rest": AgentInterface(url=f"{url}rest", protocol_binding="HTTP+JSON", protocol_version="1.0"),
    }
    return AgentCard(
        name="clerk",
        description="Does what the message says.",
        version="1.0.0",
        supported_interfaces=[served[binding] for binding in bindings],
        capabilities=AgentCapabilities(streaming=True, extensions=[AgentExtension(uri=EXTENSION)]),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="do", name="do", description="Does what it is told.", tags=["test"])],
    )


def main() -> None:
    bindings = sys.argv[1:] or ["jsonrpc", "rest"]
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    about = card(url, bindings)

    handler = DefaultRequestHandler(agent_executor=Clerk(), task_store=InMemoryTaskStore(), agent_card=about)
    routes = create_agent_card_routes(about)
    if "jsonrpc" in bindings:
        routes += create_jsonrpc_routes(handler, "/")
    if "rest" in bindings:
        routes += create_rest_routes(handler, path_prefix="/rest")
    print(f"listening on {url}", flush=True)
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    uvicorn.Server(uvicorn.Config(Starlette(routes=routes), log_level="warning")).run(sockets=[listener])


if __name__ == "__main__":
    main()
