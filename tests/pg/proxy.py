"""What stands between a client and its server, and loses a commit or the answer to one."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path
from typing import Literal

Loss = Literal["commit", "answer"]
_COMMIT = b"COMMIT\0"
_NAME = ".s.PGSQL.5432"


class Proxy:
    """A socket that leads to that of a server. The commit with the number ``at`` is lost, or what the server says to it.

    Either way the connection breaks, and the client cannot tell the one from the other.
    """

    def __init__(self, folder: Path, server: Path) -> None:
        self.folder, self._server = folder, server / _NAME
        self.loses: Loss = "answer"
        self.at, self.commits = 0, 0
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(folder / _NAME))
        self._listening.listen()
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for each in (self._listening, *self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def lose(self, loses: Loss, at: int = 1) -> None:
        """Lose a commit, counted from now on."""
        self.loses, self.at, self.commits = loses, at, 0

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(str(self._server))
                self._open += [client, server]
                lost = threading.Event()
                threading.Thread(target=self._to_server, args=(client, server, lost), daemon=True).start()
                threading.Thread(target=self._to_client, args=(server, client, lost), daemon=True).start()

    def _to_server(self, client: socket.socket, server: socket.socket, lost: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                self.commits += _COMMIT in data
                if _COMMIT in data and self.commits == self.at:
                    lost.set()
                    if self.loses == "commit":
                        break
                server.sendall(data)
        with contextlib.suppress(OSError):  # the server reads what it was sent, and sees the end after it
            server.shutdown(socket.SHUT_WR)

    def _to_client(self, server: socket.socket, client: socket.socket, lost: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 16):
                if lost.is_set():
                    break
                client.sendall(data)
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)
