"""One server for most tests, with keys of several clients."""

from __future__ import annotations

import httpx
import pytest

from tests.serve.servers import ThreadServer
from unsee.models.remote.remote_model import RemoteModel
from unsee.serve.keys import add_key, read_keys

FAST = "rate = 1000000"
LIMITS = {
    "poor": "candidates = 3\nimage_queries = 50\nstored_bytes = 20000",
    "slow": "rate = 1",
    "operator": f'role = "operate"\n{FAST}',
    "consumer": f'prompt = "pets"\n{FAST}',
    "chooser": f'prompt = ["pets", "other"]\nlabels = "any"\n{FAST}',
    "plain": f'role = "classify"\n{FAST}',
}


@pytest.fixture(scope="session")
def keys_file(tmp_path_factory):
    """The path of a keys file, and the keys of its clients by name."""
    path = tmp_path_factory.mktemp("keys") / "keys.toml"
    keys = {}
    for name in ("alice", "bob", "carol", "dave", "erin", "frank", "grace", "fuzz", *LIMITS):
        keys[name] = add_key(path, name)
        with path.open("a") as file:
            file.write(LIMITS.get(name, FAST) + "\n")
    return path, keys


@pytest.fixture(scope="session")
def served(model, tmp_path_factory, keys_file):
    server = ThreadServer(model, tmp_path_factory.mktemp("state"), read_keys(keys_file[0]))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def keys(keys_file):
    return keys_file[1]


@pytest.fixture
def ask(served, keys):
    """Sends a request as a client."""
    with httpx.Client(base_url=served.url, timeout=60) as client:

        def ask(method: str, path: str, who: str | None = "alice", **given):
            headers = given.pop("headers", {})
            if who is not None:
                headers = {"authorization": f"Bearer {keys.get(who, who)}", **headers}
            return client.request(method, path, headers=headers, **given)

        yield ask


@pytest.fixture
def remote(served, keys):
    """The served model, as its client sees it."""
    model = RemoteModel(served.url, keys["alice"])
    yield model
    model.close()
