"""An agent written with the official Python SDK: agent.py --port N

Serves A2A 1.0 over JSON-RPC, and its card. The text of a message says what it does:

  say TEXT        one message, no task
  fail            a task that fails
  slow SECONDS    a task that works that long, and can be cancelled
  book            a task that asks for a day; the answer continues it
  data            a task whose artifact is data
  count N         a task that sends its artifact in N pieces
  anything else   a task with the artifact "echo: TEXT"
"""

import argparse
import asyncio
import socket

import uvicorn
from a2a.helpers import new_data_part, new_task_from_user_message, new_text_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
from starlette.applications import Starlette


class Clerk(AgentExecutor):
    """Does what the message says."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        text = context.get_user_input()
        word, _, rest = text.partition(" ")
        if word == "say":
            await event_queue.enqueue_event(new_text_message(rest, context_id=context.context_id))
            return
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
        elif word == "book":
            await task.requires_input(task.new_agent_message([new_text_part("which day?")]))
            return
        elif word == "data":
            await task.add_artifact([new_data_part({"rooms": [101, 102], "price": 12.5, "note": None})], name="offer")
        elif word == "count":
            pieces = int(rest)
            for n in range(pieces):
                last = n == pieces - 1
                await task.add_artifact([new_text_part(f"{n} ")], artifact_id="count", append=n > 0, last_chunk=last)
        else:
            await task.add_artifact([new_text_part(f"echo: {text}")], name="echo")
        await task.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def card(url: str) -> AgentCard:
    return AgentCard(
        name="clerk",
        description="Does what the message says.",
        version="1.0.0",
        supported_interfaces=[AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version="1.0")],
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="do", name="do", description="Does what it is told.", tags=["test"])],
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    port = parser.parse_args().port

    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(128)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/"

    handler = DefaultRequestHandler(agent_executor=Clerk(), task_store=InMemoryTaskStore(), agent_card=card(url))
    app = Starlette(routes=[*create_jsonrpc_routes(handler, "/"), *create_agent_card_routes(card(url))])
    print(f"listening on {url}", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


if __name__ == "__main__":
    main()
