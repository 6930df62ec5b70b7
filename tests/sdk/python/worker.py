"""A model that is a worker, written with the official MCP SDK: worker.py URL TOKEN

Takes work of an agent that fetches it by the tools of a gateway at URL, and prints one line of JSON for each promise that it checks,
as client.py does. Somebody else sends "book" and then an answer to what is asked, and "hello".
"""

import asyncio
import json
import re
import sys
import traceback

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

FRAME = re.compile(r"<<<peer-text ([0-9a-f]{32}) (\w+), [^\n]*\n(.*)\npeer-text \1>>>", re.DOTALL)


async def use(client: Client, tool: str, **arguments):
    result = await client.call_tool(tool, arguments)
    (content,) = result.content
    return result.is_error, content.text, result.structured_content


async def work(client: Client) -> str:
    """One round: takes what waits, says what was asked."""
    for _ in range(200):
        failed, text, told = await use(client, "check_inbox")
        assert not failed, text
        if told["kind"] == "work":
            break
        assert told["kind"] == "none", text
        await asyncio.sleep(0.05)
    assert told["kind"] == "work", "no work came"
    what, request = FRAME.search(text)[2], FRAME.search(text)[3]
    assert what == "request" and told["text"] in text, text
    said = request
    assert told["delegation"].startswith("wd1."), told
    asks = said == "book"
    reply = "which day?" if asks else f"done: {said}"
    failed, text, replied = await use(
        client, "reply", task_id=told["taskId"], fence=told["fence"], text=reply, asks=asks
    )
    assert not failed and replied["kind"] == "replied", text
    failed, text, again = await use(client, "reply", task_id=told["taskId"], fence=told["fence"], text=reply)
    assert failed and again["kind"] == "refused", f"what is over is not said twice: {text}"
    return said


async def main() -> None:
    url, token = sys.argv[1:]
    http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"})
    async with http, Client(streamable_http_client(f"{url}/mcp", http_client=http)) as client:
        verdict = {"check": "rounds", "ok": True}
        try:
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert {"check_inbox", "reply"} <= names, names
            said = [await work(client) for _ in range(3)]
            assert sorted(said) == ["Monday", "book", "hello"], said
        except Exception as why:  # noqa: BLE001
            verdict |= {"ok": False, "why": f"{why!r} {traceback.format_exc(limit=-2)}"}
        print(json.dumps(verdict), flush=True)


asyncio.run(main())
