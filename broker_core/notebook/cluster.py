"""`Cluster`: a cluster that runs already, for notebooks and scripts."""

from __future__ import annotations

import dataclasses
from typing import Any

from broker_core.client.blocking.face import client_config
from broker_core.client.connection.config import ClientConfig
from broker_core.notebook.actions import ClusterActions


class Cluster(ClusterActions):
    """Our cluster or Apache's: `Cluster("127.0.0.1:9876")`.

    `config` is the address of the name servers or a `ClientConfig` with accounts and TLS, and
    `changes` are other fields of one.
    """

    def __init__(self, config: ClientConfig | str, **changes: Any) -> None:
        self._config = dataclasses.replace(client_config(config), **changes)

    def __repr__(self) -> str:
        return f"<Cluster {self.name_server}>"

    # IPython looks for it in the class that has `__repr__`.
    _repr_pretty_ = ClusterActions._repr_pretty_

    @property
    def name_server(self) -> str:
        """`host:port;host:port`."""
        return ";".join(self._config.name_servers)

    @property
    def client_config(self) -> ClientConfig:
        """As given."""
        return self._config
