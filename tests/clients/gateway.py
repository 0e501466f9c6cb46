"""A gateway of one's own for each test."""

import os
import subprocess
import tempfile
import threading
import uuid
from pathlib import Path

PROGRAM = Path(__file__).parents[2] / "target/debug/tasklight"
LABEL = "a build\r\ndata: []\n\n of 构建 🦀 \u2028\u0085"


class Gateway:
    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.control = f"unix:{self.folder.name}/control.sock"
        self._serve("127.0.0.1:0")
        return self

    def __exit__(self, *_):
        self._end()
        self.folder.cleanup()

    def _serve(self, listen):
        self.child = subprocess.Popen(
            [PROGRAM, "--control", self.control, "serve", "--listen", listen],
            stderr=subprocess.PIPE,
            env=os.environ | {"NO_COLOR": "1"},
            encoding="utf-8",
        )
        line = next(line for line in self.child.stderr if " listen=" in line)
        self.address = line.split(" listen=")[1].split()[0]
        # Read on, so that the gateway never waits for a reader of its log; ends with the gateway.
        threading.Thread(target=self.child.stderr.read, daemon=True).start()

    def _end(self):
        self.child.terminate()
        assert self.child.wait(30) == 0

    def restart(self):
        """Another gateway at the same address, which knows nothing of what this one held."""
        self._end()
        self._serve(self.address)

    def url(self, session):
        return f"http://{self.address}/sessions/{session}/tasks"

    def command(self, *words):
        """One command of the program itself; returns what it printed."""
        done = subprocess.run(
            [PROGRAM, "--control", self.control, *words], check=True, timeout=30, capture_output=True, encoding="utf-8"
        )
        return done.stdout.strip()

    def start_task(self, session):
        """Starts a task that fails with exit code 3 as soon as the second value is called."""
        gate = Path(self.folder.name, f"gate-{uuid.uuid4()}")
        line = f"until test -e {gate}; do sleep 0.05; done; exit 3"
        return self.command("start", "--session", session, "--label", LABEL, line), gate.touch
