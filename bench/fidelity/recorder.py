"""A proxy between Ray and a collector that remembers which events were acknowledged."""

from __future__ import annotations

import http.client
import json
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Recorder(ThreadingHTTPServer):
    """Forwards posts to the collector on another port of this machine."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, port: int, collector_port: int) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.collector_port = collector_port
        self.acknowledged: set[str] = set()
        self.lock = threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Recorder

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            with closing(http.client.HTTPConnection("127.0.0.1", self.server.collector_port, timeout=60)) as collector:
                collector.request("POST", self.path, body, {"Content-Type": "application/json"})
                answer = collector.getresponse()
                status, text = answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            self.close_connection = True  # the collector is gone: nothing is acknowledged
            return
        if status == 200:
            identities = {event["eventId"] for event in json.loads(body)}
            with self.server.lock:
                self.server.acknowledged |= identities
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Keep standard error quiet."""
