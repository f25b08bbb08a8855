#!/usr/bin/env python3
"""A receiver of events for tests: answers 500 to each event's first delivery, and 200 to the next.

receiver.py ADDRESS PORT FILE        writes a line of JSON to FILE for each request
"""

import http.server
import json
import sys
from pathlib import Path

ADDRESS, PORT, FILE = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
refused = set()


class Handler(http.server.BaseHTTPRequestHandler):
    """Takes what is posted."""

    def do_POST(self):
        """Note a request, and answer it."""
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        event = json.loads(body)["id"]
        status = 200 if event in refused else 500
        refused.add(event)
        with FILE.open("a") as told:
            said = {"path": self.path, "headers": dict(self.headers), "body": body, "status": status}
            told.write(json.dumps(said) + "\n")
        self.send_response(status)
        self.end_headers()


http.server.ThreadingHTTPServer((ADDRESS, PORT), Handler).serve_forever()
