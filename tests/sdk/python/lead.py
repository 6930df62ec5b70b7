"""A lead agent written with the official SDKs of A2A and MCP: lead.py STATE PORT GATEWAY TOKEN

It serves A2A 1.0 on PORT. Told to `plan`, it delegates two pieces of work to the agent `clerk` through GATEWAY and ends its turn. A message
that carries `x-results` is a turn of its own: it reads what came of its work, folds that into what it knows (the file STATE), and then
acknowledges it. Anything else is answered with what it knows. If there is a file STATE.die, it ends in the middle of the next
such turn, after it has read and before it has folded anything in. It prints `listening on URL`, and ends when its standard input does.
"""

import json
import os
import re
import socket
import sys
import threading

import httpx2
import uvicorn
from a2a.helpers import new_text_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from starlette.applications import Starlette

from agent import card

FRAME = re.compile(r"<<<peer-text ([0-9a-f]{32}) (\w+), [^\n]*\n(.*)\npeer-text \1>>>", re.DOTALL)


class Lead(AgentExecutor):
    def __init__(self, path: str, gateway: str, token: str) -> None:
        self.path, self.gateway, self.token = path, gateway, token
        self.knows = {"delegated": [], "read": [], "folded": {}}
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                self.knows = json.load(file)

    def keep(self) -> None:
        with open(f"{self.path}.new", "w", encoding="utf-8") as file:
            json.dump(self.knows, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(f"{self.path}.new", self.path)

    async def use(self, tool: str, **arguments) -> dict:
        http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {self.token}"})
        async with http, Client(streamable_http_client(f"{self.gateway}/mcp", http_client=http)) as client:
            return (await client.call_tool(tool, arguments)).structured_content

    async def plan(self) -> str:
        for task in ["slow 0.6", "a room"]:
            accepted = await self.use("delegate_task_async", agent="clerk", task=task)
            assert accepted["kind"] == "accepted", accepted
            self.knows["delegated"].append(accepted["taskId"])
            self.keep()
        return "delegated"

    async def fold(self) -> str:
        results = (await self.use("read_delegation_results"))["results"]
        self.knows["read"].append([[result["seq"], result["taskId"]] for result in results])
        self.keep()
        if os.path.exists(f"{self.path}.die"):
            os.remove(f"{self.path}.die")
            os._exit(9)
        for result in results:
            self.knows["folded"][str(result["seq"])] = FRAME.fullmatch(result["text"])[3]
        self.keep()
        if results:
            await self.use("read_delegation_results", ack=results[-1]["seq"], limit=1)
        return f"folded {len(results)} in"

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        if "x-results" in context.message.metadata:
            said = await self.fold()
        elif context.message.parts[0].text == "plan":
            said = await self.plan()
        else:
            said = json.dumps(self.knows["folded"])
        await event_queue.enqueue_event(new_text_message(said, context_id=context.context_id))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError


def main() -> None:
    state, port, gateway, token = sys.argv[1:]
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", int(port)))
    listener.listen(128)
    url = f"http://127.0.0.1:{port}/"
    about = card(url, ["jsonrpc"])
    handler = DefaultRequestHandler(
        agent_executor=Lead(state, gateway, token), task_store=InMemoryTaskStore(), agent_card=about
    )
    routes = create_agent_card_routes(about) + create_jsonrpc_routes(handler, "/")
    print(f"listening on {url}", flush=True)
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    uvicorn.Server(uvicorn.Config(Starlette(routes=routes), log_level="warning")).run(sockets=[listener])


if __name__ == "__main__":
    main()
