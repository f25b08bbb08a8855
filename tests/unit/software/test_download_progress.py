"""How far a download is: the file that get_url writes, and the size that the server tells."""

import http.server
import threading

import pytest
from ansible.module_utils.trainyard.base.shapes import misfit
from ansible.module_utils.trainyard.software import pip_progress
from ansible.module_utils.trainyard_node.software import addresses, download_progress


def test_the_file_that_grows_is_read(tmp_path):
    archive, folder = tmp_path / "cuda.run", tmp_path / "work"
    archive.write_bytes(bytes(8 << 20))
    folder.mkdir()
    url = archive.as_uri()
    assert download_progress.read(folder, url, None) is None
    (folder / "tmpa1b2").write_bytes(bytes(2 << 20))
    record = download_progress.read(folder, url, None)
    assert not misfit(record, pip_progress.INSTALLING)
    assert pip_progress.text({**record, "seconds": 2.0}) == "cuda.run: 2 MiB of 8 MiB, 1 MiB/s, 6 s left"
    # The address is asked once.
    archive.unlink()
    (folder / "tmpa1b2").write_bytes(bytes(3 << 20))
    later = download_progress.read(folder, url, record)
    assert (later["done"], later["total"]) == (3 << 20, 8 << 20)
    assert pip_progress.text({**later, "total": 0, "seconds": 3.0}) == "cuda.run: 3 MiB, 1 MiB/s"


class Server(http.server.BaseHTTPRequestHandler):
    """Tells sizes by the path."""

    def do_HEAD(self):
        self.send_response(404 if self.path == "/none" else 200)
        if self.path != "/unknown":
            self.send_header("Content-Length", self.path[1:])
        self.end_headers()

    def log_message(self, *_):
        """Print nothing."""


@pytest.mark.parametrize(("path", "size"), [("4711", 4711), ("unknown", 0), ("none", 0), ("-1", 0), ("x" * 99, 0)])
def test_the_size_of_a_file_at_an_address(path, size):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            assert addresses.size(f"http://127.0.0.1:{server.server_port}/{path}") == size
        finally:
            server.shutdown()


def test_addresses_without_a_size(tmp_path):
    assert addresses.size((tmp_path / "none").as_uri()) == addresses.size("ftp://127.0.0.1/a") == 0
