"""The clients of Python follow a session through start and end, and come back when the stream ends.

Two of them reconnect by themselves; for the other two the test does what their manuals say. Answers the kind
of report in florimondmanca/httpx-sse#34 (U+2028 in a label splits an event).
"""

import asyncio
import json
import queue
import threading
import time

import aiohttp_sse_client.client
import httpx
import httpx_sse
import pytest
import requests
import requests_sse
import sseclient

from gateway import LABEL, Gateway

# The longest that any one thing may take: far more than it needs, and an end to a hang.
PATIENCE = 30


def resume(last_id):
    """What a client sends that holds rows (WHATWG HTML, 9.2.3)."""
    return {"Last-Event-ID": last_id} if last_id else {}


def with_httpx_sse(url, see):
    last_id, retry = "", 0
    # httpx gives up after 5 s of silence unless told otherwise; a sign of life comes every 15 s.
    with httpx.Client(timeout=httpx.Timeout(5, read=45)) as client:
        while True:
            with httpx_sse.connect_sse(client, "GET", url, headers=resume(last_id)) as source:
                for event in source.iter_sse():
                    last_id, retry = event.id, event.retry or retry
                    if event.data:
                        see(json.loads(event.data))
            time.sleep(retry / 1000)


def with_sseclient(url, see):
    last_id = ""
    while True:
        with requests.get(url, headers=resume(last_id), stream=True, timeout=(5, 45)) as answer:
            for event in sseclient.SSEClient(answer).events():
                last_id = event.id
                see(json.loads(event.data))
        # It passes over `retry:`, which stands in front of the first event.
        time.sleep(1)


def with_requests_sse(url, see):
    with requests_sse.EventSource(url, timeout=45) as source:
        for event in source:
            see(json.loads(event.data))


def with_aiohttp_sse_client(url, see):
    async def follow():
        async with aiohttp_sse_client.client.EventSource(url) as source:
            async for event in source:
                see(json.loads(event.data))

    asyncio.run(follow())


class Seen:
    """What a client sees, in order. Its thread ends with the tests."""

    def __init__(self, client, url):
        self.lists = queue.Queue()
        threading.Thread(target=client, args=(url, self.lists.put), daemon=True).start()

    def until(self, *statuses):
        """Takes lists until one has these statuses. They may be skipped, since each is whole."""
        deadline = time.monotonic() + PATIENCE
        while True:
            tasks = self.lists.get(timeout=max(0, deadline - time.monotonic()))
            if [(task["id"], task["status"]) for task in tasks] == list(statuses):
                return tasks


@pytest.mark.parametrize("client", [with_httpx_sse, with_sseclient, with_requests_sse, with_aiohttp_sse_client])
# The client's thread still follows when the test's gateway ends, and then fails.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_client_follows_a_session_through_start_end_and_reconnect(client):
    with Gateway() as gateway:
        seen = Seen(client, gateway.url("demo"))
        task, finish = gateway.start_task("demo")
        seen.until((task, "running"))
        finish()
        [ended] = seen.until((task, "failed"))
        assert (ended["label"], ended["detail"]) == (LABEL, "exit code: 3")
        gateway.command("dispose", "--session", "demo")
        seen.until()

        old, _ = gateway.start_task("demo")
        seen.until((old, "running"))
        gateway.restart()
        seen.until((old, "killed"))
        # Only to one who says Last-Event-ID is it told that the session is empty now.
        seen.until()
        task, _ = gateway.start_task("demo")
        seen.until((task, "running"))
