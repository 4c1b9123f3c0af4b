"""A small object store on this machine that honours preconditions, which the emulator ignores.

It knows the requests that `jaxsens.core.bucket` makes of Google's JSON API, and no others.
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit


class ObjectServer:
    """Objects in memory, by name; a context manager that serves them.

    Attributes:
      objects: content and generation of every object.
      fail_from: from this change on, all are refused, as if the process that asks were dead.
      lose_answers: so many changes are made but not answered.
    """

    def __init__(self):
        self.objects: dict[str, tuple[bytes, int]] = {}
        self.fail_from: int | None = None
        self.lose_answers = 0
        self.num_changes = 0
        self._generation = 1000
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    def change(self, key, content, expected):
        """Replaces or deletes (None) an object; the status, and whether to answer at all."""
        with self._lock:
            self.num_changes += 1
            if self.fail_from is not None and self.num_changes > self.fail_from:
                return 403, True
            there = self.objects.get(key, (b"", 0))[1]
            if expected is not None and int(expected) != there:
                return 412, True
            if content is None and not there:
                return 404, True
            if content is None:
                del self.objects[key]
            else:
                self._generation += 1
                self.objects[key] = (content, self._generation)
            answer = self.lose_answers == 0
            self.lose_answers -= not answer
            return 200, answer

    def _handler(store):
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Head and body in one packet: apart, the second waits 40 ms for an answer to the first.
            wbufsize = -1

            def log_message(self, *_):
                pass

            def answer(self, status, content=b"", generation=0):
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.send_header("X-Goog-Generation", str(generation))
                self.end_headers()
                self.wfile.write(content)

            def described(self, key):
                content, generation = store.objects[key]
                return {"name": key, "size": str(len(content)), "generation": str(generation)}

            def parts(self):
                address = urlsplit(self.path)
                query = {name: values[0] for name, values in parse_qs(address.query).items()}
                key = unquote(address.path.partition("/o/")[2])
                return address.path, query, key

            def do_GET(self):
                _, query, key = self.parts()
                if not key:
                    self.answer(200, json.dumps(self.listing(query)).encode())
                elif key not in store.objects:
                    self.answer(404)
                elif query.get("alt") == "media":
                    content, generation = store.objects[key]
                    asked = query.get("generation", str(generation))
                    self.answer(
                        *((200, content, generation) if asked == str(generation) else (404,))
                    )
                else:
                    self.answer(200, json.dumps(self.described(key)).encode())

            def listing(self, query):
                prefix, items, prefixes = query.get("prefix", ""), [], set()
                for key in sorted(store.objects):
                    rest = key.removeprefix(prefix)
                    if not key.startswith(prefix):
                        continue
                    if "delimiter" in query and "/" in rest:
                        prefixes.add(prefix + rest.partition("/")[0] + "/")
                    else:
                        items.append(self.described(key))
                return {"items": items, "prefixes": sorted(prefixes)}

            def do_POST(self):
                _, query, _ = self.parts()
                body = self.rfile.read(int(self.headers["Content-Length"]))
                boundary = (
                    b"--"
                    + self.headers["Content-Type"].partition("boundary=")[2].strip("\"'").encode()
                )
                _, described, content, _ = body.split(boundary)
                key = json.loads(described.partition(b"\r\n\r\n")[2])["name"]
                content = content.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n")
                self.changed(key, content, query)

            def do_DELETE(self):
                _, query, key = self.parts()
                self.changed(key, None, query)

            def changed(self, key, content, query):
                status, answered = store.change(key, content, query.get("ifGenerationMatch"))
                if not answered:
                    self.close_connection = True
                elif status == 200 and content is not None:
                    self.answer(200, json.dumps(self.described(key)).encode())
                else:
                    self.answer(204 if status == 200 else status)

        return Handler
