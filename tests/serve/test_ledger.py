"""The service's memory, the same in an SQLite file and in PostgreSQL."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time

import numpy as np
import pytest

from tests.serve.postgresql import postgresql
from unsee.serve import ledger as ledgers
from unsee.serve.accounts import Accounts, Bill, ResponseBody
from unsee.serve.keys import ANYONE, Client
from unsee.serve.ledger import Price, ServiceLedger, StoredAnswer, StoredPrompt
from unsee.serve.limits import Refused


@pytest.fixture(scope="session")
def database():
    with postgresql() as address:
        yield address


@pytest.fixture(params=["sqlite", "postgresql"])
def state(request, tmp_path):
    """Where a ledger is kept; a fresh one each time."""
    if request.param == "sqlite":
        return tmp_path
    address = request.getfixturevalue("database")
    import psycopg

    with psycopg.connect(address, autocommit=True) as db:
        db.execute("DROP SCHEMA public CASCADE")
        db.execute("CREATE SCHEMA public")
    return address


@pytest.fixture
def ledger(state):
    found = ServiceLedger(state)
    yield found
    found.close()


def digests(count: int, start: int = 0) -> list[str]:
    return [f"{i:064x}" for i in range(start, start + count)]


def put_images(ledger, names, client=ANYONE):
    rows = [(name, np.zeros(8, np.float32)) for name in names]
    reserved = ledger.reserve(client, Price(tokens=len(rows)), 32 * len(rows))
    ledger.put_images(reserved, client.name, "e", rows, Price(tokens=len(rows)))


def put_set(ledger, name, members, client=ANYONE):
    reserved = ledger.reserve(client, Price(), 32 * len(members))
    unique = list(dict.fromkeys(members))
    for part in range(0, len(unique), 250):
        assert ledger.hold_images(reserved, client.name, "e", part, unique[part : part + 250]) == []
    ledger.put_set(reserved, client.name, name, members)


def give_back(ledger) -> int:
    """Counts off all images of sets that are gone; -> in how many steps."""
    steps = 0
    while ledger.give_back():
        steps += 1
    return steps


def test_an_answer_is_kept_until_it_is_acknowledged_and_everything_stored_is_counted(ledger):
    reserved = ledger.reserve(ANYONE, Price(2, 6, 9), 10, "k.0")
    assert ledger.reserve(ANYONE, Price(2, 6, 9), 10, "k.0") is None  # it is being answered
    ledger.settle(reserved, "anyone", Price(2, 6, 9), "k.0", StoredAnswer(b"q", b"answer", "text/plain"))
    assert ledger.reserve(ANYONE, Price(2, 6, 9), 10, "k.0") == StoredAnswer(b"q", b"answer", "text/plain")
    put_images(ledger, digests(3))
    put_set(ledger, "ff" * 32, [*digests(2), *digests(2)])
    prompt = StoredPrompt("{}", b"12345")
    ledger.put_prompt(ledger.reserve(ANYONE, Price(1), prompt.size), "anyone", "p", prompt, Price(1))
    assert ledger.usage("anyone") == (Price(3, 6, 12), 6 + 3 * 32 + 4 * 32 + 7)
    members = [bytes.fromhex(digest) for digest in digests(2)]
    assert ledger.set_digests("anyone", "ff" * 32) == members * 2
    assert set(ledger.features("anyone", "e", [*members, bytes(31) + b"x"])) == set(members)
    assert ledger.prompt("anyone", "p") == prompt
    assert ledger.prompts("anyone") == {"p": "{}"}
    ledger.acknowledge("anyone", ["k.0", "unknown"])
    assert ledger.find("anyone", "k.0").content is None
    assert ledger.turns("anyone", "k") == 1
    assert ledger.delete_set("anyone", "ff" * 32)
    assert not ledger.delete_set("anyone", "ff" * 32)
    assert give_back(ledger) == 1
    assert ledger.delete_prompt("anyone", "p")
    assert ledger.missing("anyone", "e", digests(3)) == digests(2)  # the third was in no set
    assert ledger.usage("anyone")[1] == 32
    assert not ledger.expire(0, 0, time.time() + 1)  # an image that never came into a set is collected
    assert ledger.usage("anyone") == (Price(3, 6, 12), 0)


def test_acknowledged_keys_go_after_a_while_and_answers_that_nobody_fetches(ledger):
    for key in ("old", "arrived"):
        reserved = ledger.reserve(ANYONE, Price(1), 10, key)
        ledger.settle(reserved, "anyone", Price(1), key, StoredAnswer(b"q", b"answer", "text/plain"))
    ledger.acknowledge("anyone", ["arrived"])
    ledger.expire(0, time.time() + 1, 0)
    assert ledger.find("anyone", "arrived") is None
    assert ledger.find("anyone", "old") is not None
    ledger.expire(time.time() + 1, 0, 0)
    assert ledger.find("anyone", "old") is None
    assert ledger.usage("anyone") == (Price(2), 0)


def test_reservations_count_against_every_limit_until_they_are_settled_or_released(ledger):
    client = Client("c", candidates=3, tokens=100, stored_bytes=50)
    first = ledger.reserve(client, Price(2, 0, 60), 30)
    for price, size, field in ((Price(2), 0, "candidates"), (Price(0, 0, 50), 0, "tokens"), (Price(), 21, "stored")):
        with pytest.raises(Refused, match=r"are left|would pass") as refused:
            ledger.reserve(client, price, size)
        assert refused.value.field.startswith(field)
    ledger.release(first)
    second = ledger.reserve(client, Price(3, 0, 100), 50)
    ledger.settle(second, "c", Price(3))
    with pytest.raises(Refused, match="budget is 3, 0 are left, 1 were asked"):
        ledger.reserve(client, Price(1))


def test_deleting_a_set_of_many_is_linear(ledger):
    """2,000 images of 8,000 took 42 s: every deleted image was looked for in the whole table."""
    names = digests(8000)
    for start in range(0, 8000, 2000):
        put_images(ledger, names[start : start + 2000])
    put_set(ledger, "aa" * 32, names[:2000])
    put_set(ledger, "bb" * 32, names[1000:])
    started = time.perf_counter()
    assert ledger.delete_set("anyone", "aa" * 32)
    assert give_back(ledger) == 8  # short steps: others use the ledger in between
    assert time.perf_counter() - started < 2
    assert ledger.missing("anyone", "e", names) == names[:1000]


def test_a_set_that_was_never_finished_holds_no_image(ledger):
    put_images(ledger, digests(3))
    reserved = ledger.reserve(ANYONE, Price(), 96)
    assert ledger.hold_images(reserved, "anyone", "e", 0, digests(2)) == []
    assert ledger.hold_images(reserved, "anyone", "e", 1, digests(2, 2)) == digests(1, 3)  # one is not there
    assert give_back(ledger) == 0  # the reservation holds them
    put_set(ledger, "aa" * 32, digests(1))
    ledger.release(reserved)
    assert give_back(ledger) == 1
    assert ledger.missing("anyone", "e", digests(3)) == digests(1, 1)  # the first is in a set, the third was not held
    assert ledger.usage("anyone")[1] == 2 * 32 + 32


def test_a_price_that_rises_is_reserved_or_refused(ledger):
    client = Client("c", tokens=100)
    reserved = ledger.reserve(client, Price(tokens=60))
    ledger.reserve_more(client, reserved, Price(tokens=40))
    with pytest.raises(Refused, match="the budget is 100"):
        ledger.reserve_more(client, reserved, Price(tokens=1))
    ledger.settle(reserved, "c", Price(tokens=100))
    assert ledger.usage("c")[0] == Price(tokens=100)


def test_what_killed_the_service_twice_is_refused_by_its_hash(ledger):
    ledger.count_deaths([b"a" * 32, b"b" * 32])
    ledger.release(ledger.reserve(ANYONE, Price(1), about=[b"a" * 32]))
    ledger.count_deaths([b"a" * 32])
    with pytest.raises(Refused, match="stopped the service 2 times"):
        ledger.reserve(ANYONE, Price(1), about=[b"x" * 32, b"a" * 32])
    ledger.release(ledger.reserve(ANYONE, Price(1), about=[b"b" * 32]))


def test_what_a_client_spent_is_kept_from_a_file_of_the_first_version(tmp_path):
    db = sqlite3.connect(tmp_path / "serve.sqlite")
    db.executescript(
        "CREATE TABLE spent (owner TEXT PRIMARY KEY, candidates INTEGER NOT NULL, image_queries INTEGER NOT NULL);"
        "CREATE TABLE images (owner TEXT, encoder TEXT, digest BLOB, feature BLOB);"
        "CREATE TABLE prompts (owner TEXT, name TEXT, card TEXT, contexts BLOB, PRIMARY KEY (owner, name));"
        "INSERT INTO spent VALUES ('alice', 7, 70); INSERT INTO prompts VALUES ('alice', 'p', '{}', x'0102');"
    )
    db.close()
    found = ServiceLedger(tmp_path)
    assert found.usage("alice") == (Price(7, 70), 4)
    assert found.prompt("alice", "p") == StoredPrompt("{}", b"\1\2")
    found.close()


async def answer_many(accounts, client, keys):
    """How many of these questions are answered, asked at once."""

    async def work():
        await asyncio.sleep(0.01)
        return ResponseBody(b"answer", "text/plain")

    asked = [accounts.answer_once(client, key, b"q" * 32, Bill(Price(1), 6), work) for key in keys]
    done = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(one, ResponseBody) or one.status == 403 for one in done)
    return sum(isinstance(one, ResponseBody) for one in done)


def test_two_servers_on_one_database_never_pass_a_budget_together(database):
    client, answered = Client(f"c{time.time()}", candidates=50), []

    def server(number: int) -> None:
        async def run() -> int:
            accounts = Accounts(ServiceLedger(database), 30)
            found = await answer_many(accounts, client, [f"k{number}.{i}" for i in range(50)])
            await accounts.close()
            return found

        answered.append(asyncio.run(run()))

    threads = [threading.Thread(target=server, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(answered) == 50
    last = ServiceLedger(database)
    assert last.usage(client.name) == (Price(50), 50 * 6)
    last.close()


def test_what_a_server_that_is_gone_had_reserved_is_free_again(database, monkeypatch):
    monkeypatch.setattr(ledgers, "LEASE", 0.2)
    client = Client(f"c{time.time()}", candidates=1)
    gone, other = ServiceLedger(database), ServiceLedger(database)
    reserved = gone.reserve(client, Price(1), 10, "k")
    assert other.reserve(client, Price(1), 10, "k") is None
    time.sleep(0.3)  # without a sign of life
    other.probe()
    again = other.reserve(client, Price(1), 10, "k")
    other.settle(again, client.name, Price(1), "k", StoredAnswer(b"q", b"answer", "text/plain"))
    with pytest.raises(Refused, match="away for too long"):  # it was only asleep: it must not be paid twice
        gone.settle(reserved, client.name, Price(1), "k2", StoredAnswer(b"q", b"late", "text/plain"))
    assert other.usage(client.name) == (Price(1), 6)
    gone.close(), other.close()


def test_a_database_that_is_away_is_a_clear_line_or_a_503():
    pytest.importorskip("psycopg", reason="needs the extra postgresql")
    import unsee

    with pytest.raises(unsee.RunError, match="cannot keep the service's state in PostgreSQL"):
        ServiceLedger("postgresql://nobody@127.0.0.1:1/none")
