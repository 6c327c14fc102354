#!/usr/bin/env python3
"""A service that does onefold's tasks: docs/httpcall.md, in Python's standard library.

    WORK_SECRET=whsec_... python3 service.py [PORT]

It answers each task with the length of its input, does each task once, and tells what became of it.
"""

import base64
import hashlib
import hmac
import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECRET = os.environ.get("WORK_SECRET", "")
lock = threading.Lock()
answers = {}  # by task and run: the answer, or None while the task is being done
refused = {}  # by task: the highest number that "not_done" was promised for


def signed(headers, body):
    """Whether a request carries a signature by our secret that is not older than five minutes."""
    if not SECRET:
        return True
    key = SECRET.encode()
    if SECRET.startswith("whsec_"):
        text = SECRET[len("whsec_"):].rstrip("=")
        key = base64.b64decode(text + "=" * (-len(text) % 4))
    stamp = headers.get("webhook-timestamp", "")
    if not stamp.isdigit() or abs(time.time() - int(stamp)) > 300:
        return False
    content = headers.get("webhook-id", "").encode() + b"." + stamp.encode() + b"." + body
    want = "v1," + base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
    return any(hmac.compare_digest(want, got) for got in headers.get("webhook-signature", "").split())


def work(task):
    """The work itself. Raise an error only where nothing is left behind."""
    return {"result": {"length": len(json.dumps(task["input"]))}, "sends_used": 0}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if not signed(self.headers, body):
            return self.answer(401, {"error": {"message": "the signature is missing or wrong"}})
        task = json.loads(body)
        name = (task["task_id"], task["run"])
        with lock:
            if task["number"] <= refused.get(task["task_id"], 0):
                return self.answer(425, {"error": {"message": "this try was given up"}})
            if name in answers:
                if answers[name] is None:
                    return self.answer(409, {"error": {"message": "the task is being done"}})
                return self.answer(200, answers[name])
            answers[name] = None
        try:
            done = work(task)
        except Exception as e:  # nothing is left behind: it may be tried again
            with lock:
                del answers[name]
            return self.answer(200, {"error": {"message": str(e)}})
        with lock:
            answers[name] = done
        self.answer(200, done)

    def do_GET(self):
        if not signed(self.headers, b""):
            return self.answer(401, {"error": {"message": "the signature is missing or wrong"}})
        task = self.path.rsplit("/", 1)[-1]
        name = (task, int(self.headers.get("Onefold-Run", 1)))
        number = int(self.headers.get("Onefold-Number", 0))
        with lock:
            if name not in answers:
                refused[task] = max(number, refused.get(task, 0))
                return self.answer(200, {"status": "not_done"})
            if answers[name] is None:
                return self.answer(200, {"status": "working"}, {"Retry-After": "2"})
            self.answer(200, {"status": "done", **answers[name]})

    def answer(self, status, doc, headers=None):
        body = json.dumps(doc).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for header, value in (headers or {}).items():
            self.send_header(header, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass  # tasks are nobody's business


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 8090), Handler)
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()
