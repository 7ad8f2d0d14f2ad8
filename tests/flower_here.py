"""Flower without a network: its own messages, contexts and ClientApp, one node after the other, in this
process. Flower's own simulation needs Ray.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")  # read when flwr is imported

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity


class Here(Grid):
    """Nodes 100, 101, ... with these configurations; `away`: nodes that never answer."""

    def __init__(self, app: ClientApp, configs: Sequence[dict[str, Any]]) -> None:
        TaskIdentity.run_id = 1
        TaskIdentity.node_id = 1
        TaskIdentity.task_id = 1
        self.app = app
        self.contexts = {
            100 + i: Context(1, 100 + i, dict(config), RecordDict(), {}) for i, config in enumerate(configs)
        }
        self.away: set[int] = set()
        self._numbers = itertools.count(1)

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return list(self.contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise NotImplementedError

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        replies = []
        for message in messages:
            node = message.metadata.dst_node_id
            if node in self.away:
                continue
            message.metadata.__dict__["_message_id"] = str(next(self._numbers))
            try:
                replies.append(self.app(message, self.contexts[node]))
            except Exception as error:  # noqa: BLE001  as flwr-clientapp does
                reason = f"{type(error)}:<'{error}'>"
                replies.append(Message(Error(code=2, reason=reason), reply_to=message))
        return replies


@contextlib.contextmanager
def documented(page: Path) -> Iterator[tuple[ModuleType, ModuleType]]:
    """The modules client and server of the program on a page."""
    files = re.findall(
        r"^`turned/([\w./]+)`[^\n]*\n\n```\w+\n(.*?)```", page.read_text(), re.DOTALL | re.MULTILINE
    )
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files:
            path = Path(folder, name)
            path.parent.mkdir(exist_ok=True)
            path.write_text(content)
        sys.path.insert(0, folder)
        try:
            yield importlib.import_module("turned.client"), importlib.import_module("turned.server")
        finally:
            sys.path.remove(folder)
            for name in ("turned", "turned.client", "turned.server"):
                sys.modules.pop(name, None)
